// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// shelf is a store in memory. Each of its decisions can be replaced by a wrong
// one. A shelf from newShelf satisfies the contract.
type shelf struct {
	mu      sync.Mutex
	records map[string]*driver.Record

	// name returns the key under which a record is stored.
	name func(idempotent.RecordID) string
	// begin is called before everything else, and end after a write or a call about
	// chunks that begin allowed.
	begin, end func(context.Context, driver.Op) error
	// Changes an error about r before it is returned.
	tell func(err error, r *driver.Record) error
	// admit refuses a record that cannot be stored.
	admit func(r driver.Record) error
	// stands is the condition under which an Insert is refused, and fits the one
	// under which a Replace is made.
	stands, fits func(put) bool
	// creates lets Replace write a missing record.
	creates bool
	// gap is called between a condition and the write.
	gap func(put)
	// write returns the record to store, loser what a refused writer gets, and
	// read what Get makes of a record, or of nil.
	write func(put) *driver.Record
	loser func(put) (*driver.Record, error)
	read  func(r *driver.Record) (*driver.Record, error)
	// reopen returns the store that the next process opens.
	reopen func() *shelf
}

// put is a write, and the record that it meets.
type put struct {
	inserts bool           // or it replaces
	old     *driver.Record // nil: no record
	r       driver.Record
	now     time.Time      // of an Insert
	was     driver.Version // of a Replace
}

func newShelf() *shelf {
	s := &shelf{
		records: map[string]*driver.Record{},
		name:    func(id idempotent.RecordID) string { return string(id) },
		begin:   func(ctx context.Context, _ driver.Op) error { return ctx.Err() },
		end:     func(context.Context, driver.Op) error { return nil },
		tell:    func(err error, _ *driver.Record) error { return err },
		admit:   func(driver.Record) error { return nil },
		stands:  func(p put) bool { return p.old != nil && (p.old.Expires.IsZero() || p.old.Expires.After(p.now)) },
		fits:    func(p put) bool { return p.old.Version == p.was && p.r.Version != p.was },
		gap:     func(put) {},
		loser:   func(p put) (*driver.Record, error) { return p.old.Clone(), nil },
		read: func(r *driver.Record) (*driver.Record, error) {
			if r == nil {
				return nil, idempotent.ErrNoRecord
			}
			return r.Clone(), nil
		},
	}
	s.reopen = func() *shelf { return s }
	kept(func(r *driver.Record) { // what a store has to keep
		for _, t := range timesOf(r) {
			*t = t.Truncate(time.Millisecond).UTC()
		}
		r.Announced = r.Announced && r.State == driver.StateInProgress && !r.Exhausted
	})(s)
	return s
}

func (s *shelf) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return s.put(ctx, driver.OpInsert, put{inserts: true, r: r, now: now})
}

func (s *shelf) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return s.put(ctx, driver.OpReplace, put{r: r, was: was})
}

func (s *shelf) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	if err := s.begin(ctx, driver.OpGet); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read(s.records[s.name(id)])
}

// put makes a write if its condition holds.
func (s *shelf) put(ctx context.Context, op driver.Op, p put) (met *driver.Record, err error) {
	defer func() {
		if err != nil {
			err = s.tell(err, &p.r)
		}
	}()
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx, op)) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(p.r); err != nil {
		return nil, err
	}
	p.old = s.records[s.name(p.r.ID)]
	switch {
	case p.inserts && s.stands(p), !p.inserts && p.old != nil && !s.fits(p):
		return s.loser(p)
	case !p.inserts && p.old == nil && !s.creates:
		return nil, idempotent.ErrNoRecord
	}
	s.gap(p)
	s.records[s.name(p.r.ID)] = s.write(p)
	return nil, nil
}

// remove deletes a record without the store's methods.
func (s *shelf) remove(id idempotent.RecordID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, s.name(id))
}

// chunkShelf is a shelf that stores large results beside its records. As in a
// shelf, each decision can be replaced.
type chunkShelf struct {
	*shelf
	pieces map[string][]byte

	// size is the size of a piece, in bytes.
	size int
	// piece names piece i of the data put under id and v.
	piece func(id idempotent.RecordID, v driver.Version, i int) string
	// keep returns what to store in place of old, which may be nil.
	keep func(old, piece []byte) []byte
	// missing returns the error for a missing piece, and give the data made of
	// those that exist.
	missing func() error
	give    func(pieces [][]byte) []byte
}

func newChunkShelf() *chunkShelf {
	return &chunkShelf{
		shelf: newShelf(), pieces: map[string][]byte{}, size: 1000,
		piece: func(id idempotent.RecordID, v driver.Version, i int) string {
			return fmt.Sprintf("%s#%x#%d", id, v, i)
		},
		keep:    func(_, piece []byte) []byte { return bytes.Clone(piece) },
		missing: func() error { return idempotent.ErrNoRecord },
		give:    func(pieces [][]byte) []byte { return bytes.Join(pieces, nil) },
	}
}

