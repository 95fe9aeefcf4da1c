// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLicences(t *testing.T) {
	t.Parallel()
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const gpl = "This program is free software: you can redistribute it and/or modify it under the terms of the " +
		"GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or " +
		"(at your option) any later version."
	for name, c := range map[string]struct {
		file, text, refused string
	}{
		"the licence of this project": {"LICENSE", string(apache), ""},
		"another spelling":            {"licence.md", string(apache), ""},
		"none":                        {"README.md", string(apache), "no licence"},
		"copyleft":                    {"COPYING", gpl, "GPL-3.0"},
		"an unknown text":             {"LICENSE", strings.Repeat("You must send me a postcard. ", 20), "unknown text"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		found, err := licences(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = judge(found)
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: found %v, error %v, want %q", name, found, err, c.refused)
		}
	}
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	list, err := dependencies("../lint")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range list {
		found = found || m.Path == "github.com/nishanths/exhaustive"
		if strings.HasPrefix(m.Path, own) || m.Dir == "" {
			t.Errorf("%+v is not a dependency", m)
		}
	}
	if !found {
		t.Errorf("exhaustive is missing in %v", list)
	}
}
