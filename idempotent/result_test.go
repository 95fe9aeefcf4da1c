// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
)

// raw is a codec that stores text unchanged.
type raw struct{}

func (raw) Name() string                 { return "raw" }
func (raw) Encode(v any) ([]byte, error) { return []byte(v.(string)), nil }
func (raw) Decode(b []byte, v any) error { *v.(*string) = string(b); return nil }

// hollow encodes every value to no bytes.
type hollow struct{ raw }

func (hollow) Encode(any) ([]byte, error) { return nil, nil }

type panicsInEncode struct{ raw }

func (panicsInEncode) Encode(any) ([]byte, error) { panic("encode") }

type panicsInDecode struct{ raw }

func (panicsInDecode) Decode([]byte, any) error { panic("decode") }

// noise returns bytes that do not compress.
func noise(n int) string {
	b := make([]byte, n)
	rand.New(rand.NewSource(1)).Read(b)
	return string(b)
}

// letters returns text of about n bytes that hardly compresses.
func letters(n int) string { return base64.StdEncoding.EncodeToString([]byte(noise(n * 3 / 4))) }

// G09: how a result is stored. One that cannot be stored does not fail the caller, and its
// replay returns ReplayUnavailableError instead of running again.
func TestResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value    any
		codec    idempotent.Codec // nil: JSON
		small    bool             // the store holds no results
		encoding string
		maxBytes int
	}{
		"small":           {value: "ch_1", encoding: "json", maxBytes: 10},
		"at the limit":    {value: strings.Repeat("x", 510), encoding: "json", maxBytes: 512},
		"compressible":    {value: strings.Repeat("x", 100_000), encoding: "json+br", maxBytes: 1000},
		"base64":          {value: letters(100_000), encoding: "json+br", maxBytes: 80_000},
		"incompressible":  {value: noise(5000), codec: raw{}, encoding: "raw", maxBytes: 5000},
		"empty":           {value: "", codec: hollow{}, encoding: "raw"},
		"not encodable":   {value: math.Inf(1), encoding: driver.EncodingOmitted},
		"codec panics":    {value: "x", codec: panicsInEncode{}, encoding: driver.EncodingOmitted},
		"store too small": {value: "x", small: true, encoding: driver.EncodingOmitted},
	} {
		f := newFixture(t, func(o *idempotent.Options) {
			if c.codec != nil {
				o.Codec = c.codec
			}
		})
		if c.small {
			f.on(driver.OpReplace, func(c *call) {
				if c.Err = driver.ErrTooLarge; len(c.StoreCall.Record.Result) == 0 {
					c.Err = nil
					c.do()
				}
			})
		}
		omitted := c.encoding == driver.EncodingOmitted
		for i := range 2 {
			got, stored, err := ask(f, c.value)
			switch {
			case omitted && i == 1:
				if !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
					t.Errorf("%s: the retry got %.20q and error %v, want ReplayUnavailableError", name, got, err)
				}
			case err != nil || got != fmt.Sprint(c.value) || stored == omitted:
				t.Errorf("%s: request %d got %.20q, stored %t, and error %v", name, i+1, got, stored, err)
			}
		}
		r, want := f.record(), "reserved completed replayed"
		if omitted {
			want = "reserved completion_failed completed replay_failed"
		}
		if kinds := f.kinds(); r.State != driver.StateCompleted || r.Encoding != c.encoding ||
			len(r.Result) > c.maxBytes || (r.Reason == driver.ReasonOmitted) != omitted || kinds != want {
			t.Errorf("%s: stored as %s (%s) in %d bytes, want %s in at most %d; events %s", name, r.Encoding, r.Reason, len(r.Result), c.encoding, c.maxBytes, kinds)
		}
	}
}

// ask sends a request whose handler returns v, a text or a number.
func ask(f *fixture, v any) (got string, stored bool, err error) {
	if text, ok := v.(string); ok {
		out, err := f.outcome(value(text))
		return out.Value, out.Stored, err
	}
	out, err := idempotent.DoOutcome(f.invocation(), f.guard, f.key, value(v))
	return fmt.Sprint(out.Value), out.Stored, err
}

// A large result whose chunks cannot be stored is omitted. The record is
// completed.
func TestResultWithoutRoomForChunks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f = f.over(newChunked(f.Store))
	f.on(driver.OpPutChunks, fail(errDown))
	large := letters(20_000)
	if got, err := f.do(value(large)); err != nil || got != large {
		t.Errorf("the caller got %d bytes, error %v", len(got), err)
	}
	if r, kinds := f.record(), f.kinds(); r.State != driver.StateCompleted || r.Encoding != driver.EncodingOmitted || kinds != "reserved completion_failed completed" {
		t.Errorf("the record is %s with encoding %q, want it completed without its result; events %s", r.State, r.Encoding, kinds)
	}
}

