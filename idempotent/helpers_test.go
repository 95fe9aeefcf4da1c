// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// newGuard returns a guard over a new memory store and the recorder of its
// events, except that a request ended: see TestRequestEnded.
func newGuard(t *testing.T, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	return newGuardOver(t, memstore.New(), optFns...)
}

func newGuardOver(t *testing.T, s driver.Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	events := &idempotenttest.Recorder{}
	g, err := idempotent.New(s, append([]func(*idempotent.Options){func(o *idempotent.Options) {
		o.Observer, o.Logger = aboutRecords(events), slog.New(slog.DiscardHandler)
	}}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g, events
}

// aboutRecords returns an observer that passes the events about records to o.
func aboutRecords(o event.Observer) event.Observer {
	return event.ObserverFunc(func(ctx context.Context, e event.Event) {
		if e.Kind != event.RequestEnded && e.Kind != event.NoOutcome {
			o.Observe(ctx, e)
		}
	})
}

// newKey returns a key that no other test uses.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "charge",
		Scope:       "acme",
		ID:          rand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

// quiet is a logger for examples.
var quiet = slog.New(slog.DiscardHandler)

// chunked is a memory store that stores large results beside their records.
type chunked struct {
	*memstore.Store
	mu     sync.Mutex
	chunks map[string][]byte
}

func newChunked() *chunked {
	return &chunked{Store: memstore.New(), chunks: map[string][]byte{}}
}

// pieceSize is small, so that a result has several pieces.
const pieceSize = 10_000

func piece(id idempotent.RecordID, v driver.Version, i int) string {
	return fmt.Sprintf("%s#%x#%d", id, v, i)
}

func (c *chunked) PutChunks(_ context.Context, id idempotent.RecordID, v driver.Version, data []byte, _ time.Time) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for part := range slices.Chunk(data, pieceSize) {
		c.chunks[piece(id, v, count)] = slices.Clone(part)
		count++
	}
	return count, nil
}

func (c *chunked) GetChunks(_ context.Context, id idempotent.RecordID, v driver.Version, count int) (data []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range count {
		part, ok := c.chunks[piece(id, v, i)]
		if !ok {
			return nil, idempotent.ErrNoRecord
		}
		data = append(data, part...)
	}
	return data, nil
}

// answering returns s with a function that can answer calls of op instead of s: if it
// returns neither a record nor an error, s gets the call.
func answering(s driver.Store, op driver.Op, answer func(driver.Record) (*driver.Record, error)) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == op {
			c.Current, c.Err = answer(c.Record)
		}
		if c.Current == nil && c.Err == nil {
			c.Do(ctx)
		}
	})
}

// failing returns s, whose calls of op fail with err.
func failing(s driver.Store, op driver.Op, err error) driver.Store {
	return answering(s, op, func(driver.Record) (*driver.Record, error) { return nil, err })
}

// small returns s, which holds no result of more than limit bytes.
func small(s driver.Store, limit int) driver.Store {
	return answering(s, driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
		if len(r.Result) > limit {
			return nil, fmt.Errorf("small: %w", driver.ErrTooLarge)
		}
		return nil, nil
	})
}

// fixed sets the clock to a fixed time.
func fixed(now time.Time) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Now = func() time.Time { return now } }
}

// now returns the current time as records store it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// forbidden returns a handler that must not be entered.
func forbidden(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("the handler was entered")
		return "", nil
	}
}

// watched is a store that records its calls. A hook can answer instead of the
// store. It supports one request at a time.
type watched struct {
	driver.Store              // with the hooks
	inner        driver.Store // without
	calls        []string     // "insert", "replace" and "get", in order
	insert       func(r driver.Record) (*driver.Record, error)
	replace      func(ctx context.Context, r driver.Record) (*driver.Record, error)
	get          func() (*driver.Record, error)
}

func watch() *watched { return watchOver(memstore.New()) }

func watchOver(inner driver.Store) *watched {
	s := &watched{inner: inner}
	s.Store = idempotenttest.Intercept(inner, s.hook)
	return s
}

