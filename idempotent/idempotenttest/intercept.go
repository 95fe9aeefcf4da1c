// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"iter"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Intercept returns a store that calls f in place of each method of s. f can make
// the call with [StoreCall.Do], once, several times or never. It can change the
// arguments before and the reply after it, and block at each point. f is called
// concurrently if the store is.
//
// The result has the optional interfaces of s that package driver declares. Its method
// Unwrap returns s.
func Intercept(s driver.Store, f func(ctx context.Context, c *StoreCall)) driver.Store {
	records := &intercepted{s, f}
	chunkStore, hasChunks := s.(driver.ChunkStore)
	lister, hasLists := s.(driver.DueLister)
	scanner, hasScans := s.(driver.AbandonedLister)
	chunks, lists := interceptedChunks{records, chunkStore}, interceptedLists{records, lister}
	scans := interceptedScans{lists, scanner}
	switch {
	case hasChunks && hasScans:
		return struct {
			*intercepted
			interceptedChunks
			interceptedScans
		}{records, chunks, scans}
	case hasChunks && hasLists:
		return struct {
			*intercepted
			interceptedChunks
			interceptedLists
		}{records, chunks, lists}
	case hasChunks:
		return struct {
			*intercepted
			interceptedChunks
		}{records, chunks}
	case hasScans:
		return struct {
			*intercepted
			interceptedScans
		}{records, scans}
	case hasLists:
		return struct {
			*intercepted
			interceptedLists
		}{records, lists}
	}
	return records
}

// StoreCall is a call to a store, with its arguments and its reply.
type StoreCall struct {
	// Op is OpInsert, OpReplace, OpGet, OpPutChunks, OpGetChunks, or OpListDue for
	// each method of a [driver.DueLister] and a [driver.AbandonedLister]. A list is
	// one call, which lasts until it has been read.
	Op driver.Op

	// Record is the argument of Insert and Replace. For Get only its ID is set, for
	// chunks its ID and its Version, for PutChunks also its Expires.
	Record driver.Record
	Was    driver.Version // argument of Replace
	Now    time.Time      // argument of Insert and Abandoned

	Current *driver.Record // result of Insert, Replace and Get
	Data    []byte         // argument of PutChunks, result of GetChunks
	Count   int            // argument of GetChunks, result of PutChunks
	Err     error          // if it is set, the call has no other result

	do func(context.Context)
}

// Do makes the call with the current arguments, and sets the reply.
func (c *StoreCall) Do(ctx context.Context) { c.do(ctx) }

// intercepted has the methods of a store.
type intercepted struct {
	store driver.Store
	f     func(context.Context, *StoreCall)
}

// Unwrap returns the store whose calls are intercepted.
func (s *intercepted) Unwrap() driver.Store { return s.store }

func (s *intercepted) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	c := s.call(ctx, StoreCall{Op: driver.OpInsert, Record: r, Now: now}, func(ctx context.Context, c *StoreCall) {
		c.Current, c.Err = s.store.Insert(ctx, c.Record, c.Now)
	})
	return c.Current, c.Err
}

func (s *intercepted) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	c := s.call(ctx, StoreCall{Op: driver.OpReplace, Record: r, Was: was}, func(ctx context.Context, c *StoreCall) {
		c.Current, c.Err = s.store.Replace(ctx, c.Record, c.Was)
	})
	return c.Current, c.Err
}

func (s *intercepted) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	c := s.call(ctx, StoreCall{Op: driver.OpGet, Record: driver.Record{ID: id}}, func(ctx context.Context, c *StoreCall) {
		c.Current, c.Err = s.store.Get(ctx, c.Record.ID)
	})
	return c.Current, c.Err
}

// interceptedChunks has the methods of a [driver.ChunkStore].
type interceptedChunks struct {
	records *intercepted
	store   driver.ChunkStore
}

func (s interceptedChunks) PutChunks(ctx context.Context, id driver.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	about := driver.Record{ID: id, Version: v, Expires: expires}
	c := s.records.call(ctx, StoreCall{Op: driver.OpPutChunks, Record: about, Data: data}, func(ctx context.Context, c *StoreCall) {
		c.Count, c.Err = s.store.PutChunks(ctx, c.Record.ID, c.Record.Version, c.Data, c.Record.Expires)
	})
	return c.Count, c.Err
}

func (s interceptedChunks) GetChunks(ctx context.Context, id driver.RecordID, v driver.Version, count int) ([]byte, error) {
	about := driver.Record{ID: id, Version: v}
	c := s.records.call(ctx, StoreCall{Op: driver.OpGetChunks, Record: about, Count: count}, func(ctx context.Context, c *StoreCall) {
		c.Data, c.Err = s.store.GetChunks(ctx, c.Record.ID, c.Record.Version, c.Count)
	})
	return c.Data, c.Err
}

// interceptedScans has the methods of a [driver.AbandonedLister].
type interceptedScans struct {
	interceptedLists
	store driver.AbandonedLister
}

func (s interceptedScans) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, s.store.Running)
}

func (s interceptedScans) Abandoned(ctx context.Context, now time.Time, handle func([]driver.Listed) bool) (scanned driver.Scanned, err error) {
	c := s.records.call(ctx, StoreCall{Op: driver.OpListDue, Now: now}, func(ctx context.Context, c *StoreCall) {
		scanned, c.Err = s.store.Abandoned(ctx, c.Now, handle)
	})
	return scanned, c.Err
}

// interceptedLists has the methods of a [driver.DueLister].
type interceptedLists struct {
	records *intercepted
	store   driver.DueLister
}

func (s interceptedLists) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, func(ctx context.Context) iter.Seq2[driver.Listed, error] { return s.store.Due(ctx, after) })
}

func (s interceptedLists) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, s.store.Exhausted)
}

func (s interceptedLists) list(ctx context.Context, entries func(context.Context) iter.Seq2[driver.Listed, error]) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		reading := true
		c := s.records.call(ctx, StoreCall{Op: driver.OpListDue}, func(ctx context.Context, _ *StoreCall) {
			for entry, err := range entries(ctx) {
				if reading = reading && yield(entry, err); !reading {
					return
				}
			}
		})
		if reading && c.Err != nil {
			yield(driver.Listed{}, c.Err)
		}
	}
}

// call passes c to f, and returns its reply. do makes the call.
func (s *intercepted) call(ctx context.Context, c StoreCall, do func(context.Context, *StoreCall)) StoreCall {
	c.do = func(ctx context.Context) { do(ctx, &c) }
	s.f(ctx, &c)
	if c.Err != nil {
		return StoreCall{Err: c.Err}
	}
	return c
}
