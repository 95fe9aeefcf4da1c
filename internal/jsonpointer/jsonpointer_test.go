// SPDX-License-Identifier: Apache-2.0

package jsonpointer_test

import (
	"testing"

	"github.com/once-lambda/once/internal/jsonpointer"
)

// The document and the pointers are those of RFC 6901, section 5.
const document = ` {
	"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8,
	"twice": 1, "twice": 2, "deep": [ {"x": null} ]
}`

func TestLookup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/foo": `["bar", "baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4",
		`/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8",
		"/twice": "2", "/deep/0/x": "null",
		// These are not in the document.
		"/foo/2": "", "/foo/-1": "", "/foo/00": "", "/foo/+1": "", "/foo/-": "", "/foo/x": "", "/foo/0/x": "", "/none": "", "/FOO": "",
	} {
		p, err := jsonpointer.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, ok := p.Lookup([]byte(document)); ok != (want != "") || string(got) != want {
			t.Errorf("%s: %q, %t, want %q", text, got, ok, want)
		}
	}
}

func TestLookupInInvalidDocuments(t *testing.T) {
	t.Parallel()
	p, err := jsonpointer.Parse("/0")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range []string{"", "7", `{"0":`, `{"0":1}}`, `[1`, `[1,]`} {
		if got, ok := p.Lookup([]byte(doc)); ok {
			t.Errorf("%s: found %s", doc, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "foo", "#/foo", "/~", "/a~", "/~2", "/~01/~x"} {
		if p, err := jsonpointer.Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
	// ~01 is ~1, not /.
	if p, err := jsonpointer.Parse("/~01"); err != nil || len(p) != 1 || p[0] != "~1" {
		t.Errorf("got %q, %v", p, err)
	}
}
