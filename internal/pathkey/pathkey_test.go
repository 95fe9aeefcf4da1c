// SPDX-License-Identifier: Apache-2.0

package pathkey_test

import (
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/pathkey"
)

// Two pairs of a path and a key have the same ID only if they are the same.
func TestIDsAreDistinct(t *testing.T) {
	t.Parallel()
	pieces := []string{"", "/", "a", "/a", "//a", "/a/", "/a b", "/a%2Fb", "/a/b", "/a%0A/b", "/a\n/b", "%", "%zz", "/a/b c"}
	seen := map[string][2]string{}
	for _, path := range pieces {
		for _, key := range []string{"a", "/a", "b /a", "/a b", "b", "%0A", "a%0Ab"} {
			id := pathkey.ID(path, key)
			pair := [2]string{pathkey.Canonical(path), key}
			if other, ok := seen[id]; ok && other != pair {
				t.Errorf("%q and %q have the ID %q", other, pair, id)
			}
			seen[id] = pair
			if id == key {
				t.Errorf("%q at %q has the ID of the key without a path", key, path)
			}
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/orders/1/pay": "/orders/1/pay",
		"/caf%c3%a9":    "/caf%C3%A9",
		"/café":         "/caf%C3%A9",
		"/%6Frders":     "/orders",
		"/a%2fb":        "/a%2Fb",
		"/a/b":          "/a/b",
		"/a%20b":        "/a%20b",
		"/a b":          "/a%20b",
		"/a+b":          "/a+b",
		"/a%2Bb":        "/a+b",
		"/a%3Bb":        "/a%3Bb",
		"/a;b":          "/a%3Bb",
		"/100%":         "/100%25",
		"/100%25":       "/100%25",
		"/%zz%41":       "/%25zz%2541",
		"/\x00\xff\n":   "/%00%FF%0A",
		"//a//":         "//a//",
		"/a?b":          "/a%3Fb",
		"":              "",
	} {
		if got := pathkey.Canonical(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// A canonical path is printable, keeps the segments of the path, and is
// canonical itself.
func FuzzCanonical(f *testing.F) {
	for _, path := range []string{"/orders/1/pay", "/caf%c3%a9", "/a%2fb", "/100%", "//\x00\n%", ""} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got := pathkey.Canonical(path)
		if strings.ContainsFunc(got, func(c rune) bool { return c <= ' ' || c > '~' }) || strings.Count(got, "/") != strings.Count(path, "/") {
			t.Errorf("%q: got %q", path, got)
		}
		if again := pathkey.Canonical(got); again != got {
			t.Errorf("%q: got %q, and again %q", path, got, again)
		}
	})
}
