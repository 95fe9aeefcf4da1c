// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/internal/kit"
)

// F11: golden ids. A change here loses every record that was written before it.
func TestRecordID(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		key  idempotent.Key
		want idempotent.RecordID
	}{
		{idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}, "charge#JGDNNv3sOeBRksNd1gDRKcv8m_G22S_tvgq-0HTU_pc"},
		{idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: "order-1"}, "charge#_dmjK9hqK2Dcdb6kmQ7lN_or6OeUatr-R8-T27gDrM0"},
		{idempotent.Key{Operation: "POST /charges/{id}#x", Scope: "ü", ID: "日本"}, "POST /charges/{id}#x#Eyeo8KyiU4vnZLmnaf9trwZSpIK37hRjM49BEOBgJZk"},
	} {
		id := row.key.RecordID()
		if id != row.want {
			t.Errorf("%+v: got %s, want %s", row.key, id, row.want)
		}
		if id.Operation() != row.key.Operation {
			t.Errorf("%s: operation %q, want %q", id, id.Operation(), row.key.Operation)
		}
		if len(id.KeyHash()) != 12 || !strings.HasPrefix(string(id), row.key.Operation+"#"+id.KeyHash()) {
			t.Errorf("%s: key hash %q, want the hash's first 12 characters", id, id.KeyHash())
		}
		if parsed, err := idempotent.ParseRecordID(string(id)); err != nil || parsed != id {
			t.Errorf("%s: parsed as %s, error %v", id, parsed, err)
		}
		if strings.Contains(string(id), row.key.ID) {
			t.Errorf("%s holds the key", id)
		}
	}
}

// F23, FM52: no two combinations of operation, scope and id have the same record
// id, and nothing is normalized silently.
func TestKeysNeverCollide(t *testing.T) {
	t.Parallel()
	seen := map[idempotent.RecordID]idempotent.Key{}
	for _, k := range []idempotent.Key{
		{Operation: "o", Scope: "a", ID: "b|c"},
		{Operation: "o", Scope: "a|b", ID: "c"},
		{Operation: "o", Scope: "a", ID: "bc"},
		{Operation: "o", Scope: "ab", ID: "c"},
		{Operation: "o", Scope: "a", ID: "b#c"},
		{Operation: "o#a", Scope: "b", ID: "c"},
		{Operation: "o", Scope: "a\x00", ID: "b"},
		{Operation: "o", Scope: "a", ID: "\x00b"},
		{Operation: "o", Scope: "\x01", ID: "\x01a"},
		{Operation: "o", Scope: "\x01\x01", ID: "a"},
		{Operation: "o", Scope: "a", ID: `"k"`}, // quoted and bare: the adapter unquotes, the core does not
		{Operation: "o", Scope: "a", ID: "k"},
		{Operation: "o", Scope: "a", ID: "K"},
		{Operation: "o", Scope: "a", ID: "k "},
		{Operation: "o", Scope: "a", ID: "caf\u00e9"},  // composed and
		{Operation: "o", Scope: "a", ID: "cafe\u0301"}, // decomposed
		{Operation: "o", Scope: idempotent.Global, ID: "k"},
		{Operation: "o", Scope: "global", ID: "k"},
		{Operation: "o", Scope: strings.Repeat("a", 127), ID: "k"},
		{Operation: "o", Scope: strings.Repeat("a", 128), ID: "k"},
	} {
		id := k.RecordID()
		if other, ok := seen[id]; ok {
			t.Errorf("%+q and %+q share the record %s", k, other, id)
		}
		seen[id] = k
	}
}

func TestParseRecordIDRefuses(t *testing.T) {
	t.Parallel()
	good := string(idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}.RecordID())
	for _, s := range []string{
		"", "charge", "charge#", "#" + strings.Repeat("A", 43), good[:len(good)-1], good + "A", good + "=",
		good + "\n", good[:20] + "\r\n" + good[20:], good[:len(good)-1] + "\n", // the decoder skips line breaks
		strings.Replace(good, "charge", "char\nge", 1), strings.Repeat("x", 300) + good,
		"charge#" + strings.Repeat("*", 43), "charge#" + strings.Repeat("B", 43),
	} {
		if id, err := idempotent.ParseRecordID(s); !errors.As(err, new(*idempotent.InvalidKeyError)) || id != "" {
			t.Errorf("%q: got %q and error %v, want InvalidKeyError", s, id, err)
		}
	}
}

