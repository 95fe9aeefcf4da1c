// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
)

func passes(ctx context.Context, c *StoreCall) { c.Do(ctx) }

func unwrapped(s driver.Store) driver.Store { return s.(interface{ Unwrap() driver.Store }).Unwrap() }

// A store whose calls are only passed on still satisfies the contract.
func TestInterceptedStores(t *testing.T) {
	t.Parallel()
	for name, inner := range sound {
		outer := inner
		outer.Open = func(t testing.TB) driver.Store { return Intercept(inner.Open(t), passes) }
		if inner.Remove != nil {
			outer.Remove = func(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
				return inner.Remove(ctx, unwrapped(s), id)
			}
		}
		if inner.Damage != nil {
			outer.Damage = func(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
				return inner.Damage(ctx, unwrapped(s), id)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			RunStore(t, outer)
		})
	}
}

// The result has the optional interfaces of the store, and no others.
func TestInterceptKeepsTheKindOfStore(t *testing.T) {
	t.Parallel()
	records, lists, scans := newShelf(), newListShelf(), newAbandonedShelf()
	for _, s := range []driver.Store{
		records, lists, scans,
		newChunkShelf(),
		struct {
			driver.ChunkStore
			*listShelf
		}{newChunkShelf(), lists},
		struct {
			driver.ChunkStore
			*abandonedShelf
		}{newChunkShelf(), scans},
	} {
		over := Intercept(s, passes)
		for what, has := range map[string]func(driver.Store) bool{
			"chunks": func(s driver.Store) bool { _, ok := s.(driver.ChunkStore); return ok },
			"lists":  func(s driver.Store) bool { _, ok := s.(driver.DueLister); return ok },
			"scans":  func(s driver.Store) bool { _, ok := s.(driver.AbandonedLister); return ok },
		} {
			if has(over) != has(s) {
				t.Errorf("%T has %s: %t; intercepted: %t", s, what, has(s), has(over))
			}
		}
		if unwrapped(over) != s {
			t.Errorf("%T: Unwrap does not return it", s)
		}
	}
}

// Every method gets its faults under its own name, and has no reply if it fails.
func TestFaultsOfEveryMethod(t *testing.T) {
	t.Parallel()
	ctx, r := t.Context(), fullRecord()
	for op, call := range map[driver.Op]func(chunkStore) (replied bool, err error){
		driver.OpInsert:  func(s chunkStore) (bool, error) { met, err := s.Insert(ctx, r, now()); return met != nil, err },
		driver.OpReplace: func(s chunkStore) (bool, error) { met, err := s.Replace(ctx, r, newVersion()); return met != nil, err },
		driver.OpGet:     func(s chunkStore) (bool, error) { got, err := s.Get(ctx, r.ID); return got != nil, err },
		driver.OpPutChunks: func(s chunkStore) (bool, error) {
			n, err := s.PutChunks(ctx, r.ID, r.Version, r.Result, r.Expires)
			return n > 0, err
		},
		driver.OpGetChunks: func(s chunkStore) (bool, error) {
			data, err := s.GetChunks(ctx, r.ID, r.Version, 1)
			return data != nil, err
		},
	} {
		below, f := &faults.Injector{}, &faults.Injector{Plan: faults.On(op, faults.LostReply, 2)}
		shelf := newChunkShelf()
		shelf.records[shelf.name(r.ID)] = &r
		if _, err := shelf.PutChunks(ctx, r.ID, r.Version, r.Result, r.Expires); err != nil {
			t.Fatal(err)
		}
		s := faulty(faulty(shelf, below), f).(chunkStore)
		if replied, err := call(s); !replied || err != nil {
			t.Errorf("%s: the first call has a reply: %t, and error %v", op, replied, err)
		}
		if replied, err := call(s); replied || !errors.Is(err, faults.ErrInjected) {
			t.Errorf("%s: the second call has a reply: %t, and error %v, want ErrInjected", op, replied, err)
		}
		if got := below.Calls(op); got != 2 {
			t.Errorf("%s arrived %d times, want 2", op, got)
		}
		if got, want := f.Injected(), (map[faults.Injection]int{{Op: op, Fault: faults.LostReply}: 1}); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", op, got, want)
		}
	}
}

// A list is one call: it can fail before its first entry and after its last one, and
// a reader who stopped gets nothing more.
func TestInterceptLists(t *testing.T) {
	t.Parallel()
	errDown, inner, reads := errors.New("down"), newAbandonedShelf(), 0
	inner.between = func(context.Context, int) error { reads++; return nil }
	for range 2 {
		r := emptyRecord()
		r.State, r.Due = driver.StateUnknown, now()
		if met, err := inner.Insert(t.Context(), r, now()); met != nil || err != nil {
			t.Fatal(met, err)
		}
	}
	fails := func(ctx context.Context, c *StoreCall) { c.Err = errDown }
	for name, row := range map[string]struct {
		hook   func(context.Context, *StoreCall)
		most   int // how many entries are read
		listed int
		err    error
		reads  int // of entries and of the end
	}{
		"passed on":            {passes, 9, 2, nil, 3},
		"failed before":        {fails, 9, 0, errDown, 0},
		"failed after":         {func(ctx context.Context, c *StoreCall) { c.Do(ctx); fails(ctx, c) }, 9, 2, errDown, 3},
		"failed after the end": {func(ctx context.Context, c *StoreCall) { c.Do(ctx); fails(ctx, c) }, 1, 1, nil, 1},
		"made twice":           {func(ctx context.Context, c *StoreCall) { c.Do(ctx); c.Do(ctx) }, 1, 1, nil, 2},
	} {
		reads = 0
		s := Intercept(inner, func(ctx context.Context, c *StoreCall) {
			if c.Op != driver.OpListDue {
				t.Errorf("%s: a call of %s", name, c.Op)
			}
			row.hook(ctx, c)
		}).(driver.AbandonedLister)
		listed, last := 0, error(nil)
		for _, last = range s.Due(t.Context(), time.Time{}) {
			if last == nil {
				listed++
			}
			if listed == row.most {
				break
			}
		}
		if listed != row.listed || !errors.Is(last, row.err) || reads != row.reads {
			t.Errorf("%s: %d entries, error %v and %d reads, want %d, %v and %d", name, listed, last, reads, row.listed, row.err, row.reads)
		}
	}
	begun := now()
	for name, row := range map[string]struct {
		hook       func(context.Context, *StoreCall)
		below, err error
		scanned    driver.Scanned
	}{
		"passed on":    {passes, nil, nil, driver.Scanned{Began: begun}},
		"not made":     {fails, nil, errDown, driver.Scanned{}},
		"failed below": {passes, errDown, errDown, driver.Scanned{}},
	} {
		inner.between = func(context.Context, int) error { return row.below }
		scanned, err := Intercept(inner, row.hook).(driver.AbandonedLister).Abandoned(t.Context(), begun, func([]driver.Listed) bool { return true })
		if !errors.Is(err, row.err) || scanned != row.scanned {
			t.Errorf("%s: got %+v and error %v, want %+v and %v", name, scanned, err, row.scanned, row.err)
		}
	}
}
