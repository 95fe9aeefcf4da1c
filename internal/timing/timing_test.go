// SPDX-License-Identifier: Apache-2.0

package timing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/internal/timing"
)

const ms = time.Millisecond

func TestMargin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ reserve, left, reserved, margin time.Duration }{
		{500 * ms, 2500 * ms, 500 * ms, 100 * ms},
		{500 * ms, 2495 * ms, 499 * ms, 499 * ms / 5},
		{500 * ms, 1500 * ms, 300 * ms, 60 * ms},
		{500 * ms, 1250 * ms, 250 * ms, 50 * ms},
		{500 * ms, time.Second, 200 * ms, 50 * ms},
		{500 * ms, 500 * ms, 100 * ms, 50 * ms},
		{500 * ms, 400 * ms, 80 * ms, 40 * ms},
		{5 * time.Second, time.Minute, 5 * time.Second, 100 * ms},
		{500 * ms, 0, 0, 0},
		{500 * ms, -time.Second, 0, 0},
	} {
		reserved := timing.Reserve(row.reserve, row.left)
		if margin := timing.Margin(reserved); reserved != row.reserved || margin != row.margin {
			t.Errorf("a reserve of %s, of %s: %s is reserved, and %s for the answer; want %s and %s", row.reserve, row.left, reserved, margin, row.reserved, row.margin)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ function, gateway, deadline, by time.Duration }{ // 0: none
			{0, 0, 0, 0},
			{3 * time.Second, 0, 3 * time.Second, 2900 * ms},
			{40 * time.Second, 29 * time.Second, 29 * time.Second, 28900 * ms},
			{10 * time.Second, 29 * time.Second, 10 * time.Second, 9900 * ms},
			{0, time.Second, time.Second, 950 * ms},
		} {
			start := time.Now()
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.function > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.function)
			}
			ctx = timing.Within(ctx, time.Now, 500*ms, row.gateway)
			got, ok := timing.From(ctx)
			if ok != (row.by != 0) || ok && (got.Deadline.Sub(start) != row.deadline || got.By.Sub(start) != row.by) {
				t.Errorf("a function of %s behind a gateway of %s: got %v, %t; want %s and %s", row.function, row.gateway, got, ok, row.deadline, row.by)
			}
			half, end := timing.Half(ctx, time.Now)
			if err := half.Err(); err != nil {
				t.Errorf("a function of %s behind a gateway of %s: %v before the call", row.function, row.gateway, err)
			}
			until, ok := half.Deadline()
			if ok != (row.by != 0) || ok && until.Sub(start) != row.by/2 {
				t.Errorf("a function of %s behind a gateway of %s: a function of the user has until %s, %t; want half of %s", row.function, row.gateway, until.Sub(start), ok, row.by)
			}
			if end(); half.Err() == nil {
				t.Error("the context was not ended")
			}
			cancel()
		}
	})
}

// A context of another clock, which has not ended although its deadline has passed.
func TestHalfOfAnotherClock(t *testing.T) {
	t.Parallel()
	ctx := past{t.Context(), time.Now().Add(-time.Hour)}
	within := timing.Within(ctx, func() time.Time { return ctx.deadline.Add(-3 * time.Second) }, 500*ms, 0)
	by, _ := timing.From(within)
	for _, late := range []time.Duration{0, ms} {
		half, end := timing.Half(within, func() time.Time { return by.By.Add(late) })
		if half.Err() == nil || !timing.Late(half) {
			t.Errorf("%s after the time of the answer: %v, late: %t", late, half.Err(), timing.Late(half))
		}
		end()
	}
}

type past struct {
	context.Context
	deadline time.Time
}

func (p past) Deadline() (time.Time, bool) { return p.deadline, true }

// A function that fails after its time is late, one that fails in time or returns a value
// is not, and neither is one whose caller has gone.
func TestCall(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("not found")
	waits := func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, errOwn }
	for name, row := range map[string]struct {
		f       func(context.Context) (int, error)
		gone    bool
		elapsed time.Duration // before the call
		late    bool
		err     error
		took    time.Duration
	}{
		"in time":               {func(context.Context) (int, error) { return 1, nil }, false, 0, false, nil, 0},
		"fails in time":         {func(context.Context) (int, error) { return 1, errOwn }, false, 0, false, errOwn, 0},
		"late":                  {waits, false, 0, true, errOwn, 1450 * ms},
		"late, with a value":    {func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil }, false, 0, false, nil, 1450 * ms},
		"the caller has gone":   {waits, true, 0, false, errOwn, 0},
		"half of what is left":  {waits, false, 2 * time.Second, true, errOwn, 450 * ms},
		"no time is left":       {waits, false, 2900 * ms, true, errOwn, 0},
		"the answer is overdue": {waits, false, 2950 * ms, true, errOwn, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			ctx = timing.Within(ctx, time.Now, 500*ms, 0)
			time.Sleep(row.elapsed)
			if row.gone {
				cancel()
			}
			start := time.Now()
			v, err := timing.Call(ctx, time.Now, row.f)
			late := new(timing.LateError)
			if v != 1 || !errors.Is(err, row.err) || errors.As(err, &late) != row.late || errors.Is(err, context.DeadlineExceeded) != row.late || time.Since(start) != row.took {
				t.Errorf("%s: got %d, %v after %s", name, v, err, time.Since(start))
			}
			if row.late && late.LogValue().String() != "the function did not return in half of the time that was left" {
				t.Errorf("%s: the log has %q", name, late.LogValue())
			}
			if want := "the function did not return in half of the time that was left: not found"; row.late && err.Error() != want {
				t.Errorf("%s: got %q", name, err)
			}
		})
	}
}
