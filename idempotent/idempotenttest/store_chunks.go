// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Large results beside the records, for a store that is a [driver.ChunkStore].
var chunkRequirements = []requirement{
	chunkRequirement("ChunksAreWhole",
		"GetChunks returns the data of PutChunks byte for byte, whatever its size.",
		func(ctx context.Context, s chunkStore) error {
			// 396 KB is a full piece in a DynamoDB item.
			for _, size := range []int{1, 4 << 10, 396 << 10, 396<<10 + 1, 2 * 396 << 10, 400 << 10, 401 << 10, 2 << 20} {
				c, err := putNew(ctx, s, size)
				if err != nil {
					return err
				}
				if err := c.whole(ctx, s); err != nil {
					return fmt.Errorf("%d bytes: %w", size, err)
				}
			}
			return nil
		}),
	chunkRequirement("ChunksAgain",
		"Data that is put again, because the first reply was lost, is stored once.",
		func(ctx context.Context, s chunkStore) error {
			c, err := putNew(ctx, s, 10<<10)
			if err != nil {
				return err
			}
			count, err := s.PutChunks(ctx, c.id, c.version, bytes.Clone(c.data), c.expires)
			if err != nil {
				return fmt.Errorf("the repeated PutChunks: %w", err)
			}
			if count != c.count {
				return fmt.Errorf("the repeated PutChunks: got %d pieces, want %d", count, c.count)
			}
			return c.whole(ctx, s)
		}),
	chunkRequirement("ChunksAreApart",
		"Data under different ids or versions is separate, and is not listed or returned as a record.",
		func(ctx context.Context, s chunkStore) error {
			first, err := putNew(ctx, s, 10<<10)
			if err != nil {
				return err
			}
			second := newChunks(10 << 10)
			second.id = first.id
			third := newChunks(10 << 10)
			third.version = first.version
			for _, c := range []*chunks{second, third} {
				if err := c.put(ctx, s); err != nil {
					return err
				}
			}
			r := fullRecord()
			r.ID = first.id
			if err := errors.Join(absent(ctx, s, r.ID), insertNew(ctx, s, r), stands(ctx, s, r)); err != nil {
				return err
			}
			return errors.Join(first.whole(ctx, s), second.whole(ctx, s), third.whole(ctx, s))
		}),
	chunkRequirement("ChunkMissing",
		"GetChunks returns ErrNoRecord if one piece or all pieces are missing.",
		func(ctx context.Context, s chunkStore) error {
			c, err := putNew(ctx, s, 10<<10)
			if err != nil {
				return err
			}
			for _, missing := range []struct {
				version driver.Version
				count   int
			}{{c.version, c.count + 1}, {newVersion(), c.count}, {newVersion(), 1}} {
				data, err := s.GetChunks(ctx, c.id, missing.version, missing.count)
				if !errors.Is(err, idempotent.ErrNoRecord) {
					return fmt.Errorf("GetChunks of missing data: got %d bytes and error %v, want ErrNoRecord", len(data), err) //lint:ignore errorlint err can be nil
				}
			}
			return nil
		}),
	chunkRequirement("ChunksAreCopies",
		"The data that a store gets and returns shares no memory with what it stores.",
		func(ctx context.Context, s chunkStore) error {
			c := newChunks(10 << 10)
			given := bytes.Clone(c.data)
			var err error
			if c.count, err = s.PutChunks(ctx, c.id, c.version, given, c.expires); err != nil {
				return fmt.Errorf("PutChunks: %w", err)
			}
			clear(given)
			if err := c.whole(ctx, s); err != nil {
				return fmt.Errorf("after a change to the data that was put: %w", err)
			}
			got, err := s.GetChunks(ctx, c.id, c.version, c.count)
			if err != nil {
				return fmt.Errorf("GetChunks: %w", err)
			}
			clear(got)
			if err := c.whole(ctx, s); err != nil {
				return fmt.Errorf("after a change to the data that was returned: %w", err)
			}
			return nil
		}),
	chunkRequirement("ChunksContextEnds",
		"A call under a cancelled context fails.",
		func(ctx context.Context, s chunkStore) error {
			c, err := putNew(ctx, s, 10<<10)
			if err != nil {
				return err
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := s.GetChunks(ended, c.id, c.version, c.count); err == nil {
				return errors.New("GetChunks succeeded under a cancelled context")
			}
			if _, err := s.PutChunks(ended, c.id, newVersion(), c.data, c.expires); err == nil {
				return errors.New("PutChunks succeeded under a cancelled context")
			}
			return nil
		}),
}

// chunkStore is a store with the methods that these requirements check.
type chunkStore interface {
	driver.Store
	driver.ChunkStore
}

func chunkRequirement(name, rule string, check func(context.Context, chunkStore) error) requirement {
	return requirement{
		name: name, rule: rule,
		needs: func(_ Fixture, s driver.Store) bool { _, ok := s.(chunkStore); return ok },
		check: func(ctx context.Context, s driver.Store, _ func() driver.Store) error {
			return check(ctx, s.(chunkStore))
		},
	}
}

// chunks is data that was put, or is about to be.
type chunks struct {
	id      idempotent.RecordID
	version driver.Version
	data    []byte
	expires time.Time
	count   int
}

func newChunks(size int) *chunks {
	c := &chunks{id: newKey().RecordID(), version: newVersion(), data: make([]byte, size), expires: now().Add(time.Hour)}
	rand.NewChaCha8(sha256.Sum256(c.version[:])).Read(c.data)
	return c
}

func putNew(ctx context.Context, s chunkStore, size int) (*chunks, error) {
	c := newChunks(size)
	return c, c.put(ctx, s)
}

func (c *chunks) put(ctx context.Context, s chunkStore) (err error) {
	if c.count, err = s.PutChunks(ctx, c.id, c.version, c.data, c.expires); err != nil {
		return fmt.Errorf("PutChunks: %w", err)
	}
	return nil
}

// whole checks that the store holds exactly the data that was put.
func (c *chunks) whole(ctx context.Context, s chunkStore) error {
	got, err := s.GetChunks(ctx, c.id, c.version, c.count)
	if err != nil {
		return fmt.Errorf("GetChunks: %w", err)
	}
	if !bytes.Equal(got, c.data) {
		return fmt.Errorf("GetChunks of %d pieces: got %s, want %s", c.count, brief(got), brief(c.data))
	}
	return nil
}
