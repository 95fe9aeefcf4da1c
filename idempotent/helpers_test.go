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
		if e.Kind != event.RequestEnded {
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

func charged(context.Context) (string, error) { return "ch_1", nil }

// watched is a store that records its calls. A hook can answer instead of the
// store. It supports one request at a time.
type watched struct {
	driver.Store
	calls   []string // "insert", "replace" and "get", in order
	insert  func(r driver.Record) (*driver.Record, error)
	replace func(ctx context.Context, r driver.Record) (*driver.Record, error)
	get     func() (*driver.Record, error)
}

func watch() *watched { return &watched{Store: memstore.New()} }

func (s *watched) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	s.calls = append(s.calls, "insert")
	if s.insert != nil {
		return s.insert(r)
	}
	return s.Store.Insert(ctx, r, now)
}

func (s *watched) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	s.calls = append(s.calls, "replace")
	if s.replace != nil {
		return s.replace(ctx, r)
	}
	return s.Store.Replace(ctx, r, was)
}

func (s *watched) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	s.calls = append(s.calls, "get")
	if s.get != nil {
		return s.get()
	}
	return s.Store.Get(ctx, id)
}

// holds inserts a record of key into the store, as written by another party.
func (s *watched) holds(t *testing.T, key idempotent.Key, r driver.Record) {
	t.Helper()
	r.ID, r.Fingerprint, r.Version = key.RecordID(), idempotenttest.StoredFingerprint(key), driver.Version{1}
	if met, err := s.Store.Insert(t.Context(), r, time.Unix(0, 0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
}

// record returns the current record of key.
func (s *watched) record(t *testing.T, key idempotent.Key) *driver.Record {
	t.Helper()
	r, err := s.Store.Get(t.Context(), key.RecordID())
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
	if met, err := s.Store.Replace(t.Context(), *r, was); met != nil || err != nil {
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
		return s.Store.Replace(ctx, r, s.record(t, key).Version)
	}
	return ids
}

func wantCalls(t *testing.T, s *watched, want ...string) {
	t.Helper()
	if !slices.Equal(s.calls, want) {
		t.Errorf("got store calls %v, want %v", s.calls, want)
	}
}
