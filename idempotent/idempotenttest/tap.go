package idempotenttest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// tap is a store whose calls a scenario can change, for cases that [Faults]
// does not cover. A nil hook passes the call through. It also records in the
// history which claims were acknowledged to the guard.
type tap struct {
	driver.Store
	by        *worker
	onInsert  func(write func() (*driver.Record, error)) (*driver.Record, error)
	onReplace func(r driver.Record, write func() (*driver.Record, error)) (*driver.Record, error)
	onGet     func(read func() (*driver.Record, error)) (*driver.Record, error)
	calls     atomic.Int32
}

func (s *tap) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	s.calls.Add(1)
	write := func() (*driver.Record, error) { return s.Store.Insert(ctx, r, now) }
	return s.noted(r, func() (*driver.Record, error) {
		if s.onInsert != nil {
			return s.onInsert(write)
		}
		return write()
	})
}

func (s *tap) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	s.calls.Add(1)
	write := func() (*driver.Record, error) { return s.Store.Replace(ctx, r, was) }
	return s.noted(r, func() (*driver.Record, error) {
		if s.onReplace != nil {
			return s.onReplace(r, write)
		}
		return write()
	})
}

// noted makes a write and, if it is a claim, records the reply that the guard
// gets.
func (s *tap) noted(r driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
	if r.State != driver.StateInProgress {
		return write()
	}
	held := s.by.history.claims(s.by, r)
	met, err := write()
	if err == nil && (met == nil || met.Version == r.Version) {
		held()
	}
	return met, err
}

func (s *tap) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	s.calls.Add(1)
	read := func() (*driver.Record, error) { return s.Store.Get(ctx, id) }
	if s.onGet != nil {
		return s.onGet(read)
	}
	return read()
}

// chunkTap is a tap on a store that stores large results beside its records.
type chunkTap struct {
	*tap
	chunks driver.ChunkStore
	onGet  func(read func() ([]byte, error)) ([]byte, error)
	puts   []chunkPut
}

// chunkPut is a result that was put beside a record.
type chunkPut struct {
	version driver.Version
	expires time.Time
}

func (s *chunkTap) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	s.puts = append(s.puts, chunkPut{v, expires})
	return s.chunks.PutChunks(ctx, id, v, data, expires)
}

func (s *chunkTap) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	read := func() ([]byte, error) { return s.chunks.GetChunks(ctx, id, v, count) }
	if s.onGet != nil {
		return s.onGet(read)
	}
	return read()
}
