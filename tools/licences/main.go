// SPDX-License-Identifier: Apache-2.0

// Licences lists the licence of every module that the packages of the module in
// the current folder are built from, and fails if one is not allowed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are licences that let a user link the code into a closed program and
// ask only for a notice.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0"}

const own = "github.com/once-lambda/once"

func main() {
	modules, err := dependencies(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
	refused := false
	for _, m := range modules {
		found, err := licences(m.Dir)
		if err == nil {
			err = judge(found)
		}
		fmt.Printf("%-60s %s\n", m.Path+"@"+m.Version, strings.Join(found, ", "))
		if err != nil {
			fmt.Fprintf(os.Stderr, "licences: %s: %v\n", m.Path, err)
			refused = true
		}
	}
	if refused {
		os.Exit(1)
	}
}

type module struct{ Path, Version, Dir string }

// dependencies returns the modules of other projects that the packages below dir
// are built from, without those of tests only.
func dependencies(dir string) (list []module, err error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if m := p.Module; m != nil && m.Path != own && !strings.HasPrefix(m.Path, own+"/") && !slices.Contains(list, *m) {
			list = append(list, *m)
		}
	}
	slices.SortFunc(list, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// licences returns the licences that the files of a module's root contain.
func licences(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if strings.HasSuffix(name, "-SUMMARY") { // of the other files
			continue
		}
		if e.IsDir() || !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < 75 {
			found = append(found, fmt.Sprintf("unknown text in %s", e.Name()))
		}
		for _, m := range cover.Match {
			if !m.IsURL && !slices.Contains(found, m.ID) {
				found = append(found, m.ID)
			}
		}
	}
	return found, nil
}

func judge(found []string) error {
	if len(found) == 0 {
		return errors.New("no licence")
	}
	for _, l := range found {
		if !slices.Contains(allowed, l) {
			return fmt.Errorf("licence %s is not allowed", l)
		}
	}
	return nil
}