// A stored result that does not fit is refused, never replayed as zero values, and the
// error names the cause: to a request and to Lookup.
func TestReplayUnavailable(t *testing.T) {
	t.Parallel()
	inChunks := driver.Record{State: driver.StateCompleted, Encoding: "json", Chunks: driver.Chunks{Count: 1, Length: 3, Sum: sha256.Sum256([]byte("abc"))}}
	for name, c := range map[string]struct {
		stands driver.Record
		codec  idempotent.Codec // nil: JSON
		pieces []string         // that the store has; nil: it supports none
		want   string
	}{
		"omitted":          {done(driver.EncodingOmitted, "", ""), nil, nil, "could not be stored"},
		"another codec":    {done("xml", "<a/>", ""), nil, nil, `it was encoded as "xml" but this code decodes "json"`},
		"no encoding":      {done("", `"x"`, ""), nil, nil, `it was encoded as ""`},
		"cut off":          {done("json", `"x`, ""), nil, nil, "does not decode into a string"},
		"trailing data":    {done("json", `"x"{}`, ""), nil, nil, "does not decode into a string"},
		"another type":     {done("json", "[1]", ""), nil, nil, "does not decode into a string"},
		"not packed":       {done("json+br", `"x"`, ""), nil, nil, "result is damaged"},
		"truncated":        {done("json+br", "\x00\x00\x00\x00\x8b", ""), nil, nil, "result is damaged"},
		"a damaged Final":  {done("final", "{", ""), nil, nil, "Final error is damaged"},
		"a broken decoder": {done("raw", "x", ""), panicsInDecode{}, nil, "does not decode"},
		"another version":  {done("json", `"x"`, "2"), nil, nil, "version"},
		"no chunk store":   {inChunks, nil, nil, "this store does not"},
		"an altered chunk": {inChunks, nil, []string{"abd"}, "result was altered"},
		"omitted, beside":  {driver.Record{State: driver.StateCompleted, Encoding: driver.EncodingOmitted}, nil, []string{}, "could not be stored"},
		"no chunk":         {inChunks, nil, []string{}, "chunk of the stored"},
	} {
		f := newFixture(t)
		var store driver.Store = f.Store
		if c.pieces != nil {
			beside := newChunked(f.Store)
			for i, p := range c.pieces {
				beside.chunks[piece(f.key.RecordID(), driver.Version{1}, i)] = []byte(p)
			}
			store = beside
		}
		f = f.over(store, func(o *idempotent.Options) {
			if c.codec != nil {
				o.Codec = c.codec
			}
		})
		f.holds(c.stands)
		replayed, err := f.outcome(forbidden(t))
		out, found := idempotent.Lookup[string](t.Context(), f.guard, f.key)
		for _, err := range []error{err, found} {
			if !errors.As(err, new(*idempotent.ReplayUnavailableError)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got error %v, want one that contains %q", name, err, c.want)
			}
		}
		if kinds := f.kinds(); kinds != "replay_failed" || replayed.Value != "" || replayed.RecordID != f.key.RecordID() || out.Value != "" || out.Stored {
			t.Errorf("%s: got %+v and %+v, events %s", name, replayed, out, kinds)
		}
	}
}

// An untyped number is replayed exactly, wherever it is in a result, and every kind of
// empty value is replayed unchanged.
func TestValuesAreReplayedExactly(t *testing.T) {
	t.Parallel()
	type node struct {
		Next *node
		Any  any
	}
	const n = json.Number("9007199254740993")
	for name, row := range map[string]struct{ got, want string }{
		"map":          {replayed(t, map[string]any{"n": n}), `{"n":9007199254740993}`},
		"slice":        {replayed(t, [][]any{{n}}), "[[9007199254740993]]"},
		"array":        {replayed(t, [1]any{n}), "[9007199254740993]"},
		"pointer":      {replayed(t, &node{Next: &node{Any: n}}), `{"Next":{"Next":null,"Any":9007199254740993},"Any":null}`},
		"typed":        {replayed(t, map[int64][]int64{1: {9007199254740993}}), `{"1":[9007199254740993]}`},
		"false":        {replayed[any](t, false), "false"},
		"no text":      {replayed[any](t, ""), `""`},
		"nil":          {replayed[any](t, nil), "null"},
		"no entries":   {replayed[any](t, []any{}), "[]"},
		"no members":   {replayed[any](t, map[string]any{}), "{}"},
		"a zero":       {replayed[any](t, 0), "0"},
		"a nil number": {replayed[*int](t, nil), "null"},
	} {
		if row.got != row.want {
			t.Errorf("%s: replayed as %s, want %s", name, row.got, row.want)
		}
	}
}

// replayed returns the JSON of a value after it was stored and replayed.
func replayed[T any](t *testing.T, v T) string {
	t.Helper()
	_, again := twice(t, v)
	return string(encoded(t, again))
}

