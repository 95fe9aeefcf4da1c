// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// Keys that are cut from one text in different places, or that differ by a
// single letter, never share a record: INV-7, and the collisions of FM52.
func TestDifferentKeysNeverMeet(t *testing.T) {
	t.Parallel()
	seen := &kit.Tally{}
	for range 20 {
		rapid.Check(t, func(rt *rapid.T) { neverMeet(rt, seen) })
	}
	t.Log(seen)
	seen.Least(t, 10, "different", "different, but joined alike", "equal")
}

// letters are few, and many of them are used as separators.
var letters = []string{"a", "b", "1", "|", "#", "/", ":", ".", "%7C", "\"", "A", "\u00e9", "e\u0301", " ", "\x00"}

func neverMeet(rt *rapid.T, seen *kit.Tally) {
	word := rapid.SliceOfN(rapid.SampledFrom(letters), 3, 6)
	first := word.Draw(rt, "letters")
	second := first
	if rapid.Bool().Draw(rt, "other letters") {
		second = word.Draw(rt, "letters of the other")
	}
	a, b := cut(rt, first), cut(rt, second)
	switch {
	case a == b:
		seen.Add("equal", 1)
	case joined(a) == joined(b):
		seen.Add("different, but joined alike", 1)
		fallthrough
	default:
		seen.Add("different", 1)
	}
	if (a.RecordID() == b.RecordID()) != (a == b) {
		rt.Fatalf("%q and %q have the records %s and %s", a, b, a.RecordID(), b.RecordID())
	}

	g, err := idempotent.New(newMemory())
	if err != nil {
		rt.Fatal(err)
	}
	do := func(k idempotent.Key, value string) string {
		got, err := idempotent.Do(context.Background(), g, k, func(context.Context) (string, error) { return value, nil })
		if err != nil {
			rt.Fatalf("%q: %v", k, err)
		}
		return got
	}
	mine, other := rand.Text(), rand.Text()
	do(a, mine)
	if got := do(b, other); (got == mine) != (a == b) {
		rt.Fatalf("%q got the outcome of %q, or not its own", b, a)
	}
	if do(a, rand.Text()) != mine {
		rt.Fatalf("%q lost its outcome to %q", a, b)
	}
}

// cut makes a key of letters: operation, scope and id, each with at least one.
func cut(rt *rapid.T, letters []string) idempotent.Key {
	i := rapid.IntRange(1, len(letters)-2).Draw(rt, "end of the operation")
	j := rapid.IntRange(i+1, len(letters)-1).Draw(rt, "end of the scope")
	return idempotent.Key{
		Operation:   strings.ReplaceAll(strings.Join(letters[:i], ""), "\x00", "0"), // an operation must be printable
		Scope:       strings.Join(letters[i:j], ""),
		ID:          strings.Join(letters[j:], ""),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

func joined(k idempotent.Key) string { return k.Operation + k.Scope + k.ID }
