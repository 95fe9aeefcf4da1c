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

// broken is a store that breaks one rule of the contract, or a broken guard
// over a sound store.
type broken struct {
	name   string
	spoil  func(*shelf)      // breaks the store
	chunks func(*chunkShelf) // or its handling of large results
	lists  func(*listShelf)  // or its lists
	guard  *mutation         // or the guard
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

// forgetfulStores returns stores that lose one field of a record, or of its
// steps: on every write, on a Replace that should have changed it, or on an
// Insert over an expired record. It reads the fields from the type, so new
// fields are covered automatically.
func forgetfulStores() []broken {
	var stores []broken
	record := reflect.TypeFor[driver.Record]()
	for i := range record.NumField() {
		field := record.Field(i).Name
		if field == "Extra" {
			continue // set by the store
		}
		stores = append(stores, broken{name: field + " is lost", caught: []string{"EveryFieldIsKept"},
			spoil: kept(func(r *driver.Record) { reflect.ValueOf(r).Elem().Field(i).SetZero() })})
		if field == "ID" {
			continue // equal in both records
		}
		keep := func(old *driver.Record, r driver.Record) *driver.Record {
			r = *r.Clone()
			reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(old).Elem().Field(i))
			return &r
		}
		stores = append(stores, broken{name: "Replace retains the old " + field, caught: []string{"ReplaceWrites"},
			spoil: func(s *shelf) {
				s.write = func(op Op, old *driver.Record, r driver.Record) *driver.Record {
					if old == nil || op == OpInsert {
						return r.Clone()
					}
					return keep(old, r)
				}
			}},
			broken{name: "Insert retains the expired " + field, caught: []string{"InsertReplacesExpired"},
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

// twoLocks uses one lock for Inserts and another one for Replaces, so that an
// Insert and a Replace do not exclude each other.
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

// ignoring returns a begin hook that checks the context, except for the given
// operations. Without any, it never checks.
func ignoring(ops ...Op) func(context.Context, Op) error {
	return func(ctx context.Context, op Op) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return nil
		}
		return ctx.Err()
	}
}

// reading makes Get return give(record).
func reading(give func(*driver.Record) *driver.Record) func(*driver.Record) (*driver.Record, error) {
	return func(r *driver.Record) (*driver.Record, error) {
		if r == nil {
			return nil, idempotent.ErrNoRecord
		}
		return give(r), nil
	}
}

// unsafely makes the selected writes of a shelf non-atomic. Between the check
// and the write, a writer waits until another one has passed its own check. It
// stops waiting after a while, or earlier if no other writer is active, but
// only after other goroutines had a chance to run.
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

// kept changes every record before it is stored.
func kept(spoil func(*driver.Record)) func(*shelf) {
	return func(s *shelf) {
		s.write = func(_ Op, _ *driver.Record, r driver.Record) *driver.Record {
			c := r.Clone()
			spoil(c)
			return c
		}
	}
}

// everyTime changes each time of a record.
func everyTime(spoil func(time.Time) time.Time) func(*shelf) {
	return kept(func(r *driver.Record) {
		for _, t := range []*time.Time{&r.LeaseEnd, &r.Expires, &r.Created, &r.Settled, &r.OpenSince, &r.Due} {
			*t = spoil(*t)
		}
	})
}

// merged returns old with the fields that r sets, like an update of single
// attributes.
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
