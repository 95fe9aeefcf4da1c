// Package doctest keeps the parts of the documents that tests write equal to
// what they are written from. Only tests use it.
package doctest

import (
	"os"
	"strings"
	"testing"
)

// Part compares what file has between the marks <!-- name --> and <!-- /name -->
// with want, and fails t if it differs, or, with update, writes it. The file is
// named from the folder of the test.
func Part(t testing.TB, file, name, want string, update bool) {
	t.Helper()
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
		t.Errorf("%s says\n%sand the test\n%swrite it with: go test -run %s -update, in its folder", file, got, want, t.Name())
	}
}
