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
// [driver.DueLister], and of those in progress also for an
// [driver.AbandonedLister]. The lists are hints: a store may show a write late, see
// [Fixture.ListLag].
var listRequirements = []requirement{
	listRequirement("DueLists",
		"Due lists each record that is or will be due, once, and no record that never will. It may leave out records in progress.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.Due = []time.Time{at.Add(-time.Hour), at, time.Now().UTC().Truncate(time.Millisecond).Add(time.Hour), {}}[i]
			}, 4)
			if err != nil {
				return err
			}
			return q.lists("Due", s.Due(ctx, time.Time{}), q.records[:3])
		}),
	listRequirement("RunningAreListed",
		"Each record in progress whose Due is set is listed once, by Due or by Running, and no other one. Due lists the announced ones. Running lists no other record.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.State, r.Due = driver.StateInProgress, []time.Time{at, now().Add(time.Hour), at, at, {}}[i]
				switch i {
				case 2:
					r.State = driver.StateUnknown
				case 3:
					r.Announced = true
				}
			}, 5)
			if err != nil {
				return err
			}
			err = q.lists("Due or Running", s.all(ctx), q.records[:4])
			if due, listErr := q.found(s.Due(ctx, time.Time{})); due[q.records[3].ID] == nil {
				err = errors.Join(err, errors.New("Due does not list an announced record"), listErr)
			}
			if s.running != nil {
				found, listErr := q.found(s.running.Running(ctx))
				if found[q.records[2].ID] != nil {
					err = errors.Join(err, errors.New("Running lists a record that is unknown"))
				}
				err = errors.Join(err, listErr)
			}
			return err
		}),
	listRequirement("EarliestFirst",
		"A list is in the order of the times when its records are due, or were given up.",
		func(ctx context.Context, s listStore) error {
			const n = 24
			order := rand.Perm(n)
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.Due, r.Exhausted = at.Add(time.Duration(order[i])*time.Millisecond), i%2 == 0
			}, n)
			if err != nil {
				return err
			}
			return errors.Join(q.ordered("Due", s.Due(ctx, time.Time{})), q.ordered("Exhausted", s.Exhausted(ctx)))
		}),
	listRequirement("DueContinues",
		"Due lists only what is due after a time, in the same order.",
		func(ctx context.Context, s listStore) error {
			const n = 6
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, at time.Time) {
				r.Due, r.Exhausted = at.Add(time.Duration(n-i)*time.Millisecond), i == 0
			}, n)
			if err != nil {
				return err
			}
			after := s.Due(ctx, q.records[3].Due) // the second one that is due
			return errors.Join(q.lists("Due after a time", after, q.records[1:3]), q.ordered("Due after a time", after))
		}),
	listRequirement("ExhaustedAreApart",
		"Exhausted lists exactly the records that reconciliation has given up; Due does not list them.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, _ time.Time) { r.Exhausted = i > 0 }, 3)
			if err != nil {
				return err
			}
			return errors.Join(
				q.lists("Due", s.Due(ctx, time.Time{}), q.records[:1]),
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
			if err := q.lists("Due", s.Due(ctx, time.Time{}), q.records[1:]); err != nil {
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
				q.lists("Due", s.Due(ctx, time.Time{}), q.records[:1]),
				q.lists("Exhausted", s.Exhausted(ctx), q.records[2:]))
		}),
	listRequirement("ListedAsStored",
		"An entry has the id, the state and the times of its record.",
		func(ctx context.Context, s listStore) error {
			states := []driver.State{driver.StateInProgress, driver.StateUnknown, driver.StateRetryable}
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, _ time.Time) {
				if r.State = states[i]; i == 0 {
					r.Since = time.Time{}
				}
			}, len(states))
			if err != nil {
				return err
			}
			found, err := q.found(s.all(ctx))
			for i := range q.records {
				r := &q.records[i]
				got, want := found[r.ID], driver.Listed{ID: r.ID, State: r.State, Since: r.Since, LeaseEnd: r.LeaseEnd, Due: r.Due}
				if err != nil || got == nil {
					return fmt.Errorf("no list contains a record that is %s: %w", want.State, orNil(err))
				}
				if got.State != want.State || !got.Since.Equal(want.Since) || !got.LeaseEnd.Equal(want.LeaseEnd) || !got.Due.Equal(want.Due) {
					return fmt.Errorf("a record is listed as %+v, want %+v", *got, want)
				}
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
			for r, err := range s.Due(ctx, time.Time{}) {
				if r.Due.After(q.at) {
					break
				}
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
			_, err = newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 2)
			if err != nil {
				return err
			}
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("the list of Due went on after its reader had stopped: %v", p)
				}
			}()
			for range s.Due(ctx, time.Time{}) {
				break
			}
			return nil
		}),
	listRequirement("ListsEnd",
		"Under a cancelled context a list returns an error without a record.",
		func(ctx context.Context, s listStore) error {
			_, err := newQueue(ctx, s, func(int, *driver.Record, time.Time) {}, 1)
			if err != nil {
				return err
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			for r, err := range s.Due(ended, time.Time{}) {
				if err != nil && r.ID == "" {
					return nil
				}
			}
			return errors.New("the list of Due ended without an error")
		}),
	{
		name:  "UnreadableIsListed",
		rule:  "A record that cannot be read is listed by its id, with or without an error, and does not hide the others.",
		needs: func(f Fixture, s driver.Store) bool { return f.Damage != nil && isLister(f, s) },
		checkWith: func(ctx context.Context, f Fixture, s driver.Store) error {
			lists := newListStore(f, s)
			q, err := newQueue(ctx, lists, func(int, *driver.Record, time.Time) {}, 5)
			if err != nil {
				return err
			}
			damaged := q.records[2].ID
			if err := f.Damage(ctx, s, damaged); err != nil {
				return fmt.Errorf("Fixture.Damage: %w", err)
			}
			found := map[idempotent.RecordID]int{}
			for r, err := range lists.Due(ctx, time.Time{}) {
				switch {
				case err != nil && r.ID == "":
					return fmt.Errorf("one record ended the list: %w", err)
				case err == nil || r.ID == damaged:
					found[r.ID]++
				}
			}
			for i := range q.records {
				if n := found[q.records[i].ID]; n != 1 {
					return fmt.Errorf("the list of Due has record %d of %d %d times; the third cannot be read", i+1, len(q.records), n)
				}
			}
			return nil
		},
	},
}

