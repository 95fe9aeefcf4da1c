package idempotenttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// wired is the fixture of a store whose client sends a failed call again, up to
// six times. Its service is a store in memory.
func wired() Fixture {
	s := newChunkShelf()
	return Fixture{
		Open: func(testing.TB) driver.Store { return s },
		Wire: func(_ testing.TB, f *Faults) driver.Store { return persistent{f.Store(s).(chunkStore)} },
	}
}

// persistent sends a call again that failed with a fault.
type persistent struct{ chunkStore }

func again[T any](call func() (T, error)) (v T, err error) {
	for range 6 {
		if v, err = call(); !errors.Is(err, ErrInjected) {
			break
		}
	}
	return v, err
}

func (p persistent) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return again(func() (*driver.Record, error) { return p.chunkStore.Insert(ctx, r, now) })
}

func (p persistent) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return again(func() (*driver.Record, error) { return p.chunkStore.Replace(ctx, r, was) })
}

func (p persistent) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	return again(func() (*driver.Record, error) { return p.chunkStore.Get(ctx, id) })
}

func (p persistent) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	return again(func() (int, error) { return p.chunkStore.PutChunks(ctx, id, v, data, expires) })
}

func (p persistent) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	return again(func() ([]byte, error) { return p.chunkStore.GetChunks(ctx, id, v, count) })
}