func (s *chunkShelf) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (count int, err error) {
	if err := s.begin(ctx, driver.OpPutChunks); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for stores := expires.IsZero() || expires.After(time.Now()); stores && len(data) > 0; count++ {
		n, name := min(s.size, len(data)), s.piece(id, v, count)
		s.pieces[name] = s.keep(s.pieces[name], data[:n:n])
		data = data[n:]
	}
	return count, s.end(ctx, driver.OpPutChunks)
}

func (s *chunkShelf) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	if err := s.begin(ctx, driver.OpGetChunks); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var pieces [][]byte
	for i := range count {
		piece, ok := s.pieces[s.piece(id, v, i)]
		if !ok {
			if err := s.missing(); err != nil {
				return nil, err
			}
			continue
		}
		pieces = append(pieces, piece)
	}
	return s.give(pieces), s.end(ctx, driver.OpGetChunks)
}

// listShelf is a shelf that lists due records. As in a shelf, each decision can
// be replaced.
type listShelf struct {
	*shelf
	damaged map[idempotent.RecordID]bool
	writes  int

	// due and given are the conditions of Due and Exhausted, and order is their
	// order.
	due, given func(r *driver.Record) bool
	order      func(a, b listed) int
	// later is how Due compares with a time that is not zero.
	later func(due, t time.Time) bool
	// show returns the entry of a record, unreadable that of a damaged one.
	show       func(r *driver.Record) driver.Listed
	unreadable func(id idempotent.RecordID) (entry driver.Listed, err error, also bool)
	// collected can change a list before it is returned.
	collected func(list string, found []listed) []listed
	// between is called before each record, with the number of writes since the
	// list began.
	between func(ctx context.Context, writes int) error
	// stops reports whether the list ends when its reader stops.
	stops bool
}

type listed struct {
	entry driver.Listed
	err   error
}

func newListShelf() *listShelf {
	return &listShelf{
		shelf: newShelf(), damaged: map[idempotent.RecordID]bool{}, stops: true,
		due: func(r *driver.Record) bool {
			return !r.Exhausted && !r.Due.IsZero() && r.State != driver.StateCompleted
		},
		given: func(r *driver.Record) bool { return r.Exhausted },
		order: func(a, b listed) int { return a.entry.Due.Compare(b.entry.Due) },
		later: time.Time.After,
		show:  (*driver.Record).Listed,
		unreadable: func(id idempotent.RecordID) (driver.Listed, error, bool) {
			return driver.Listed{ID: id}, errors.New("cannot be read"), true
		},
		collected: func(_ string, found []listed) []listed { return found },
		between:   func(ctx context.Context, _ int) error { return ctx.Err() },
	}
}

func (s *listShelf) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.shelf.Replace(ctx, r, was)
}

func (s *listShelf) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, "due", func(r *driver.Record) bool { return s.due(r) && (after.IsZero() || s.later(r.Due, after)) })
}

func (s *listShelf) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, "exhausted", s.given)
}

func (s *listShelf) list(ctx context.Context, name string, match func(*driver.Record) bool) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		found, writes := s.collect(match)
		for _, l := range s.collected(name, found) {
			s.mu.Lock()
			since := s.writes - writes
			s.mu.Unlock()
			if err := s.between(ctx, since); err != nil {
				yield(driver.Listed{}, err)
				return
			}
			if !yield(l.entry, l.err) && s.stops {
				return
			}
		}
		if err := s.between(ctx, 0); err != nil {
			yield(driver.Listed{}, err)
		}
	}
}

func (s *listShelf) collect(match func(*driver.Record) bool) (found []listed, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		switch {
		case s.damaged[r.ID]:
			if r, err, also := s.unreadable(r.ID); also {
				found = append(found, listed{r, err})
			}
		case match(r):
			found = append(found, listed{entry: s.show(r)})
		}
	}
	slices.SortFunc(found, s.order)
	return found, s.writes
}

// abandonedShelf is a listShelf whose Due does not list records in progress.
type abandonedShelf struct {
	*listShelf
	running func(r *driver.Record) bool // the condition of Running
}

var _ driver.AbandonedLister = (*abandonedShelf)(nil)

func newAbandonedShelf() *abandonedShelf {
	s := &abandonedShelf{listShelf: newListShelf()}
	due := s.due
	s.due = func(r *driver.Record) bool { return due(r) && (r.State != driver.StateInProgress || r.Announced) }
	s.running = func(r *driver.Record) bool { return due(r) && !s.due(r) }
	return s
}

func (s *abandonedShelf) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, "running", s.running)
}

// Abandoned passes all records at once, and reads all again in the next call.
func (s *abandonedShelf) Abandoned(ctx context.Context, now time.Time, handle func([]driver.Listed) bool) (driver.Scanned, error) {
	var page []driver.Listed
	for e, err := range s.Running(ctx) {
		if err != nil && e.ID == "" {
			return driver.Scanned{}, err
		}
		if err != nil || !e.Due.After(now) {
			page = append(page, e)
		}
	}
	handle(page)
	return driver.Scanned{Began: now}, nil
}