// G08: a key without its operation, scope, id or fingerprint is refused.
func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	fp := idempotent.FingerprintBytes(nil)
	for _, row := range []struct {
		name string
		key  idempotent.Key
		want error
		says string
	}{
		{"no operation", idempotent.Key{Scope: "s", ID: "i", Fingerprint: fp}, new(idempotent.InvalidKeyError), "Operation"},
		{"a control character", idempotent.Key{Operation: "a\nb", Scope: "s", ID: "i", Fingerprint: fp}, new(idempotent.InvalidKeyError), "printable"},
		{"broken UTF-8", idempotent.Key{Operation: "a\xff", Scope: "s", ID: "i", Fingerprint: fp}, new(idempotent.InvalidKeyError), "printable"},
		{"a long operation", idempotent.Key{Operation: strings.Repeat("o", 257), Scope: "s", ID: "i", Fingerprint: fp}, new(idempotent.InvalidKeyError), "256 bytes"},
		{"no scope", idempotent.Key{Operation: "o", ID: "i", Fingerprint: fp}, new(idempotent.InvalidKeyError), "idempotent.Global"},
		{"no id", idempotent.Key{Operation: "o", Scope: "s", Fingerprint: fp}, new(idempotent.InvalidKeyError), "AllowMissingKey"},
		{"no fingerprint", idempotent.Key{Operation: "o", Scope: "s", ID: "secret"}, new(idempotent.InvalidKeyError), "FingerprintOf"},
	} {
		_, err := idempotent.Do(t.Context(), g, row.key, func(context.Context) (int, error) {
			t.Errorf("%s: the handler was entered", row.name)
			return 0, nil
		})
		if !errtype.Matches(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got error %v, want %v that contains %q", row.name, err, row.want, row.says)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the key: %v", row.name, err)
		}
	}
	longest := idempotent.Key{Operation: strings.Repeat("o", 256), Scope: "s", ID: "i", Fingerprint: fp}
	if _, err := idempotent.Do(t.Context(), g, longest, func(context.Context) (int, error) { return 0, nil }); err != nil {
		t.Errorf("an operation of 256 bytes: %v", err)
	}
}

// A UUID derived from a key has the version and the variant of a random one.
func TestAsUUID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		key := newKey().RecordID().DownstreamKey()
		id := idempotent.AsUUID(key)
		if !form.MatchString(id) || seen[id] || idempotent.AsUUID(key) != id {
			t.Errorf("%s became %s", key, id)
		}
		seen[id] = true
	}
}

// G06: golden fingerprints. A change here turns every running retry into a
// mismatch and requires a new fingerprint version.
func TestFingerprintGolden(t *testing.T) {
	t.Parallel()
	doc, err := idempotent.FingerprintJSON([]byte(`{"currency":"usd","amount":4200}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		got  idempotent.Fingerprint
		want string
	}{
		{"JSON", doc, "0140c6dc4edd464d919c95844e900366002c33df3c49da502810b3f24a1db8a82b"},
		{"bytes", idempotent.FingerprintBytes([]byte("ab"), []byte("c")), "01a2a531d95530321d9b3bc8749a7c3f806e38a7cabef6dac09a8ed5e7b1caa53e"},
		{"no bytes", idempotent.FingerprintBytes(), "013e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"},
	} {
		if got := hex.EncodeToString(row.got[:]); got != row.want {
			t.Errorf("%s: got %s, want %s", row.name, got, row.want)
		}
		if row.got.Version() != 1 {
			t.Errorf("%s: version %d, want 1", row.name, row.got.Version())
		}
	}
	if (idempotent.Fingerprint{}).Version() != 0 {
		t.Error("the zero fingerprint has a version")
	}
}

// Golden stored fingerprints, computed with Python's hmac and hashlib. A change
// here turns every retry of a stored request into a mismatch and requires a new
// fingerprint version.
func TestStoredFingerprintGolden(t *testing.T) {
	t.Parallel()
	charge, err := idempotent.FingerprintJSON([]byte(`{"currency":"usd","amount":4200}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		key  idempotent.Key
		want string
	}{
		"an order":       {idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: charge}, "01d736318d0ebc9b97683208008b429a8b58e11eaad85756efe21e16d15d300029"},
		"the next order": {idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-2", Fingerprint: charge}, "0104709a5976c40d8049004543102e09de64176abcdecd0637a293f0a06d0f9b56"},
		"a long id, and another version": {
			idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: strings.Repeat("i", 200), Fingerprint: idempotent.Fingerprint{7}},
			"07ed03e0d9d1775f997ce2930a1a3470bb25d6327324a331d9dfa8bb3ecd5ee6df",
		},
	} {
		f := newFixture(t)
		f.key = row.key
		if _, err := f.do(charged); err != nil {
			t.Fatal(err)
		}
		if stored := f.record().Fingerprint; hex.EncodeToString(stored[:]) != row.want {
			t.Errorf("%s: got %x, want %s", name, stored, row.want)
		}
		if got := invariant.StoredFingerprint(row.key); hex.EncodeToString(got[:]) != row.want {
			t.Errorf("%s: the tests expect %x, want %s", name, got, row.want)
		}
	}
}

