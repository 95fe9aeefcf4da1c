package idempotent_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/errtype"
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
func TestFM52_KeysNeverCollide(t *testing.T) {
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

// KeyHash of an invalid id returns the text after its last #, at most 12
// characters.
func TestKeyHashOfAnything(t *testing.T) {
	t.Parallel()
	for id, want := range map[idempotent.RecordID]string{"": "", "charge": "", "charge#": "", "charge#ab": "ab", "#abcdefghijklmn": "abcdefghijkl", "a#b#cd": "cd"} {
		if got := id.KeyHash(); got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
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
		{"no id", idempotent.Key{Operation: "o", Scope: "s", Fingerprint: fp}, new(idempotent.NoKeyError), "AllowMissingKey"},
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
