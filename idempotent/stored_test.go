package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A tool gets the bytes that the codec wrote, in whatever form they are stored.
func TestStored(t *testing.T) {
	t.Parallel()
	s := newChunked()
	g, _ := newGuardOver(t, s)
	large := letters(50_000)
	for name, row := range map[string]struct {
		value    any
		err      error
		encoding string
		want     string
	}{
		"small":      {"ch_1", nil, "json", `"ch_1"`},
		"compressed": {strings.Repeat("x", 3000), nil, "json", `"` + strings.Repeat("x", 3000) + `"`},
		"large":      {large, nil, "json", string(encoded(t, large))},
		"final":      {nil, idempotent.Final("declined", "no"), "final", `{"code":"declined","message":"no"}`},
	} {
		key := newKey()
		if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (any, error) { return row.value, row.err }); !errors.Is(err, row.err) {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		if name == "large" && (r.Chunks.Count == 0 || r.Result != nil) || name == "compressed" && !strings.HasSuffix(r.Encoding, "+gzip") {
			t.Errorf("%s: stored as %q with %d chunks: the test proves nothing", name, r.Encoding, r.Chunks.Count)
		}
		encoding, data, err := g.StoredOutcome(t.Context(), *r)
		if err != nil || encoding != row.encoding || string(data) != row.want {
			t.Errorf("%s: got %q, %.60q, %v", name, encoding, data, err)
		}
		if name == "large" {
			altered := *r
			altered.Chunks.Sum[0]++
			if _, data, err := g.StoredOutcome(t.Context(), altered); data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
				t.Errorf("altered chunks: %d bytes, %v", len(data), err)
			}
		}
	}
}

func TestStored_Unavailable(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, r := range map[string]driver.Record{
		"unknown":   {State: driver.StateUnknown},
		"omitted":   {State: driver.StateCompleted, Encoding: driver.EncodingOmitted},
		"damaged":   {State: driver.StateCompleted, Encoding: "json+gzip", Result: []byte("no gzip")},
		"in chunks": {State: driver.StateCompleted, Encoding: "json", Chunks: driver.Chunks{Count: 1, Length: 1}},
	} {
		r.ID = newKey().RecordID()
		if encoding, data, err := g.StoredOutcome(t.Context(), r); encoding != "" || data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
			t.Errorf("%s: got %q, %q, %v", name, encoding, data, err)
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
