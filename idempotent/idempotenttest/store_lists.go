// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
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
			return q.lists("Due", s.Due(ctx, time.Time{}), 0, 1, 2)
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
			due, dueErr := q.found(s.Due(ctx, time.Time{}))
			running, runningErr := q.found(s.Running(ctx))
			if !slices.Contains(due, 3) {
				dueErr = errors.Join(dueErr, errors.New("Due does not list an announced record"))
			}
			if slices.Contains(running, 2) {
				runningErr = errors.Join(runningErr, errors.New("Running lists a record that is unknown"))
			}
			return errors.Join(dueErr, runningErr, sameRecords("Due or Running", slices.Sorted(slices.Values(append(due, running...))), []int{0, 1, 2, 3}))
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
			for name, list := range map[string]iter.Seq2[driver.Listed, error]{"Due": s.Due(ctx, time.Time{}), "Exhausted": s.Exhausted(ctx)} {
				found, err := q.found(list)
				earlier := func(i, j int) int { return q.records[i].Due.Compare(q.records[j].Due) }
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if len(found) == 0 || !slices.IsSortedFunc(found, earlier) {
					return fmt.Errorf("%s lists the records %v; they are due in the order %v", name, found, order)
				}
			}
			return nil
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
			found, err := q.found(s.Due(ctx, q.records[3].Due)) // the third one, because the first record is exhausted
			return errors.Join(err, sameRecords("Due after a time", found, []int{2, 1}))
		}),
	listRequirement("ExhaustedAreApart",
		"Exhausted lists exactly the records that reconciliation has given up; Due does not list them.",
		func(ctx context.Context, s listStore) error {
			q, err := newQueue(ctx, s, func(i int, r *driver.Record, _ time.Time) { r.Exhausted = i > 0 }, 3)
			if err != nil {
				return err
			}
			return errors.Join(
				q.lists("Due", s.Due(ctx, time.Time{}), 0),
				q.lists("Exhausted", s.Exhausted(ctx), 1, 2))
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
			if err := q.lists("Due", s.Due(ctx, time.Time{}), 1, 2); err != nil {
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
				q.lists("Due", s.Due(ctx, time.Time{}), 0),
				q.lists("Exhausted", s.Exhausted(ctx), 2))
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
			listed := make([]driver.Listed, len(states))
			for _, list := range []iter.Seq2[driver.Listed, error]{s.Due(ctx, time.Time{}), s.Running(ctx)} {
				for e, err := range list {
					if i := q.index(e.ID); err == nil && i >= 0 {
						listed[i] = e
					}
				}
			}
			for i := range q.records {
				if want := q.records[i].Listed(); listed[i] != want {
					return fmt.Errorf("a record is listed as %+v, want %+v", listed[i], want)
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

// Running lists nothing if Due lists the records in progress.
func (s listStore) Running(ctx context.Context) iter.Seq2[driver.Listed, error] {
	if s.running == nil {
		return func(func(driver.Listed, error) bool) {}
	}
	return s.running.Running(ctx)
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
		r.State, r.Due, r.Exhausted = driver.StateUnknown, q.at, false
		change(i, &r, q.at)
		if err := insertNew(ctx, s, r); err != nil {
			return nil, err
		}
		q.records = append(q.records, r)
	}
	time.Sleep(q.lag)
	return q, nil
}

// change writes a changed record i, once, and waits until lists are expected to show it.
func (q *queue) change(ctx context.Context, s driver.Store, i int, change func(*driver.Record)) error {
	next := q.records[i]
	next.Version = newVersion()
	change(&next)
	err := replaceCurrent(ctx, s, next, q.records[i].Version)
	time.Sleep(q.lag)
	return err
}

// index returns the index of the record with that id, or -1.
func (q *queue) index(id idempotent.RecordID) int {
	return slices.IndexFunc(q.records, func(r driver.Record) bool { return r.ID == id })
}

// found returns which records of the queue are in a list, in its order. Records of
// other tests are in it, too.
func (q *queue) found(list iter.Seq2[driver.Listed, error]) (found []int, err error) {
	for e, err := range list {
		i := q.index(e.ID)
		if err != nil && (i >= 0 || e.ID == "") {
			return found, err
		}
		if i >= 0 {
			found = append(found, i)
		}
	}
	return found, nil
}

// lists checks that a list contains exactly the wanted records, each once.
func (q *queue) lists(name string, list iter.Seq2[driver.Listed, error], want ...int) error {
	found, err := q.found(list)
	slices.Sort(found)
	return errors.Join(err, sameRecords(name, found, want))
}

func sameRecords(list string, got, want []int) error {
	if slices.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("%s lists the records %v, want %v", list, got, want)
}
