// SPDX-License-Identifier: Apache-2.0

package timing_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/internal/timing"
)

var (
	at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	// limits are the defaults of an operation, at a time that stands still; inBubble has
	// the clock of a testing/synctest bubble.
	limits   = timing.Limits{DefaultLease: 15 * time.Minute, LeaseMargin: 3 * time.Second, DeadlineReserve: timing.DefaultReserve, Now: func() time.Time { return at }}
	inBubble = timing.Limits{LeaseMargin: 3 * time.Second, Now: time.Now}
)

// F35: a lease ends one margin after the deadline, or after DefaultLease.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                                     string
		left                                     time.Duration // 0: no deadline
		reserve                                  time.Duration // 0: the default
		handlerEnd, answerBy, deadline, leaseEnd time.Duration // from now
	}{
		{"a long one", 10 * time.Second, 0, 9500 * ms, 9900 * ms, 10 * time.Second, 13 * time.Second},
		{"a fifth is reserved, and a fifth of that is for the answer", 1500 * ms, 0, 1200 * ms, 1440 * ms, 1500 * ms, 4500 * ms},
		{"a short one: 50 ms are for the answer", time.Second, 0, 800 * ms, 950 * ms, time.Second, 4 * time.Second},
		{"a very short one: half of the reserve", 400 * ms, 0, 320 * ms, 360 * ms, 400 * ms, 3400 * ms},
		{"a long reserve", 30 * time.Second, 5 * time.Second, 25 * time.Second, 29900 * ms, 30 * time.Second, 33 * time.Second},
		{"the shortest reserve", 30 * time.Second, 100 * ms, 29900 * ms, 29950 * ms, 30 * time.Second, 33 * time.Second},
		{"past", -time.Second, 0, -time.Second, -time.Second, -time.Second, 2 * time.Second},
		{"none", 0, 0, 15*time.Minute - 3500*ms, 15*time.Minute - 3*time.Second, 15*time.Minute - 3*time.Second, 15 * time.Minute},
	} {
		l := limits
		l.DeadlineReserve = cmp.Or(row.reserve, l.DeadlineReserve)
		ctx := t.Context()
		if row.left != 0 {
			ctx = past{ctx, at.Add(row.left)}
		}
		w := l.Window(ctx, at)
		got := [4]time.Duration{w.HandlerEnd.Sub(at), w.AnswerBy.Sub(at), w.Deadline.Sub(at), w.LeaseEnd.Sub(at)}
		if want := [4]time.Duration{row.handlerEnd, row.answerBy, row.deadline, row.leaseEnd}; got != want || w.Bounded != (row.left != 0) {
			t.Errorf("%s: got handler end, end of waits, deadline and lease end %v, want %v; bounded: %t", row.name, got, want, w.Bounded)
		}
	}
}

// Inside a front, the guard has the time of the front, as long as that lasts and the context
// does not end before.
func TestWindowWithin(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                           string
		function, gateway              time.Duration // of the front, from its begin; 0: none
		later                          time.Duration // when the guard begins
		shortened                      time.Duration // the deadline of its context; 0: that of the function
		handlerEnd, answerBy, deadline time.Duration // from the begin of the front
		bounded                        bool
	}{
		{"a gateway's time", 40 * time.Second, 29 * time.Second, 0, 0, 28500 * ms, 28900 * ms, 40 * time.Second, true},
		{"the rest of it", 40 * time.Second, 29 * time.Second, 28 * time.Second, 0, 28750 * ms, 28900 * ms, 40 * time.Second, true},
		{"the function's", 10 * time.Second, 29 * time.Second, 0, 0, 9500 * ms, 9900 * ms, 10 * time.Second, true},
		{"a shorter context", 40 * time.Second, 29 * time.Second, 0, 5 * time.Second, 4500 * ms, 4900 * ms, 5 * time.Second, true},
		{"a gateway's alone", 0, 29 * time.Second, 0, 0, 28500 * ms, 28900 * ms, 15*time.Minute - 3*time.Second, true},
		{"over", 0, 29 * time.Second, 29 * time.Second, 0, 15*time.Minute + 25500*ms, 15*time.Minute + 26*time.Second, 15*time.Minute + 26*time.Second, false},
	} {
		ctx := t.Context()
		if row.function != 0 {
			ctx = past{ctx, at.Add(row.function)}
		}
		ctx = timing.Within(ctx, func() time.Time { return at }, timing.DefaultReserve, row.gateway)
		if row.shortened != 0 {
			ctx = past{ctx, at.Add(row.shortened)}
		}
		w := limits.Window(ctx, at.Add(row.later))
		got := [3]time.Duration{w.HandlerEnd.Sub(at), w.AnswerBy.Sub(at), w.Deadline.Sub(at)}
		if want := [3]time.Duration{row.handlerEnd, row.answerBy, row.deadline}; got != want || w.Bounded != row.bounded {
			t.Errorf("%s: got handler end, end of waits and deadline %v, want %v; bounded: %t", row.name, got, want, w.Bounded)
		}
	}
}

