// SPDX-License-Identifier: Apache-2.0

// Package kit has what tests of several packages share, and only tests import it. It
// starts no process and needs no AWS SDK; package engine does.
package kit

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// Part compares the part of file between the marks <!-- name --> and <!-- /name
// --> with want and fails t if they differ. If update is set, it writes want
// instead. The path of the file is relative to the folder of the test. It
// may be called by tests that run at the same time.
func Part(t testing.TB, file, name, want string, update bool) {
	t.Helper()
	files.Lock()
	defer files.Unlock()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no %q and %q", file, begin, end)
	case got == want:
	case update:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s contains\n%swant\n%supdate it with: go test -run %s -update, in the folder of the test", file, got, want, t.Name())
	}
}

var files sync.Mutex