func (s *watched) hook(ctx context.Context, c *idempotenttest.StoreCall) {
	switch s.calls = append(s.calls, string(c.Op)); {
	case c.Op == driver.OpInsert && s.insert != nil:
		c.Current, c.Err = s.insert(c.Record)
	case c.Op == driver.OpReplace && s.replace != nil:
		c.Current, c.Err = s.replace(ctx, c.Record)
	case c.Op == driver.OpGet && s.get != nil:
		c.Current, c.Err = s.get()
	default:
		c.Do(ctx)
	}
}

// holds inserts a record of key into the store, as written by another party.
func (s *watched) holds(t *testing.T, key idempotent.Key, r driver.Record) {
	t.Helper()
	r.ID, r.Fingerprint, r.Version = key.RecordID(), idempotenttest.StoredFingerprint(key), driver.Version{1}
	if met, err := s.inner.Insert(t.Context(), r, time.Unix(0, 0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
}

// record returns the current record of key.
func (s *watched) record(t *testing.T, key idempotent.Key) *driver.Record {
	t.Helper()
	r, err := s.inner.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// change writes the record of key as another party would, and returns it.
func (s *watched) change(t *testing.T, key idempotent.Key, f func(*driver.Record)) *driver.Record {
	t.Helper()
	r := s.record(t, key)
	was := r.Version
	r.Version = driver.Version{0xff}
	f(r)
	if met, err := s.inner.Replace(t.Context(), *r, was); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return r
}

// interrupted makes another party write the record of key just before the next
// Replace, once, and returns the write ids of all Replace calls.
func (s *watched) interrupted(t *testing.T, key idempotent.Key, f func(*driver.Record)) (ids *[]driver.Version) {
	ids = &[]driver.Version{}
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		*ids = append(*ids, r.Version)
		if len(*ids) == 1 {
			return s.change(t, key, f), nil
		}
		return s.inner.Replace(ctx, r, s.record(t, key).Version)
	}
	return ids
}

func wantCalls(t *testing.T, s *watched, want ...string) {
	t.Helper()
	if !slices.Equal(s.calls, want) {
		t.Errorf("got store calls %v, want %v", s.calls, want)
	}
}

// do runs a handler of steps over s.
func (s *watched) do(t *testing.T, key idempotent.Key, h func(context.Context) (string, error), optFns ...func(*idempotent.Options)) (string, error) {
	t.Helper()
	g, _ := newGuardOver(t, s, append([]func(*idempotent.Options){resume("a", "b")}, optFns...)...)
	return idempotent.Do(t.Context(), g, key, h)
}

// stranded is a store with records whose owners have died.
type stranded struct {
	*memstore.Store
	clock  *idempotenttest.Clock
	guard  *idempotent.Guard
	events *idempotenttest.Recorder
}

func newStranded(t *testing.T, optFns ...func(*idempotent.Options)) *stranded {
	t.Helper()
	s := &stranded{Store: memstore.New(), clock: &idempotenttest.Clock{}}
	s.guard, s.events = newGuardOver(t, s.Store, append(optFns, func(o *idempotent.Options) { o.Now = s.clock.Now })...)
	return s
}

// leave runs work under a new key and then restores the record as it was at the
// last call of died, as if the process had died there.
func (s *stranded) leave(t *testing.T, work func(ctx context.Context, died func())) idempotent.Key {
	t.Helper()
	key := newKey()
	var left *driver.Record
	_, _ = idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, func(ctx context.Context) (string, error) {
		died := func() { left = record(t, s, key) }
		died()
		work(ctx, died)
		return "", nil
	})
	if met, err := s.Replace(t.Context(), *left, record(t, s, key).Version); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return key
}

// reconcile reconciles in a bubble, in which workers that wait without end fail at once.
func (s *stranded) reconcile(t *testing.T, resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions)) (report idempotent.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if report, err = idempotent.ReconcileDue(t.Context(), s.guard, resolve, optFns...); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// unknowns leaves n records unknown and due, and returns the first one's key.
func (s *stranded) unknowns(t *testing.T, n int) (key idempotent.Key) {
	t.Helper()
	for range n {
		key = s.leave(t, atOnce)
	}
	s.clock.Advance(time.Minute)
	s.reconcile(t, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true })
	s.clock.Advance(time.Hour)
	return key
}
func atOnce(context.Context, func()) {}
