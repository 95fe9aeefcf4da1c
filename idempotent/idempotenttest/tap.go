package idempotenttest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// tap is a store with a hand on the line: a scenario decides what happens
// between a caller and the store, where [Faults] have no word for it. A nil
// hook passes the call through. The history notes here which claims the guard
// was told that it holds.
type tap struct {
	idempotent.Store
	by        *worker
	onInsert  func(write func() (*idempotent.Record, error)) (*idempotent.Record, error)
	onReplace func(r idempotent.Record, write func() (*idempotent.Record, error)) (*idempotent.Record, error)
	onGet     func(read func() (*idempotent.Record, error)) (*idempotent.Record, error)
	calls     atomic.Int32
}

func (s *tap) Insert(ctx context.Context, r idempotent.Record, now time.Time) (*idempotent.Record, error) {
	s.calls.Add(1)
	write := func() (*idempotent.Record, error) { return s.Store.Insert(ctx, r, now) }
	return s.noted(r, func() (*idempotent.Record, error) {
		if s.onInsert != nil {
			return s.onInsert(write)
		}
		return write()
	})
}

func (s *tap) Replace(ctx context.Context, r idempotent.Record, was idempotent.Version) (*idempotent.Record, error) {
	s.calls.Add(1)
	write := func() (*idempotent.Record, error) { return s.Store.Replace(ctx, r, was) }
	return s.noted(r, func() (*idempotent.Record, error) {
		if s.onReplace != nil {
			return s.onReplace(r, write)
		}
		return write()
	})
}

// noted makes a write and notes what the guard is told of it, if it is a claim.
func (s *tap) noted(r idempotent.Record, write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
	if r.State != idempotent.StateInProgress {
		return write()
	}
	held := s.by.history.claims(s.by, r)
	met, err := write()
	if err == nil && (met == nil || met.Version == r.Version) {
		held()
	}
	return met, err
}

func (s *tap) Get(ctx context.Context, id idempotent.RecordID) (*idempotent.Record, error) {
	s.calls.Add(1)
	read := func() (*idempotent.Record, error) { return s.Store.Get(ctx, id) }
	if s.onGet != nil {
		return s.onGet(read)
	}
	return read()
}

// chunkTap is a tap on a store that keeps large results beside its records.
type chunkTap struct {
	*tap
	chunks idempotent.ChunkStore
	onGet  func(read func() ([]byte, error)) ([]byte, error)
}

func (s *chunkTap) PutChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, data []byte, expires time.Time) (int, error) {
	return s.chunks.PutChunks(ctx, id, v, data, expires)
}

func (s *chunkTap) GetChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, count int) ([]byte, error) {
	read := func() ([]byte, error) { return s.chunks.GetChunks(ctx, id, v, count) }
	if s.onGet != nil {
		return s.onGet(read)
	}
	return read()
}
