package idempotenttest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// tap is a store with a hand on the line: a scenario decides what happens
// between a caller and the store. A nil hook passes the call through.
type tap struct {
	idempotent.Store
	onInsert  func(write func() (*idempotent.Record, error)) (*idempotent.Record, error)
	onReplace func(r idempotent.Record, write func() (*idempotent.Record, error)) (*idempotent.Record, error)
	onGet     func(read func() (*idempotent.Record, error)) (*idempotent.Record, error)
	calls     atomic.Int32
}

var errCut = errors.New("the connection was cut")

func (s *tap) Insert(ctx context.Context, r idempotent.Record, now time.Time) (*idempotent.Record, error) {
	s.calls.Add(1)
	write := func() (*idempotent.Record, error) { return s.Store.Insert(ctx, r, now) }
	if s.onInsert != nil {
		return s.onInsert(write)
	}
	return write()
}

func (s *tap) Replace(ctx context.Context, r idempotent.Record, was idempotent.Version) (*idempotent.Record, error) {
	s.calls.Add(1)
	write := func() (*idempotent.Record, error) { return s.Store.Replace(ctx, r, was) }
	if s.onReplace != nil {
		return s.onReplace(r, write)
	}
	return write()
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
	onPut  func(write func() (int, error)) (int, error)
	onGet  func(read func() ([]byte, error)) ([]byte, error)
}

func (s *chunkTap) PutChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, data []byte, expires time.Time) (int, error) {
	write := func() (int, error) { return s.chunks.PutChunks(ctx, id, v, data, expires) }
	if s.onPut != nil {
		return s.onPut(write)
	}
	return write()
}

func (s *chunkTap) GetChunks(ctx context.Context, id idempotent.RecordID, v idempotent.Version, count int) ([]byte, error) {
	read := func() ([]byte, error) { return s.chunks.GetChunks(ctx, id, v, count) }
	if s.onGet != nil {
		return s.onGet(read)
	}
	return read()
}

// replyLost applies a write and repeats it, as an SDK does that never heard
// the first reply.
func replyLost(write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
	if _, err := write(); err != nil {
		return nil, err
	}
	return write()
}

// cut applies a write and gives up on the reply.
func cut(write func() (*idempotent.Record, error)) (*idempotent.Record, error) {
	if _, err := write(); err != nil {
		return nil, err
	}
	return nil, errCut
}
