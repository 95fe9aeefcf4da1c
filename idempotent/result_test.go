// SPDX-License-Identifier: Apache-2.0

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
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// The error of a failed replay names its cause.
func TestReplayUnavailableSaysWhy(t *testing.T) {
	t.Parallel()
	inChunks := driver.Record{State: driver.StateCompleted, Encoding: "json", Chunks: driver.Chunks{Count: 1, Length: 3}}
	for want, row := range map[string]struct {
		store  driver.Store
		record driver.Record
	}{
		"could not be stored":      {memstore.New(), driver.Record{State: driver.StateCompleted, Encoding: driver.EncodingOmitted}},
		"result is damaged":        {memstore.New(), driver.Record{State: driver.StateCompleted, Encoding: "json+br", Result: []byte("no frame")}},
		"this store does not":      {memstore.New(), inChunks},
		"chunk of the stored":      {newChunked(), inChunks},
		"Final error is damaged":   {memstore.New(), driver.Record{State: driver.StateCompleted, Encoding: driver.EncodingFinal, Result: []byte("{")}},
		"does not decode into a *": {memstore.New(), driver.Record{State: driver.StateCompleted, Encoding: "json", Result: []byte("{")}},
	} {
		s, key := watchOver(row.store), newKey()
		s.holds(t, key, row.record)
		g, _ := newGuardOver(t, row.store)
		_, replayed := idempotent.Do(t.Context(), g, key, forbidden(t))
		_, found := idempotent.Lookup[int](t.Context(), g, key)
		for _, err := range []error{replayed, found} {
			if !errors.As(err, new(*idempotent.ReplayUnavailableError)) || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want one that contains %q", err, want)
			}
		}
	}
}

// FM63: a result whose chunks were changed after completion is not replayed, even
// if only its last byte differs and it would decode.
func TestAlteredChunksAreNotReplayed(t *testing.T) {
	t.Parallel()
	s := newChunked()
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Codec = raw{} })
	key := newKey()
	if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return noise(2 * pieceSize), nil }); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(t.Context(), key.RecordID())
	if err != nil || r.Chunks.Count != 2 || r.Encoding != "raw" {
		t.Fatalf("the record is %+v (%v): the test proves nothing", r, err)
	}
	last := piece(r.ID, r.Version, 1)
	altered := []byte(string(s.chunks[last]))
	altered[len(altered)-1] ^= 1
	s.chunks[last] = altered
	got, err := idempotent.Do(t.Context(), g, key, forbidden(t))
	if !errors.As(err, new(*idempotent.ReplayUnavailableError)) || !strings.Contains(err.Error(), "altered") || got != "" {
		t.Errorf("got %d bytes and error %v, want ReplayUnavailableError", len(got), err)
	}
}

// counted is a store that counts how often chunks are fetched.
type counted struct {
	*chunked
	fetched int
}

func (c *counted) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	c.fetched++
	return c.chunked.GetChunks(ctx, id, v, count)
}

// FM38: a large result is cached with its content, both by the request that
// stored it and by one that read it.
func TestLargeResultsAreCachedWhole(t *testing.T) {
	t.Parallel()
	options := func(o *idempotent.Options) { o.Codec, o.CacheEntries = raw{}, 8 }
	s, key, large := &counted{chunked: newChunked()}, newKey(), noise(9000)
	g, _ := newGuardOver(t, s, options)
	other, _ := newGuardOver(t, s, options)
	for _, row := range []struct {
		guard *idempotent.Guard
		fetch int // so far
	}{{g, 0}, {g, 0}, {other, 1}, {other, 1}} {
		got, err := idempotent.Do(t.Context(), row.guard, key, func(context.Context) (string, error) { return large, nil })
		if err != nil || got != large || s.fetched != row.fetch {
			t.Errorf("got %d bytes and error %v; fetched %d times, want %d", len(got), err, s.fetched, row.fetch)
		}
	}
}

// hollow encodes every value to no bytes.
type hollow struct{ raw }

func (hollow) Encode(any) ([]byte, error) { return nil, nil }

// An empty result is a result.
func TestEmptyResultIsReplayed(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, func(o *idempotent.Options) { o.Codec = hollow{} })
	key := newKey()
	for range 2 {
		if got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", nil }); got != "" || err != nil {
			t.Errorf("got %q and error %v", got, err)
		}
	}
}

// A codec that panics on a stored result makes the replay unavailable.
func TestPanickingDecoder(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, func(o *idempotent.Options) { o.Codec = fragile{} })
	key := newKey()
	if _, err := idempotent.Do(t.Context(), g, key, charged); err != nil {
		t.Fatal(err)
	}
	if _, err := idempotent.Do(t.Context(), g, key, forbidden(t)); !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
		t.Errorf("got error %v, want ReplayUnavailableError", err)
	}
}

type fragile struct{ raw }

func (fragile) Decode([]byte, any) error { panic("no") }

// A Final error has the same text for the first caller and for a replay.
func TestFinalTextsAreUTF8(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	key, texts := newKey(), [2]string{}
	for i := range texts {
		_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 0, idempotent.Final("no\xff", "caf\xe9") })
		var final *idempotent.FinalError
		if !errors.As(err, &final) {
			t.Fatal(err)
		}
		texts[i] = final.Code + "/" + final.Message
	}
	if want := "no\uFFFD/caf\uFFFD"; texts != [2]string{want, want} {
		t.Errorf("the first caller gets %q, a replay %q", texts[0], texts[1])
	}
}

// A store without chunk support cannot replay a record with chunks, which another
// store has written.
func TestChunksWithoutAChunkStore(t *testing.T) {
	t.Parallel()
	key := newKey()
	s := holding(t, driver.Record{
		ID: key.RecordID(), State: driver.StateCompleted, Fingerprint: idempotenttest.StoredFingerprint(key),
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
