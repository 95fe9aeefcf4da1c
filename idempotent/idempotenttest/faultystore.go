package idempotenttest

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Store returns s with the planned faults in its calls, by the names OpInsert,
// OpReplace, OpGet, OpPutChunks and OpGetChunks. The result is a
// [driver.ChunkStore] if and only if s is one. Several stores can share one
// Faults: it counts their calls together.
//
// A call that is lost or refused fails with [ErrInjected]. ErrNoRecord and
// ErrTooLarge are replies and can be lost. A call that fails with any other
// error has no reply to lose.
func (f *Faults) Store(s driver.Store) driver.Store {
	records := &faultyStore{f, s}
	if chunks, ok := s.(driver.ChunkStore); ok {
		return &faultyChunkStore{records, chunks}
	}
	return records
}

type faultyStore struct {
	faults *Faults
	store  driver.Store
}

type faultyChunkStore struct {
	*faultyStore
	chunks driver.ChunkStore
}

func (s *faultyStore) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return call(ctx, s.faults, OpInsert, func() (*driver.Record, error) { return s.store.Insert(ctx, r, now) })
}

func (s *faultyStore) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return call(ctx, s.faults, OpReplace, func() (*driver.Record, error) { return s.store.Replace(ctx, r, was) })
}

func (s *faultyStore) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	return call(ctx, s.faults, OpGet, func() (*driver.Record, error) { return s.store.Get(ctx, id) })
}

func (s *faultyChunkStore) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	return call(ctx, s.faults, OpPutChunks, func() (int, error) { return s.chunks.PutChunks(ctx, id, v, data, expires) })
}

func (s *faultyChunkStore) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	return call(ctx, s.faults, OpGetChunks, func() ([]byte, error) { return s.chunks.GetChunks(ctx, id, v, count) })
}

// call makes a call to a store.
func call[T any](ctx context.Context, f *Faults, op Op, make func() (T, error)) (T, error) {
	return through(ctx, f, op, line[T]{
		make: make,
		heard: func(err error) bool {
			return errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge)
		},
		lose:   func(T) {},
		refuse: func(fault Fault) (none T, err error) { return none, refused(fault) },
	})
}