// Lookup returns what Do would have met: the outcome, or the error that says why
// it is missing. It reads the record once, and neither writes nor reports anything but a
// failure of the store.
func TestLookup(t *testing.T) {
	t.Parallel()
	var (
		kept    = done("json", `"ch_1"`, "")
		expired = kept
		another = kept
	)
	kept.Expires, kept.Ref = start.Add(time.Hour), "orders/1"
	expired.Expires, another.Fingerprint = start, idempotent.FingerprintBytes()
	for name, c := range map[string]struct {
		stands *driver.Record
		key    func(*idempotent.Key)
		get    func(*call)
		option func(*idempotent.Operation)
		value  string
		want   error
		says   string
		calls  string
	}{
		"completed":             {stands: &kept, value: "ch_1", calls: "get"},
		"without a fingerprint": {stands: &kept, key: func(k *idempotent.Key) { k.Fingerprint = idempotent.Fingerprint{} }, value: "ch_1", calls: "get"},
		"final": {
			stands: &driver.Record{State: driver.StateCompleted, Encoding: "final", Result: []byte(`{"code":"declined"}`)},
			want:   new(idempotent.FinalError), calls: "get",
		},
		"new":                     {want: idempotent.ErrNoRecord, calls: "get"},
		"retryable":               {stands: &driver.Record{State: driver.StateRetryable, Ref: "orders/1"}, want: idempotent.ErrNoRecord, says: "ended without one", calls: "get"},
		"unknown":                 {stands: unknownUntil(0), want: new(idempotent.UnresolvedError), calls: "get"},
		"running":                 {stands: running(time.Hour), want: new(idempotent.InProgressError), calls: "get"},
		"its lease has ended":     {stands: running(0), want: new(idempotent.UnresolvedError), calls: "get"},
		"its retention has ended": {stands: &expired, want: idempotent.ErrNoRecord, calls: "get"},
		"another payload":         {stands: &another, want: new(idempotent.MismatchError), calls: "get"},
		"an unknown state": {
			stands: &driver.Record{State: 9}, key: func(k *idempotent.Key) { k.Fingerprint = idempotent.Fingerprint{} },
			want: new(idempotent.StoreError), calls: "get",
		},
		"the store is down": {get: fail(errDown), want: new(idempotent.StoreError), calls: "get"},
		"no id":             {key: func(k *idempotent.Key) { k.ID = "" }, want: new(idempotent.InvalidKeyError), says: "no idempotency key"},
		"no scope":          {key: func(k *idempotent.Key) { k.Scope = "" }, want: new(idempotent.InvalidKeyError)},
		"an invalid option": {option: func(o *idempotent.Operation) { o.Retention = -1 }, says: "Retention"},
		"another version": {
			stands: &kept, option: func(o *idempotent.Operation) { o.ResultVersion = "2" },
			want: new(idempotent.ReplayUnavailableError), calls: "get",
		},
		"another codec": {
			stands: &kept, option: func(o *idempotent.Operation) { o.Codec = raw{} },
			want: new(idempotent.ReplayUnavailableError), calls: "get",
		},
	} {
		f := newFixture(t)
		if c.stands != nil {
			f.holds(*c.stands)
		}
		if c.key != nil {
			c.key(&f.key)
		}
		f.on(driver.OpGet, c.get)
		out, err := idempotent.Lookup[string](t.Context(), f.guard, f.key, func(o *idempotent.Operation) {
			if c.option != nil {
				c.option(o)
			}
		})
		want := idempotent.Outcome[string]{RecordID: f.key.RecordID()}
		if c.stands != nil && c.stands != &expired {
			want.State, want.Ref = c.stands.State, map[bool]string{true: c.stands.Ref}[name == "retryable"]
		}
		switch {
		case c.value != "":
			want.Value, want.Replayed, want.Stored, want.Expires, want.Ref = c.value, true, true, kept.Expires, kept.Ref
		case name == "final":
			want.Replayed, want.Stored = true, true
		case c.calls == "":
			want = out
		}
		if refused := c.want != nil || c.says != ""; out != want || (err != nil) != refused ||
			c.want != nil && !errtype.Matches(err, c.want) || refused && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %+v, error %v; want %+v, %v", name, out, err, want, c.want)
		}
		if calls := strings.Join(f.calls, " "); calls != c.calls || len(f.events.Events()) != f.events.Count(event.StoreError) ||
			(c.get != nil) != (f.events.Count(event.StoreError) > 0) {
			t.Errorf("%s: calls %s, events %s", name, calls, f.events.Kinds())
		}
	}
}

// Lookup decodes with the options of the operation, also a large result that is stored
// beside its record.
func TestLookupDecodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := newChunked(f.Store)
	f = f.over(store)
	declared := func(o *idempotent.Operation) { o.Codec, o.ResultVersion = raw{}, "2" }
	large := letters(100_000)
	if _, err := f.do(value(large), declared); err != nil {
		t.Fatal(err)
	}
	if out, err := idempotent.Lookup[string](t.Context(), f.guard, f.key, declared); err != nil || out.Value != large || len(store.chunks) == 0 {
		t.Errorf("got %d bytes of %d chunks, error %v", len(out.Value), len(store.chunks), err)
	}
}

// twice returns what the first caller and a replay get.
func twice[T any](t *testing.T, v T) (first, again T) {
	t.Helper()
	f := newFixture(t)
	for _, out := range []*T{&first, &again} {
		var err error
		if *out, err = idempotent.Do(t.Context(), f.guard, f.key, func(context.Context) (T, error) { return v, nil }); err != nil {
			t.Fatalf("%T: %v (%v)", v, err, f.events.Kinds())
		}
	}
	return first, again
}
