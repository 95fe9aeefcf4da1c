// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// FuzzFingerprintJSON: a document that encoding/json has decoded and encoded
// again has the same fingerprint: other white space, another order of members,
// other escapes, the same numbers.
func FuzzFingerprintJSON(f *testing.F) {
	kit.Inputs(f)
	for _, doc := range []string{
		`{"b":1,"a":[true,null,"\u00e9"]}`, ` { "a" : 1.50 } `, `9007199254740993`, `[1e400,-0,1e-400]`, `"<&>\u2028\ufffd"`, `{"":{"":""}}`,
		`{"a":1,"a":2}`, "\"\xff\"", `{} {}`, ``,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		fp, err := idempotent.FingerprintJSON(doc)
		if err != nil {
			if !errors.As(err, new(*idempotent.InvalidKeyError)) || fp != (idempotent.Fingerprint{}) {
				t.Errorf("got %x and error %v, want none and InvalidKeyError", fp, err)
			}
			return
		}
		if fp.Version() != 1 || fp == idempotent.FingerprintBytes(doc) {
			t.Errorf("got %x", fp)
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("encoding/json refuses %q: %v", doc, err)
		}
		var again bytes.Buffer
		if err := json.NewEncoder(&again).Encode(v); err != nil {
			t.Fatal(err)
		}
		if other, err := idempotent.FingerprintJSON(again.Bytes()); err != nil || other != fp {
			t.Errorf("%q has another fingerprint when written as %q (%v)", doc, again.Bytes(), err)
		}
	})
}

// FuzzFingerprintNumbers: two amounts have the same fingerprint if and only if
// they are the same amount.
func FuzzFingerprintNumbers(f *testing.F) {
	kit.Inputs(f)
	for _, pair := range [][2]string{
		{"4200", "4200.00"}, {"1e2", "100"}, {"9007199254740993", "9007199254740992"},
		{"12345678901234567.89", "12345678901234567.88"}, {"0.1", "0.10000000000000001"}, {"-0.0", "0"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okA := amount(a)
		y, okB := amount(b)
		if !okA || !okB {
			return
		}
		of := func(number string) idempotent.Fingerprint {
			fp, err := idempotent.FingerprintJSON([]byte(`{"amount":` + number + `}`))
			if err != nil {
				t.Fatalf("%s: %v", number, err)
			}
			return fp
		}
		if same := x.Cmp(y) == 0; same != (of(a) == of(b)) {
			t.Errorf("%s and %s are equal: %v, but their fingerprints are not", a, b, same)
		}
	})
}

// amount parses a JSON number whose exponent is small enough to write the number
// out.
func amount(s string) (*big.Rat, bool) {
	if !json.Valid([]byte(s)) || strings.Trim(s, "0123456789+-.eE") != "" {
		return nil, false
	}
	if _, exponent, _ := strings.Cut(strings.ToLower(s), "e"); len(strings.TrimLeft(exponent, "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// FuzzParseRecordID: a text that is parsed as a record id is exactly that id.
func FuzzParseRecordID(f *testing.F) {
	kit.Inputs(f)
	good := string(idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}.RecordID())
	for _, s := range []string{good, "", "charge", "#" + good, good + "=", strings.ToUpper(good), strings.Replace(good, "charge", "a#b", 1), good[:len(good)-1] + "d", good[:20] + "\n" + good[20:]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := idempotent.ParseRecordID(s)
		if err != nil {
			if !errors.As(err, new(*idempotent.InvalidKeyError)) || id != "" {
				t.Errorf("%q: got %q and error %v, want none and InvalidKeyError", s, id, err)
			}
			return
		}
		hash := s[strings.LastIndexByte(s, '#')+1:]
		if string(id) != s || id.Operation()+"#"+hash != s || len(hash) != 43 || id.KeyHash() != hash[:12] {
			t.Errorf("%q was read as %q: operation %q, hash %q", s, id, id.Operation(), id.KeyHash())
		}
	})
}

// FuzzRecordID: an id can be parsed, contains its operation and nothing else of
// the key, and wherever the text is cut into scope and id, no two cuts give the
// same id.
func FuzzRecordID(f *testing.F) {
	kit.Inputs(f)
	f.Add("charge", "acme", "order-1")
	f.Add("POST /charges/{id}#x", "ü", "日本")
	f.Add("o", "a|b", "c#d\x00e")
	f.Add("o", idempotent.Global, "\x01\x01")
	f.Add("o", strings.Repeat("a", 127), strings.Repeat("b", 128))
	f.Fuzz(func(t *testing.T, operation, scope, id string) {
		key := idempotent.Key{Operation: operation, Scope: scope, ID: id}
		record := key.RecordID()
		if record != key.RecordID() || record.Operation() != operation {
			t.Fatalf("%+q has the record %q of operation %q", key, record, record.Operation())
		}
		if parsed, err := idempotent.ParseRecordID(string(record)); err == nil && parsed != record {
			t.Errorf("%q was read as %q", record, parsed)
		}
		seen := map[idempotent.RecordID]int{}
		text := scope + id
		for cut := range min(len(text), 64) + 1 {
			k := idempotent.Key{Operation: operation, Scope: text[:cut], ID: text[cut:]}.RecordID()
			if other, ok := seen[k]; ok {
				t.Errorf("%+q cut at %d and at %d gives the same record id", text, other, cut)
			}
			seen[k] = cut
		}
		if moved := (idempotent.Key{Operation: scope, Scope: operation, ID: id}).RecordID(); (moved == record) != (scope == operation) {
			t.Errorf("%+q with operation and scope exchanged gives the same record id", key)
		}
	})
}
