// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Records that wait for reconciliation, for a store that is a
// [driver.DueLister]. The lists are hints: a store may show a write late, see
// [Fixture.ListLag]. Their order is not specified.
var listRequirements = []requirement{
	listRequirement("DueLists",
		"Due lists each record that is due by then, once, and no record that is due later or never.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.Due = []time.Time{at.Add(-time.Hour), at, at.Add(time.Millisecond), {}}[i]
			}, 4)
			if err != nil {
				return err
			}
			return q.lists("Due", s.Due(ctx, q.at), q.records[:2])
		}),
	listRequirement("DueListsAll",
		"Due lists every record that is ever due, if it is asked for those until the end of the year 9999.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.Due = []time.Time{at, at.AddDate(1, 0, 0), {}}[i]
			}, 3)
			if err != nil {
				return err
			}
			return q.lists("Due", s.Due(ctx, time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)), q.records[:2])
		}),
	listRequirement("ExhaustedAreApart",
		"Exhausted lists exactly the records that reconciliation has given up; Due does not list them.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, _ time.Time) { r.Exhausted = i > 0 }, 3)
			if err != nil {
				return err
			}
			return errors.Join(
				q.lists("Due", s.Due(ctx, q.at), q.records[:1]),
				q.lists("Exhausted", s.Exhausted(ctx), q.records[1:]))
		}),
	listRequirement("ListsFollowWrites",
		"A write can add a record to a list, remove it, or move it to another list.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				if i == 0 {
					r.Due = time.Time{}
				}
			}, 3)
			if err != nil {
				return err
			}
			if err := q.lists("Due", s.Due(ctx, q.at), q.records[1:]); err != nil {
				return err
			}
			for i, change := range []func(*driver.Record){
				func(r *driver.Record) { r.Due = q.at },
				func(r *driver.Record) { r.Due = time.Time{} },
				func(r *driver.Record) { r.Exhausted = true },
			} {
				if err := q.change(ctx, s, i, change); err != nil {
					return err
				}
			}
			return errors.Join(
				q.lists("Due", s.Due(ctx, q.at), q.records[:1]),
				q.lists("Exhausted", s.Exhausted(ctx), q.records[2:]))
		}),
	listRequirement("ListedWhole",
		"A list returns records with every field, and they share no memory with what is stored.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 1)
			if err != nil {
				return err
			}
			found, err := q.found(s.Due(ctx, q.at))
			got := found[q.records[0].ID]
			if err != nil || got == nil {
				return fmt.Errorf("the list of Due does not contain it: %w", orNil(err))
			}
			if err := sameRecord("Due listed", got, q.records[0]); err != nil {
				return err
			}
			scribble(got)
			if err := stands(ctx, s, q.records[0]); err != nil {
				return fmt.Errorf("after a change to the record that Due listed: %w", err)
			}
			return nil
		}),
	listRequirement("ListsLetWrite",
		"The reader of a list may write the records while it reads.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 3)
			if err != nil {
				return err
			}
			seen := 0
			for r, err := range s.Due(ctx, q.at) {
				i := q.index(r.ID)
				if i < 0 && r.ID != "" {
					continue
				}
				if err != nil {
					return fmt.Errorf("the list of Due: %w", err)
				}
				if err := q.change(ctx, s, i, func(r *driver.Record) { r.Ref = "changed" }); err != nil {
					return err
				}
				seen++
			}
			if seen != len(q.records) {
				return fmt.Errorf("the list of Due has %d records, want %d", seen, len(q.records))
			}
			return nil
		}),
	listRequirement("ListsStop",
		"A list ends when its reader stops.",
		func(ctx context.Context, s listStore) (err error) {
			q, err := newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 2)
			if err != nil {
				return err
			}
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the list of Due went on after its reader had stopped: %v", p)
				}
			}()
			for range s.Due(ctx, q.at) {
				break
			}
			return nil
		}),
	listRequirement("ListsEnd",
		"Under a cancelled context a list returns an error without a record.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 1)
			if err != nil {
				return err
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			for r, err := range s.Due(ended, q.at) {
				if err != nil && r.ID == "" {
					return nil
				}
			}
			return errors.New("the list of Due ended without an error")
		}),
	{
		name:  "UnreadableIsListed",
		rule:  "A record that cannot be read is listed by its id, with an error, and does not hide the others.",
		needs: func(f Fixture, s driver.Store) bool { return f.Damage != nil && isLister(f, s) },
		checkWith: func(ctx context.Context, f Fixture, s driver.Store) error {
			lists := listStore{s, s.(driver.DueLister), f.ListLag}
			q, err := newQueue(ctx, lists, func(int, *driver.Record, time.Time) {}, 5)
			if err != nil {
				return err
			}
			damaged := q.records[2].ID
			if err := f.Damage(ctx, s, damaged); err != nil {
				return fmt.Errorf("Fixture.Damage: %w", err)
			}
			told, readable := 0, 0
			for r, err := range lists.Due(ctx, q.at) {
				switch {
				case err != nil && r.ID == "":
					return fmt.Errorf("one record ended the list: %w", err)
				case q.index(r.ID) < 0:
				case err != nil && r.ID == damaged:
					told++
				case err == nil && r.ID != damaged:
					readable++
				}
			}
			if told != 1 || readable != len(q.records)-1 {
				return fmt.Errorf("the list of Due returned %d errors for the record that cannot be read, and listed %d of %d others", told, readable, len(q.records)-1)
			}
			return nil
		},
	},
}

