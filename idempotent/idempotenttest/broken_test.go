package idempotenttest

import (
	"context"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// broken is a store that breaks one rule of the contract, or a guard over a
// store that keeps it.
type broken struct {
	name   string
	spoil  func(*shelf)      // what is wrong with the store
	chunks func(*chunkShelf) // or with how it keeps large results
	lists  func(*listShelf)  // or with how it lists
	guard  *mutation         // or with the guard
	// caught names the requirements of RunStore and the rows of RunFailureModes
	// that have to fail. Others may fail too.
	caught []string
}

func (b broken) fixture() Fixture {
	var m mutation
	if b.guard != nil {
		m, b.chunks = *b.guard, func(*chunkShelf) {}
	}
	return Fixture{
		mutation: m,
		Open: func(testing.TB) driver.Store {
			if b.lists != nil {
				s := newListShelf()
				b.lists(s)
				return s
			}
			if b.chunks != nil {
				s := newChunkShelf()
				b.chunks(s)
				return s
			}
			s := newShelf()
			if b.spoil != nil {
				b.spoil(s)
			}
			return s
		},
		Reopen: func(_ testing.TB, s driver.Store) driver.Store {
			if plain, ok := s.(*shelf); ok {
				return plain.reopen()
			}
			return s
		},
		Remove: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			s.(interface{ remove(idempotent.RecordID) }).remove(id)
			return nil
		},
		Damage: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			s.(*listShelf).damaged[id] = true
			return nil
		},
	}
}

var (
	brokenStores = slices.Concat(brokenInserts, brokenReplaces, brokenKeeping, brokenChunks, brokenLists)
	allBroken    = slices.Concat(brokenStores, brokenGuards)
)

// forgetfulStores lose each field of a record, and of its steps, in turn:
// whenever they write, where a Replace should have changed it, or where an
// Insert over an expired record should have. The fields are those that a record
// has: a new one is among them by itself.
func forgetfulStores() []broken {
	var stores []broken
	record := reflect.TypeFor[driver.Record]()
	for i := range record.NumField() {
		field := record.Field(i).Name
		if field == "Extra" {
			continue // the store's own
		}
		stores = append(stores, broken{name: field + " is lost", caught: []string{"EveryFieldIsKept"},
			spoil: kept(func(r *driver.Record) { reflect.ValueOf(r).Elem().Field(i).SetZero() })})
		if field == "ID" {
			continue // both records have the same
		}
		keep := func(old *driver.Record, r driver.Record) *driver.Record {
			r = *r.Clone()
			reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(old).Elem().Field(i))
			return &r
		}
		stores = append(stores, broken{name: "Replace keeps the old " + field, caught: []string{"ReplaceWrites"},
			spoil: func(s *shelf) {
				s.write = func(op Op, old *driver.Record, r driver.Record) *driver.Record {
					if old == nil || op == OpInsert {
						return r.Clone()
					}
					return keep(old, r)
				}
			}},
			broken{name: "Insert keeps the expired " + field, caught: []string{"InsertReplacesExpired"},
				spoil: func(s *shelf) {
					s.write = func(op Op, old *driver.Record, r driver.Record) *driver.Record {
						if old == nil || op != OpInsert {
							return r.Clone()
						}
						return keep(old, r)
					}
				}})
	}
	step := reflect.TypeFor[driver.StepRecord]()
	for i := range step.NumField() {
		stores = append(stores, broken{name: step.Field(i).Name + " of a step is lost", caught: []string{"EveryFieldIsKept"},
			spoil: kept(func(r *driver.Record) {
				for s := range r.Steps {
					reflect.ValueOf(&r.Steps[s]).Elem().Field(i).SetZero()
				}
			})})
	}
	return stores
}

// twoLocks lets Inserts exclude each other, and Replaces, but not these those.
func twoLocks(s *shelf) {
	locks := map[Op]*sync.Mutex{OpInsert: {}, OpReplace: {}}
	right := s.begin
	s.begin = func(ctx context.Context, op Op) error {
		if err := right(ctx, op); err != nil || op == OpGet {
			return err
		}
		locks[op].Lock()
		return nil
	}
	s.end = func(_ context.Context, op Op) error {
		locks[op].Unlock()
		return nil
	}
	s.unsafely(func(_ Op, old, _ *driver.Record) bool { return old != nil })
}

// ignoring looks at the context but for the operations named, or for none.
func ignoring(ops ...Op) func(context.Context, Op) error {
	return func(ctx context.Context, op Op) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return nil
		}
		return ctx.Err()
	}
}

// reading makes Get return what give makes of a record.
func reading(give func(*driver.Record) *driver.Record) func(*driver.Record) (*driver.Record, error) {
	return func(r *driver.Record) (*driver.Record, error) {
		if r == nil {
			return nil, idempotent.ErrNoRecord
		}
		return give(r), nil
	}
}

// unsafely makes those writes of a shelf that are named take two steps: in the
// gap between them a writer waits until another one is there too, so that both
// have found their condition true. It goes on after a while, and sooner where
// nobody else is about; but not before others had their turns, however busy the
// machine is.
func (s *shelf) unsafely(writes func(op Op, old, r *driver.Record) bool) {
	var arrived atomic.Int32
	s.gap = func(op Op, old, r *driver.Record) {
		if !writes(op, old, r) {
			return
		}
		s.mu.Unlock()
		defer s.mu.Lock()
		n := arrived.Add(1)
		began := time.Now()
		for turns := 0; n%2 == 1 && arrived.Load() == n; turns++ {
			patience := 200 * time.Millisecond
			if s.writers.Load() == 1 {
				patience = 25 * time.Millisecond
			}
			if time.Since(began) > patience && turns > 100 && arrived.CompareAndSwap(n, n-1) {
				return
			}
			runtime.Gosched()
		}
	}
}

// kept spoils what is kept of a record.
func kept(spoil func(*driver.Record)) func(*shelf) {
	return func(s *shelf) {
		s.write = func(_ Op, _ *driver.Record, r driver.Record) *driver.Record {
			c := r.Clone()
			spoil(c)
			return c
		}
	}
}

// everyTime spoils each time of a record.
func everyTime(spoil func(time.Time) time.Time) func(*shelf) {
	return kept(func(r *driver.Record) {
		for _, t := range []*time.Time{&r.LeaseEnd, &r.Expires, &r.Created, &r.Settled, &r.OpenSince, &r.Due} {
			*t = spoil(*t)
		}
	})
}

// merged returns old with what r has set, as an update of single attributes.
func merged(old *driver.Record, r driver.Record) *driver.Record {
	c := old.Clone()
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(*r.Clone())
	for i := range from.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return c
}