// The answer waits for a release for half of the time that it has, and at most for the
// margin of a lease.
func TestReleaseTime(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{4 * time.Second: 2 * time.Second, 6*time.Second + 2: 3 * time.Second, time.Minute: 3 * time.Second} {
		w := timing.Window{Limits: limits, AnswerBy: at.Add(left), Deadline: at.Add(left), Bounded: true}
		if got := w.ReleaseTime(); got != want {
			t.Errorf("%s left: it waits %s, want %s", left, got, want)
		}
		if w.Bounded = false; w.ReleaseTime() != 3*time.Second {
			t.Errorf("without a limit it waits %s", w.ReleaseTime())
		}
	}
}

// A handler needs 100 ms or twice the last store call, at most a fifth of the
// request's time, and at least a millisecond.
func TestTimeToEnterIsBounded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ whole, call, want time.Duration }{
		{10 * time.Second, 0, 100 * ms},
		{10 * time.Second, 50 * ms, 100 * ms},
		{10 * time.Second, 51 * ms, 102 * ms},
		{10 * time.Second, 5 * time.Second, 2 * time.Second},
		{100 * ms, 0, 20 * ms},
		{2 * ms, 0, ms},
	} {
		w := timing.Window{Began: at, Deadline: at.Add(row.whole)}
		if got := w.TimeToEnter(row.call); got != row.want {
			t.Errorf("of %s after a call of %s: got %s, want %s", row.whole, row.call, got, row.want)
		}
	}
}

// An outcome can be written until the answer is due, then for half of the time until the
// deadline, and after it for as long as the margin, even if the request's own context has
// ended.
func TestOutcomeContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{
			10 * time.Second: 9900 * ms,
			100*ms + 1:       1,
			100 * ms:         50 * ms,
			2:                1,
			0:                3 * time.Second,
			-time.Minute:     3 * time.Second,
		} {
			gone, end := context.WithCancel(t.Context())
			end()
			deadline := time.Now().Add(left)
			ctx, cancel := (&timing.Window{Limits: inBubble, AnswerBy: deadline.Add(-100 * ms), Deadline: deadline}).OutcomeContext(gone)
			until, ok := ctx.Deadline()
			if got := time.Until(until); !ok || got != want || ctx.Err() != nil {
				t.Errorf("%s before the deadline: %s left for the write, want %s (%v)", left, got, want, ctx.Err())
			}
			cancel()
		}
	})
}