// listStore is a store that lists due records.
type listStore struct {
	driver.Store
	driver.DueLister
	lag time.Duration
}

func isLister(_ Fixture, s driver.Store) bool {
	_, ok := s.(driver.DueLister)
	return ok
}

func listRequirement(name, rule string, check func(ctx context.Context, s listStore) error) requirement {
	return requirement{name: name, rule: rule, needs: isLister, checkWith: func(ctx context.Context, f Fixture, s driver.Store) error {
		return check(ctx, listStore{s, s.(driver.DueLister), f.ListLag})
	}}
}

// queue is a set of records that wait for reconciliation. They are due long
// before those of other tests, so that lists up to their time are short.
type queue struct {
	at      time.Time
	records []driver.Record
	lag     time.Duration
}

// newQueue inserts n records that are due at some time, changed by change, and
// waits until lists are expected to show them.
func newQueue(ctx context.Context, s listStore, change func(i int, r *driver.Record, at time.Time), n int) (*queue, error) {
	q := &queue{at: time.UnixMilli(1 + rand.Int64N(1e12)).UTC(), lag: s.lag} // between 1970 and 2001
	for i := range n {
		r := fullRecord()
		r.State, r.Expires, r.Due, r.Exhausted = driver.StateUnknown, time.Time{}, q.at, false
		change(i, &r, q.at)
		if err := insertNew(ctx, s, r); err != nil {
			return nil, err
		}
		q.records = append(q.records, r)
	}
	return q, q.wait(ctx)
}

// wait waits until lists are expected to show the last write.
func (q *queue) wait(ctx context.Context) error {
	if q.lag <= 0 {
		return nil
	}
	timer := time.NewTimer(q.lag)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change writes a changed record i.
func (q *queue) change(ctx context.Context, s driver.Store, i int, change func(*driver.Record)) error {
	next := q.records[i]
	next.Version = newVersion()
	change(&next)
	met, err := s.Replace(ctx, next, q.records[i].Version)
	if err != nil || met != nil {
		return fmt.Errorf("Replace of the current version: got %v, %w", describe(met), orNil(err))
	}
	q.records[i] = next
	return q.wait(ctx)
}

// index returns the index of the record with that id, or -1.
func (q *queue) index(id idempotent.RecordID) int {
	for i := range q.records {
		if q.records[i].ID == id {
			return i
		}
	}
	return -1
}

// found returns the records of the queue that are in a list, each once.
func (q *queue) found(list iter.Seq2[driver.Record, error]) (map[idempotent.RecordID]*driver.Record, error) {
	found := map[idempotent.RecordID]*driver.Record{}
	for r, err := range list {
		switch {
		case err != nil && (r.ID == "" || q.index(r.ID) >= 0):
			return found, err
		case q.index(r.ID) < 0:
			continue // a record of another test
		case found[r.ID] != nil:
			return found, errors.New("a record is listed twice")
		}
		found[r.ID] = &r
	}
	return found, nil
}

// lists checks that a list contains exactly the wanted records.
func (q *queue) lists(name string, list iter.Seq2[driver.Record, error], want []driver.Record) error {
	found, err := q.found(list)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range want {
		if found[r.ID] == nil {
			return fmt.Errorf("%s does not list a record that is due at %s, exhausted: %t; asked at %s", name, r.Due, r.Exhausted, q.at)
		}
		delete(found, r.ID)
	}
	for _, r := range found {
		return fmt.Errorf("%s lists a record that is due at %s, exhausted: %t; asked at %s", name, r.Due, r.Exhausted, q.at)
	}
	return nil
}
