// SPDX-License-Identifier: Apache-2.0

package jsonpointer_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

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

// A string or a number is an identifier, and nothing else is. Spellings of one number are one.
func TestText(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"o-1"`: "o-1", `"1e2"`: "1e2", `"a\u0062\"\\"`: `ab"\`,
		"0": "0", "-0": "0", "-7": "-7", "9": "9", "100": "100", "100.0": "100", "1e2": "100", "1.50": "1.5",
		"9007199254740993": "9007199254740993", "9007199254740992": "9007199254740992", "9007199254740993.0": "9007199254740993",
		"1E+999999999": "1e999999999",
	} {
		if got, ok := jsonpointer.Text([]byte(value)); got != want || !ok {
			t.Errorf("%s is %q, %t; want %q", value, got, ok, want)
		}
	}
	for _, value := range []string{"", "null", "true", "{}", `["x"]`, `"x`, "\"\xff\"", `"\ud800"`, "1e" + strings.Repeat("9", 19)} {
		if got, ok := jsonpointer.Text([]byte(value)); got != "" || ok {
			t.Errorf("%s is %q, %t; want nothing", value, got, ok)
		}
	}
	if got, ok := jsonpointer.Text([]byte(`""`)); got != "" || !ok {
		t.Errorf("the empty string is %q, %t", got, ok)
	}
}

// FuzzLookup: the value is the one that encoding/json finds step by step. Invalid
// documents do not panic.
func FuzzLookup(f *testing.F) {
	for _, doc := range []string{
		document, ``, `7`, `"0"`, `{"0":`, `{"0":1}}`, `[1`, `[1,]`, `{"`, `{"0`, `"\`, `{"\u0030":[7,"]"],"1":{"2":3}}`, "[ \t{ } , [ ] , \"\\\\\" ]",
		`{"0":{"0":1},"0":{"1":2}}`, "[1 ]", "[1\t]", "[1\n]", "[1\r,2\r]", "[", `["`, `["\`, `{"0"`, `{"0\`, `{"0":"\"}","1":-1.5e+3,"2":[null,true]}`,
	} {
		for _, pointer := range []string{"/0", "/1", "/0/0", "/deep/0/x", "/foo/1", "/2/1", "/-1", "/00"} {
			f.Add([]byte(doc), pointer)
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte, pointer string) {
		p, err := jsonpointer.Parse(pointer)
		if err != nil || !utf8.ValidString(pointer) {
			return
		}
		got, ok := p.Lookup(slices.Clip(doc))
		if !json.Valid(doc) || !utf8.Valid(doc) {
			return
		}
		if want := bystep(doc, p); string(got) != string(want) || ok != (want != nil) {
			t.Errorf("%q in %q: got %q, %t, want %q", pointer, doc, got, ok, want)
		}
	})
}

// bystep returns the value by decoding each array and object on the way.
func bystep(doc []byte, p jsonpointer.Pointer) []byte {
	for _, token := range p {
		var members map[string]json.RawMessage
		var elements []json.RawMessage
		if json.Unmarshal(doc, &members) == nil {
			doc = members[token]
		} else if i, err := strconv.Atoi(token); err == nil && strconv.Itoa(i) == token &&
			json.Unmarshal(doc, &elements) == nil && 0 <= i && i < len(elements) {
			doc = elements[i]
		} else {
			return nil
		}
	}
	return doc
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
