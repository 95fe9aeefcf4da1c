package idempotenttest

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// listShelf is a shelf that lists due records. As in a shelf, each decision can
// be replaced.
type listShelf struct {
	*shelf
	damaged map[idempotent.RecordID]bool
	writes  int

	// due and given are the conditions of Due and Exhausted.
	due   func(r *driver.Record, before time.Time) bool
	given func(r *driver.Record) bool
	// show returns the listed form of a record, unreadable that of a damaged
	// one.
	show       func(r *driver.Record) driver.Record
	unreadable func(id idempotent.RecordID) (listed driver.Record, err error, also bool)
	// collected can change a list before it is returned.
	collected func(list string, found []listed) []listed
	// between is called before each record, with the number of writes since the
	// list began.
	between func(ctx context.Context, writes int) error
	// stops reports whether the list ends when its reader stops.
	stops bool
}

type listed struct {
	record driver.Record
	err    error
}

func newListShelf() *listShelf {
	return &listShelf{
		shelf: newShelf(), damaged: map[idempotent.RecordID]bool{}, stops: true,
		due: func(r *driver.Record, before time.Time) bool {
			return !r.Exhausted && !r.Due.IsZero() && !r.Due.After(before)
		},
		given: func(r *driver.Record) bool { return r.Exhausted },
		show:  func(r *driver.Record) driver.Record { return *r.Clone() },
		unreadable: func(id idempotent.RecordID) (driver.Record, error, bool) {
			return driver.Record{ID: id}, errors.New("cannot be read"), true
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

func (s *listShelf) Due(ctx context.Context, before time.Time) iter.Seq2[driver.Record, error] {
	return s.list(ctx, "due", func(r *driver.Record) bool { return s.due(r, before) })
}

func (s *listShelf) Exhausted(ctx context.Context) iter.Seq2[driver.Record, error] {
	return s.list(ctx, "exhausted", s.given)
}

func (s *listShelf) list(ctx context.Context, name string, match func(*driver.Record) bool) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		found, writes := s.collect(match)
		for _, l := range s.collected(name, found) {
			s.mu.Lock()
			since := s.writes - writes
			s.mu.Unlock()
			if err := s.between(ctx, since); err != nil {
				yield(driver.Record{}, err)
				return
			}
			if !yield(l.record, l.err) && s.stops {
				return
			}
		}
		if err := s.between(ctx, 0); err != nil {
			yield(driver.Record{}, err)
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
			found = append(found, listed{record: s.show(r)})
		}
	}
	return found, s.writes
}
