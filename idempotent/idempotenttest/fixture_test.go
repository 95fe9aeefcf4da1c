// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/faults"
)

// A check of a lab that fails ends its scenario, and says what is wrong.
func TestChecksOfALab(t *testing.T) {
	t.Parallel()
	const other = "another record is due"
	lists := func(collected func(string, []listed) []listed) Fixture {
		return broken{lists: func(s *listShelf) { shared(s); s.collected = collected }}.fixture()
	}
	reset := errors.New("connection reset")
	immovable := sound["shelf"]
	immovable.Remove = func(context.Context, driver.Store, idempotent.RecordID) error { return reset }
	for name, row := range map[string]struct {
		fixture Fixture
		run     func(*lab)
		want    string
	}{
		"a guard that cannot be made": {broken{guard: options(func(o *idempotent.Options) { o.LeaseMargin = -1 })}.fixture(),
			func(l *lab) { l.worker() }, "LeaseMargin"},
		"a handler that must not be called": {sound["shelf"], func(l *lab) { l.worker().do(l.never()) }, "the handler was entered"},
		"a store that cannot be read": {broken{spoil: func(s *shelf) {
			s.read = func(*driver.Record) (*driver.Record, error) { return nil, reset }
		}}.fixture(), func(l *lab) { l.record() }, "Get: connection reset"},
		"no record":     {sound["shelf"], func(l *lab) { l.wantState(driver.StateUnknown) }, "there is no record, want one that is unknown"},
		"another state": {sound["shelf"], func(l *lab) { l.crashAfterEffect(); l.wantState(driver.StateUnknown) }, "the record is in_progress (claimed), want unknown"},
		"no lease":      {sound["shelf"], func(l *lab) { l.endLease() }, "there is no record whose lease could end"},
		"effects":       {sound["shelf"], func(l *lab) { l.wantEffects(1) }, "the provider saw 0 effects, want 1"},
		"an event":      {sound["shelf"], func(l *lab) { l.wantEvents(event.LeaseLost) }, "no event"},
		"no execution": {sound["shelf"], func(l *lab) { l.must(l.worker().commit(context.Background(), "ch_a")) },
			"the handler's context carries no execution"},
		"a record that cannot be removed": {immovable, func(l *lab) { l.crashAfterEffect(); l.remove() }, "connection reset"},
		other:                             {sound["listShelf"], func(l *lab) { l.wantListed() }, "the record is not in the list of due records"},
		"a list that fails": {lists(func(_ string, found []listed) []listed { return append(found, listed{err: reset}) }),
			func(l *lab) { l.wantListed() }, "connection reset"},

		"a version that was never written": {sound["shelf"], func(l *lab) {
			l.crashAfterEffect()
			l.line = Intercept(l.line, func(ctx context.Context, c *StoreCall) {
				if c.Do(ctx); c.Op == driver.OpGet {
					c.Current.Version = newVersion()
				}
			})
			_ = l.worker().notExecuted()
		}, "INV-12: the store returned a version"},
		"a refused claim that counts as won": {broken{guard: owns(func(*driver.Record, driver.Record) bool { return true })}.fixture(),
			func(l *lab) { l.worker().do(l.charge("ch_a")); l.worker().do(l.charge("ch_b")) }, "INV-10: a handler was entered"},
		"a failed claim that counts as won": {broken{guard: always(func(ctx context.Context, c *StoreCall) { c.Do(ctx); c.Err = nil })}.fixture(),
			func(l *lab) {
				a := l.worker()
				a.inject(faults.On(driver.OpInsert, faults.LostRequest))
				a.do(l.charge("ch_a"))
			}, "INV-10: a handler was entered"},
	} {
		if found := strings.Join((scenario{name, row.run}).alone(t, row.fixture), "; "); !strings.Contains(found, row.want) {
			t.Errorf("%s: got %q, want %q", name, found, row.want)
		}
	}
}

// The loops of one process meet: all but the one that runs are refused.
func TestLoopsMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, sound["shelf"])
		l.loops(l.worker())
		refused := 0
		for _, a := range l.history.answers {
			refused += one(errors.As(a.err, new(*idempotent.InProgressError)))
		}
		if refused < 7 {
			t.Errorf("%d requests were refused", refused)
		}
	})
}

// A store that takes a fifth of a second for a write, and heeds its context, passes the rows in
// which little time is left.
func TestSlowStoresAreSound(t *testing.T) {
	t.Parallel()
	slow := Fixture{Open: func(testing.TB) driver.Store {
		return Intercept(newShelf(), func(ctx context.Context, c *StoreCall) {
			if c.Op != driver.OpGet {
				time.Sleep(time.Second / 5)
			}
			c.Do(ctx)
		})
	}}
	for _, name := range []string{"FM65_ClaimLeftLessThanTheReserve", "FM11_KilledAtItsDeadline"} {
		synctest.Test(t, func(t *testing.T) {
			if found := scenarioNamed(t, name).alone(t, slow); len(found) > 0 {
				t.Errorf("%s: %s", name, strings.Join(found, "; "))
			}
		})
	}
}

// A guard feels an error that a fault can have caused. A client of a service returns
// its own errors.
func TestFeltFaults(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	for _, row := range []struct {
		wire, struck bool
		err          error
		felt         bool
	}{
		{false, true, faults.ErrInjected, true},
		{false, true, reset, false},
		{true, true, reset, true},
		{true, false, reset, false},
		{true, true, idempotent.ErrNoRecord, false},
		{true, true, driver.ErrTooLarge, false},
		{true, true, nil, false},
	} {
		w := newWeather(faults.On(driver.OpGet, faults.LostRequest), &Clock{}, 0)
		w.wire = row.wire
		if row.struck {
			_ = w.Do(t.Context(), driver.OpGet, func() error { return nil })
		}
		if w.feel(row.err); w.felt.Load() != row.felt {
			t.Errorf("%+v: felt: %t", row, w.felt.Load())
		}
	}
}

// A slow call takes a negligible time, or longer than what is left to the handler, the
// deadline or the lease, which is half a second or more before each.
func TestSlowCalls(t *testing.T) {
	t.Parallel()
	times := map[string]int{}
	for seed := range uint64(100) {
		var clock Clock
		begun := clock.Now()
		w := newWeather(faults.On("", faults.SlowReply, 1), &clock, seed)
		if err := w.Do(t.Context(), driver.OpGet, func() error { return nil }); err != nil || !w.felt.Load() {
			t.Fatalf("got error %v, and felt: %t", err, w.felt.Load())
		}
		switch took := clock.Now().Sub(begun); {
		case took < time.Millisecond:
			t.Errorf("it takes %s", took)
		case took < time.Second:
			times["negligible"]++
		case took < timeout-time.Second:
			times["a part"]++
		case took < timeout:
			times["most"]++
		case took > timeout && took < lease:
			times["past the deadline"]++
		case took > lease:
			times["past the lease"]++
		}
	}
	if len(times) != 5 {
		t.Errorf("slow calls take %v", times)
	}
}