// F21, G06, FM53: fingerprints are equal if the meaning is equal, and never
// silently equal if it is not.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	of := func(doc string) idempotent.Fingerprint {
		t.Helper()
		f, err := idempotent.FingerprintJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		return f
	}
	for _, pair := range [][2]string{
		{`{"a":1,"b":2}`, ` { "b" : 2, "a" : 1 } `},
		{`{"a":1}`, `{"a":1.0}`}, {`{"a":1}`, `{"a":1e0}`}, {`{"a":100}`, `{"a":1E2}`},
		{`"é"`, `"\u00e9"`}, {`"/"`, `"\/"`},
		{`0`, `-0`},
		{`9007199254740993`, `9007199254740993.0`},
	} {
		if of(pair[0]) != of(pair[1]) {
			t.Errorf("%s and %s differ", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{`9007199254740993`, `9007199254740992`},
		{`12345678901234567.89`, `12345678901234567.88`},
		{`1e400`, `1.7976931348623157e308`}, {`1e400`, `1e401`}, {`1e-400`, `0`},
		{`{"a":"1"}`, `{"a":1}`}, {`{"a":null}`, `{}`}, {`[1,2]`, `[2,1]`},
		{`"é"`, `"e\u0301"`}, // Unicode normal forms are different texts
		{`""`, `null`}, {`[]`, `{}`},
	} {
		if of(pair[0]) == of(pair[1]) {
			t.Errorf("%s and %s are equal", pair[0], pair[1])
		}
	}
	for _, doc := range []string{`{"a":1,"a":2}`, "\"\xff\"", `{`, `{} {}`, ``, `1e99999999999999999999`} {
		if _, err := idempotent.FingerprintJSON([]byte(doc)); !errors.As(err, new(*idempotent.InvalidKeyError)) {
			t.Errorf("%q: got error %v, want InvalidKeyError", doc, err)
		}
	}

	raw := of(`"x"`)
	if raw == idempotent.FingerprintBytes([]byte(`"x"`)) {
		t.Error("a document and its raw bytes are equal")
	}
	if idempotent.FingerprintBytes([]byte("ab"), []byte("c")) == idempotent.FingerprintBytes([]byte("a"), []byte("bc")) ||
		idempotent.FingerprintBytes([]byte("a")) == idempotent.FingerprintBytes([]byte("a"), nil) {
		t.Error("parts of different lengths are equal")
	}
}

func TestFingerprintOf(t *testing.T) {
	t.Parallel()
	type request struct {
		Amount int    `json:"amount"`
		Note   string `json:"note"`
	}
	of := func(v any) idempotent.Fingerprint {
		t.Helper()
		f, err := idempotent.FingerprintOf(v)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	same, err := idempotent.FingerprintJSON([]byte(`{"note":"<&>","amount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if of(request{1, "<&>"}) != same || of(map[string]any{"amount": 1.0, "note": "<&>"}) != same ||
		of(json.RawMessage(`{"amount":1.0,"note":"\u003c&>"}`)) != same {
		t.Error("documents with the same meaning have different fingerprints")
	}
	null, err := idempotent.FingerprintJSON([]byte("null"))
	if err != nil || of(nil) != null {
		t.Errorf("nil has not the fingerprint of null: %v", err)
	}
	if of(json.RawMessage(`"\ufffd"`)) != of("�") {
		t.Error("an escape in a document of the caller differs from its character")
	}
	if _, err := idempotent.FingerprintOf(math.NaN()); !errors.As(err, new(*json.UnsupportedValueError)) {
		t.Errorf("not a number: got error %v, want the encoder's in it", err)
	}
	if of(request{1, "�"}) == of(request{1, "?"}) {
		t.Error("a real replacement character is lost")
	}
	if of(request{1, `\ufffd`}) == of(request{1, "�"}) {
		t.Error("a string that contains an escape sequence equals the character itself")
	}
	for name, v := range map[string]any{
		"broken UTF-8":                             request{1, "\xff"},
		"broken UTF-8 in a key":                    map[string]int{"a\xfe": 1},
		"broken UTF-8 behind an escaped backslash": request{1, "\\\xff"},
		"no JSON":         make(chan int),
		"not a number":    math.NaN(),
		"broken raw JSON": json.RawMessage(`{"a":1,"a":1}`),
	} {
		if _, err := idempotent.FingerprintOf(v); !errors.As(err, new(*idempotent.InvalidKeyError)) || !strings.Contains(err.Error(), "Fingerprint") {
			t.Errorf("%s: got error %v, want InvalidKeyError about the Fingerprint", name, err)
		}
	}
}

// A fingerprint covers all of a document: two documents of 1 MB that differ in
// the last value, or byte, are two requests.
func TestLastByteOfALargeRequestCounts(t *testing.T) {
	t.Parallel()
	document := func(last string) json.RawMessage {
		return json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `","z":` + last + `}`)
	}
	g, _ := newGuard(t)
	h := idempotent.Wrap(g, idempotent.KeyFrom("import", func(json.RawMessage) (string, string) { return "acme", "import-1" }),
		func(context.Context, json.RawMessage) (string, error) { return "done", nil })
	for range 2 {
		if _, err := h(t.Context(), document("1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h(t.Context(), document("2")); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("another last byte: got error %v, want MismatchError", err)
	}
	a, b := bytes.Repeat([]byte("x"), 1<<20), bytes.Repeat([]byte("x"), 1<<20)
	b[len(b)-1] = 'y'
	if idempotent.FingerprintBytes(a) == idempotent.FingerprintBytes(b) {
		t.Error("bytes with another last byte have the same fingerprint")
	}
}

// The key of WholePayload is the content of the request: equal requests are one,
// however they are spelled, and any other request is another one.
func TestWholePayload(t *testing.T) {
	t.Parallel()
	type order struct {
		Tenant string `json:"tenant"`
		Items  []int  `json:"items"`
	}
	of := idempotent.WholePayload("order", func(o order) string { return o.Tenant })
	first, err := of(t.Context(), order{"acme", []int{1, 2}})
	if err != nil || first.Operation != "order" || first.Scope != "acme" || first.ID == "" || first.Fingerprint == (idempotent.Fingerprint{}) {
		t.Fatalf("got %+v, %v", first, err)
	}
	if again, err := of(t.Context(), order{"acme", []int{1, 2}}); err != nil || again != first {
		t.Errorf("an equal request has the key %+v, %v", again, err)
	}
	if other, err := of(t.Context(), order{"acme", []int{2, 1}}); err != nil || other.ID == first.ID || other.RecordID() == first.RecordID() {
		t.Errorf("another request has the key %+v, %v", other, err)
	}
	raw := idempotent.WholePayload("order", func(json.RawMessage) string { return idempotent.Global })
	a, errA := raw(t.Context(), json.RawMessage(`{"a": 1.0, "b": "x"}`))
	b, errB := raw(t.Context(), json.RawMessage(`{"b":"x","a":1}`))
	if errA != nil || errB != nil || a != b {
		t.Errorf("two spellings have the keys %+v, %+v, %v, %v", a, b, errA, errB)
	}
	if _, err := raw(t.Context(), json.RawMessage(`{"a":1,"a":2}`)); !errors.As(err, new(*idempotent.InvalidKeyError)) {
		t.Errorf("a request that cannot be compared: got error %v", err)
	}
}

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