// A step can be written until the handler's time ends, or for half of the time until the
// answer is due, if that is longer. Then it has half of the time until the deadline, and
// after it as long as the margin. The request's own context may have ended.
func TestStepContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone, end := context.WithCancel(t.Context())
		end()
		for _, row := range []struct{ handler, deadline, step, transaction time.Duration }{
			{9500 * ms, 10 * time.Second, 9500 * ms, 9700 * ms},
			{500 * ms, 1000 * ms, 500 * ms, 700 * ms},
			{400*ms + 2, 900*ms + 2, 400*ms + 2, 600*ms + 2},
			{400*ms - 2, 900*ms - 2, 400*ms - 1, 600*ms - 2},
			{2, 500*ms + 2, 200*ms + 1, 200*ms + 2},
			{-2, 500*ms - 2, 200*ms - 1, 200*ms - 1},
			{-300 * ms, 200 * ms, 50 * ms, 50 * ms},
			{-400 * ms, 100 * ms, 50 * ms, 50 * ms},
			{-450 * ms, 50 * ms, 25 * ms, 25 * ms},
			{-500 * ms, 0, 3 * time.Second, 3 * time.Second},
			{-time.Minute, -50 * time.Second, 3 * time.Second, 3 * time.Second},
		} {
			now := time.Now()
			w := timing.Window{Limits: inBubble, HandlerEnd: now.Add(row.handler), AnswerBy: now.Add(row.deadline - 100*ms), Deadline: now.Add(row.deadline)}
			for _, c := range []struct {
				context func(context.Context) (context.Context, context.CancelFunc)
				want    time.Duration
			}{{w.StepContext, row.step}, {w.TransactionContext, row.transaction}} {
				ctx, cancel := c.context(gone)
				deadline, ok := ctx.Deadline()
				if got := deadline.Sub(now); !ok || got != c.want || ctx.Err() != nil {
					t.Errorf("%s before the handler's end: %s left for the write, want %s (%v)", row.handler, got, c.want, ctx.Err())
				}
				cancel()
			}
		}
	})
}

// An announcement has two thirds of the time until the answer is due.
// The request's own context may have ended.
func TestAnnounceContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone, end := context.WithCancel(t.Context())
		end()
		for left, want := range map[time.Duration]time.Duration{
			400 * ms: 200 * ms, 160 * ms: 40 * ms, 100*ms + 2: 1, 100*ms + 1: 50 * ms, 100 * ms: 50 * ms, 0: 3 * time.Second,
		} {
			deadline := time.Now().Add(left)
			ctx, cancel := (&timing.Window{Limits: inBubble, AnswerBy: deadline.Add(-100 * ms), Deadline: deadline}).AnnounceContext(gone)
			until, ok := ctx.Deadline()
			if got := time.Until(until); !ok || got != want || ctx.Err() != nil {
				t.Errorf("%s before the deadline: %s left, want %s (%v)", left, got, want, ctx.Err())
			}
			cancel()
		}
	})
}

// A lease ends in UTC and at a whole millisecond, whatever the deadline: stores and tests
// compare whole records.
func TestLeaseEndIsStoredExactly(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("elsewhere", 3600)
	w := limits.Window(past{t.Context(), at.Add(1500 * time.Microsecond).In(zone)}, at)
	if want := at.Add(3001 * ms); w.LeaseEnd != want {
		t.Errorf("the lease ends at %v, want %v", w.LeaseEnd, want)
	}
}

// The claim has the time of the handler. Its context ends for another reason if the caller
// has gone, and not at all without a deadline.
func TestClaimContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caller, leave := context.WithCancel(t.Context())
		w := timing.Window{Began: at, HandlerEnd: at.Add(time.Second)}
		if ctx, _ := w.ClaimContext(caller); ctx != caller {
			t.Error("without a deadline, the claim has another context than its caller")
		}
		w.Bounded = true
		first, end := w.ClaimContext(caller)
		defer end()
		start := time.Now()
		if <-first.Done(); time.Since(start) != time.Second || !timing.TimeUp(first) {
			t.Errorf("after %s, the time is up: %t", time.Since(start), timing.TimeUp(first))
		}
		second, end := w.ClaimContext(caller)
		defer end()
		if leave(); second.Err() == nil || timing.TimeUp(second) {
			t.Errorf("the caller has gone: %v, the time is up: %t", second.Err(), timing.TimeUp(second))
		}
	})
}

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
