package idempotent_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
)

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
	r.ID, r.Fingerprint, r.Version = key.RecordID(), key.Fingerprint, driver.Version{1}
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
