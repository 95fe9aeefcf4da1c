// SPDX-License-Identifier: Apache-2.0

package house

import (
	"strings"
	"testing"
)

const header = "// SPDX-License-Identifier: Apache-2.0\n\n"

// Every Go file begins with the licence, see make fmt.
func TestFilesNameTheirLicence(t *testing.T) {
	t.Parallel()
	for _, name := range tracked(t, ".go") {
		if !strings.HasPrefix(read(t, name), header) {
			t.Errorf("%s lacks the licence (make fmt)", name)
		}
	}
	if !strings.Contains(read(t, "LICENSE"), "Apache License") {
		t.Error("LICENSE is another licence than the header's")
	}
}

// No file has the marks of a merge.
func TestNoMarksOfAMerge(t *testing.T) {
	t.Parallel()
	for _, name := range tracked(t, "") {
		for _, mark := range []string{"<<<<<<< ", ">>>>>>> "} {
			if strings.Contains("\n"+read(t, name), "\n"+mark) {
				t.Errorf("%s has a line that begins with %q", name, mark)
			}
		}
	}
}

// No file is a built program or another large file. A picture is smaller, because each
// version of it stays in the history.
func TestNoFileIsLarge(t *testing.T) {
	t.Parallel()
	for _, name := range tracked(t, "") {
		most := 512 << 10
		if strings.HasSuffix(name, ".png") {
			most = 200 << 10
		}
		if n := len(read(t, name)); n > most {
			t.Errorf("%s has %d KB, want %d at most: make it smaller, remove it, or add it to .gitignore", name, n>>10, most>>10)
		}
	}
}
