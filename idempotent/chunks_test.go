package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// A store without chunk support cannot replay a record with chunks, which another
// store has written.
func TestChunksWithoutAChunkStore(t *testing.T) {
	t.Parallel()
	key := newKey()
	s := holding(t, driver.Record{
		ID: key.RecordID(), State: driver.StateCompleted, Fingerprint: key.Fingerprint,
		Encoding: "json", Chunks: driver.Chunks{Count: 2, Length: 10},
	})
	g, _ := newGuardOver(t, s)
	_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", nil })
	if !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
		t.Errorf("got error %v, want ReplayUnavailableError", err)
	}
}

// fullDisk fails to store chunks.
type fullDisk struct{ *chunked }

var errFullDisk = errors.New("disk full")

func (fullDisk) PutChunks(context.Context, idempotent.RecordID, driver.Version, []byte, time.Time) (int, error) {
	return 0, errFullDisk
}

// A large resolution whose chunks cannot be stored is not written at all, so that
// the evidence can be given again.
func TestResolveWithoutRoomForChunks(t *testing.T) {
	t.Parallel()
	s := fullDisk{newChunked()}
	g, events := newGuardOver(t, s)
	key := newKey()
	if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", errors.New("no reply") }); err == nil {
		t.Fatal("got no error")
	}
	err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved(letters(20_000)))
	var failed *idempotent.StoreError
	if !errors.As(err, &failed) || failed.Op != driver.OpPutChunks || failed.Err != errFullDisk {
		t.Errorf("got error %v, want StoreError of put chunks for the full disk", err)
	}
	if err != nil && strings.Count(err.Error(), "disk full") != 1 || events.Count(event.StoreError) != 1 {
		t.Errorf("error %q, events %s; want the failure named once, and one event", err, events.Kinds())
	}
	if r, err := s.Get(t.Context(), key.RecordID()); err != nil || r.State != driver.StateUnknown {
		t.Errorf("the record is %+v (%v), want it still unknown", r, err)
	}
}

// A large result whose chunks cannot be stored is omitted. The record is
// completed.
func TestResultWithoutRoomForChunks(t *testing.T) {
	t.Parallel()
	s := fullDisk{newChunked()}
	g, events := newGuardOver(t, s)
	key, want := newKey(), letters(20_000)
	if got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return want, nil }); err != nil || got != want {
		t.Errorf("the caller got %d bytes, error %v", len(got), err)
	}
	if r := record(t, s, key); r.State != driver.StateCompleted || r.Encoding != driver.EncodingOmitted {
		t.Errorf("the record is %s with encoding %q, want it completed without its result", r.State, r.Encoding)
	}
	if n := events.Count(event.CompletionFailed); n != 1 {
		t.Errorf("%d events of a result that could not be stored, want 1", n)
	}
	if _, err := idempotent.Do(t.Context(), g, key, forbidden(t)); !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
		t.Errorf("a retry gets error %v, want ReplayUnavailableError", err)
	}
}

// Without a deadline to divide, the chunks have as much time as the record.
func TestLargeResultOfALongLease(t *testing.T) {
	t.Parallel()
	g, _ := newGuardOver(t, newChunked())
	key, want := newKey(), noise(50_000)
	for range 2 {
		got, err := idempotent.Do(context.Background(), g, key, func(context.Context) (string, error) { return want, nil }, func(o *idempotent.Options) { o.Codec = raw{} })
		if err != nil || got != want {
			t.Errorf("got %d bytes and error %v", len(got), err)
		}
	}
}

// An untyped number is replayed exactly, wherever it is in a result.
func TestUntypedNumbersAreExact(t *testing.T) {
	t.Parallel()
	type node struct {
		Next *node
		Any  any
	}
	const n = json.Number("9007199254740993")
	for name, row := range map[string]struct{ got, want string }{
		"map":     {replayed(t, map[string]any{"n": n}), `{"n":9007199254740993}`},
		"slice":   {replayed(t, [][]any{{n}}), "[[9007199254740993]]"},
		"array":   {replayed(t, [1]any{n}), "[9007199254740993]"},
		"pointer": {replayed(t, &node{Next: &node{Any: n}}), `{"Next":{"Next":null,"Any":9007199254740993},"Any":null}`},
		"typed":   {replayed(t, map[int64][]int64{1: {9007199254740993}}), `{"1":[9007199254740993]}`},
	} {
		if row.got != row.want {
			t.Errorf("%s: replayed as %s, want %s", name, row.got, row.want)
		}
	}
}

// replayed returns the JSON of a value after it was stored and replayed.
func replayed[T any](t *testing.T, v T) string {
	t.Helper()
	g, key := mustGuard(t), newKey()
	var got T
	for range 2 {
		var err error
		if got, err = idempotent.Do(t.Context(), g, key, func(context.Context) (T, error) { return v, nil }); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
