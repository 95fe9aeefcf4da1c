package idempotenttest

import (
	"context"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// witness is a store that records a worker's writes in a history. It sits above
// the unreliable part of the connection, and notices when a call fails.
type witness struct {
	driver.Store
	by *worker
}

// chunkWitness is a witness of a store that stores large results beside its
// records.
type chunkWitness struct {
	witness
	chunks driver.ChunkStore
}

func (l *lab) witness(by *worker, s driver.Store) driver.Store {
	w := witness{s, by}
	if chunks, ok := s.(driver.ChunkStore); ok {
		return &chunkWitness{w, chunks}
	}
	return &w
}

func (s *witness) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	w := write{by: s.by, record: r, insert: true, at: now}
	met, err := s.Store.Insert(ctx, r, now)
	s.by.history.wrote(w, met, err)
	return met, s.by.weather.feel(err)
}

func (s *witness) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	w := write{by: s.by, record: r, was: was, at: s.by.now()}
	met, err := s.Store.Replace(ctx, r, was)
	s.by.history.wrote(w, met, err)
	return met, s.by.weather.feel(err)
}

func (s *witness) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	r, err := s.Store.Get(ctx, id)
	s.by.history.saw(r)
	return r, s.by.weather.feel(err)
}

func (s *chunkWitness) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	s.by.history.putsChunks(expires)
	n, err := s.chunks.PutChunks(ctx, id, v, data, expires)
	return n, s.by.weather.feel(err)
}

func (s *chunkWitness) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	data, err := s.chunks.GetChunks(ctx, id, v, count)
	return data, s.by.weather.feel(err)
}
