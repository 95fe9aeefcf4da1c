// SPDX-License-Identifier: Apache-2.0

package sfv

import (
	"fmt"
	"testing"
)

// The tests of package lambdahttp and tests/guard/syntax try many more values.

func TestItems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value, quoted, both string
		err, bothErr        error
	}{
		{`"a\"b"`, `a"b`, `a"b`, nil, nil},
		{` "a";p=1 `, "a", "a", nil, nil},
		{`a:b/c`, "", "a:b/c", ErrNotString, nil},
		{``, "", "", ErrNotString, ErrNotString},
		{`"a`, "", "", ErrUnclosed, ErrUnclosed},
		{`"a\`, "", "", ErrUnclosed, ErrUnclosed},
		{`"a\b"`, "", "", ErrEscape, ErrEscape},
		{`"é"`, "", "", ErrUnprintable, ErrUnprintable},
		{`"a", "b"`, "", "", ErrTrailing, ErrTrailing},
		{`"a";B`, "", "", ErrParameter, ErrParameter},
	} {
		if got, err := String(c.value); got != c.quoted || err != c.err {
			t.Errorf("String(%s) = %q, %v; want %q, %v", c.value, got, err, c.quoted, c.err)
		}
		if got, err := StringOrBare(c.value); got != c.both || err != c.bothErr {
			t.Errorf("StringOrBare(%s) = %q, %v; want %q, %v", c.value, got, err, c.both, c.bothErr)
		}
	}
}

func TestByteDictionary(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":                     "[] true",
		"a=:eA==:":             "[{a x}] true",
		" a=:eA:;p,\tb=:eQ==:": "[{a x} {b y}] true",
		"a=:eA==:, a=:eQ==:":   "[{a x} {a y}] true",
		"a=:eA==:,":            "[] false",
		"a=:eA==: b=:eQ==:":    "[] false",
		"a":                    "[] false",
		"A=:eA==:":             "[] false",
		`a="x"`:                "[] false",
		"a=:eA==:;P":           "[] false",
	} {
		members, ok := ByteDictionary(value)
		if got := fmt.Sprintf("%s %t", members, ok); got != want {
			t.Errorf("ByteDictionary(%s) = %s, want %s", value, got, want)
		}
	}
}

func TestIsHTTPToken(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{"Idempotency-Key": true, "!#$%&'*+-.^_`|~09azAZ": true, "": false, "a b": false, "a:b": false, "é": false, "a\x00": false} {
		if got := IsHTTPToken(s); got != want {
			t.Errorf("IsHTTPToken(%q) = %t", s, got)
		}
	}
}