// listStore is a store that lists due records.
type listStore struct {
	driver.Store
	driver.DueLister
	running driver.AbandonedLister // nil: Due lists the records in progress
	lag     time.Duration
}

func newListStore(f Fixture, s driver.Store) listStore {
	running, _ := s.(driver.AbandonedLister)
	return listStore{s, s.(driver.DueLister), running, f.ListLag}
}

// all lists what Due and Running list.
func (s listStore) all(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		lists := []iter.Seq2[driver.Listed, error]{s.Due(ctx, time.Time{})}
		if s.running != nil {
			lists = append(lists, s.running.Running(ctx))
		}
		for _, list := range lists {
			for e, err := range list {
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

func isLister(_ Fixture, s driver.Store) bool {
	_, ok := s.(driver.DueLister)
	return ok
}

func listRequirement(name, rule string, check func(ctx context.Context, s listStore) error) requirement {
	return requirement{name: name, rule: rule, needs: isLister, checkWith: func(ctx context.Context, f Fixture, s driver.Store) error {
		return check(ctx, newListStore(f, s))
	}}
}

// queue is a set of records that wait for reconciliation.
type queue struct {
	at      time.Time
	records []driver.Record
	lag     time.Duration
}

// newQueue inserts n records that are due at some time, changed by change, and
// waits until lists are expected to show them.
func newQueue(ctx context.Context, s listStore, change func(i int, r *driver.Record, at time.Time), n int) (*queue, error) {
	// Between 1970 and 1998: in the past, also in a synctest bubble, whose clock begins in 2000.
	q := &queue{at: time.UnixMilli(1 + rand.Int64N(9e11)).UTC(), lag: s.lag}
	for i := range n {
		r := fullRecord()
		r.State, r.Expires, r.Due, r.Exhausted, r.Announced = driver.StateUnknown, time.Time{}, q.at, false, false
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

// found returns the entries of the queue that are in a list, each once.
func (q *queue) found(list iter.Seq2[driver.Listed, error]) (map[idempotent.RecordID]*driver.Listed, error) {
	found := map[idempotent.RecordID]*driver.Listed{}
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

// ordered checks the order of a list that is not empty.
func (q *queue) ordered(name string, list iter.Seq2[driver.Listed, error]) error {
	var last time.Time
	for r, err := range list {
		i := q.index(r.ID)
		switch {
		case err != nil && r.ID == "":
			return fmt.Errorf("%s: %w", name, err)
		case i < 0:
			continue
		case q.records[i].Due.Before(last):
			return fmt.Errorf("%s lists a record of %s after one of %s", name, q.records[i].Due, last)
		}
		last = q.records[i].Due
	}
	if last.IsZero() {
		return fmt.Errorf("%s lists nothing", name)
	}
	return nil
}

// lists checks that a list contains exactly the wanted records.
func (q *queue) lists(name string, list iter.Seq2[driver.Listed, error], want []driver.Record) error {
	found, err := q.found(list)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range want {
		if found[r.ID] == nil {
			return fmt.Errorf("%s does not list a record that is due at %s, exhausted: %t", name, r.Due, r.Exhausted)
		}
		delete(found, r.ID)
	}
	for _, r := range found {
		return fmt.Errorf("%s lists a record that is %s and due at %s", name, r.State, r.Due)
	}
	return nil
}
