package idempotenttest

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Store returns s with calls that go wrong as planned, by the names OpInsert,
// OpReplace, OpGet, OpPutChunks and OpGetChunks. It is an
// [idempotent.ChunkStore] exactly if s is one. Several stores may be made from
// one Faults: their calls are counted together.
//
// A call that is lost or refused fails with [ErrInjected]. ErrNoRecord and
// ErrTooLarge are replies, and can be lost like others; a call that fails
// otherwise has none to lose.
func (f *Faults) Store(s idempotent.Store) idempotent.Store {
	records := &faultyStore{f, s}
	if chunks, ok := s.(idempotent.ChunkStore); ok {
		return &faultyChunkStore{records, chunks}
	}
	return records
}

type faultyStore struct {
	faults *Faults
	store  idempotent.Store
}

type faultyChunkStore struct {
	*faultyStore
	chunks idempotent.ChunkStore
}

func (s *faultyStore) Insert(ctx context.Context, r idempotent.Record, now time.Time) (*idempotent.Record, error) {
	return call(ctx, s.faults, OpInsert, func() (*idempotent.Record, error) { return s.store.Insert(ctx, r, now) })
}

func (s *faultyStore) Replace(ctx context.Context, r idempotent.Record, was idempotent.Version) (*idempotent.Record, error) {
	return call(ctx, s.faults, OpReplace, func() (*idempotent.Record, error) { return s.store.Replace(ctx, r, was) })
}

func (s *faultyStore) Get(ctx context.Context, id idempotent.RecordID) (*idempotent.Record, error) {
	return call(ctx, s.faults, OpGet, func() (*idempotent.Record, error) { return s.store.Get(ctx, id) })
}

func (s *faultyChunkStore) PutChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, data []byte, expires time.Time) (int, error) {
	return call(ctx, s.faults, OpPutChunks, func() (int, error) { return s.chunks.PutChunks(ctx, id, v, data, expires) })
}

func (s *faultyChunkStore) GetChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, count int) ([]byte, error) {
	return call(ctx, s.faults, OpGetChunks, func() ([]byte, error) { return s.chunks.GetChunks(ctx, id, v, count) })
}

// call makes a call to a store.
func call[T any](ctx context.Context, f *Faults, op Op, make func() (T, error)) (T, error) {
	return through(ctx, f, op, line[T]{
		make: make,
		heard: func(err error) bool {
			return errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, idempotent.ErrTooLarge)
		},
		lose:   func(T) {},
		refuse: func(fault Fault) (none T, err error) { return none, refused(fault) },
	})
}
