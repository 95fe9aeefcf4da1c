// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
)

const ms = time.Millisecond

// Records that a request finds.
func running(left time.Duration) *driver.Record {
	return &driver.Record{State: driver.StateInProgress, Created: start, LeaseEnd: start.Add(left)}
}

func unknownUntil(due time.Duration) *driver.Record {
	return &driver.Record{State: driver.StateUnknown, Due: start.Add(due)}
}

var free = &driver.Record{State: driver.StateRetryable}

func waitFor(d time.Duration) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.WaitFor = d }
}

// F80, F81, F82: what a request finds in the store, and what the store answers to it, decide
// whether the handler runs, what the caller gets, which calls are made, and what is
// reported.
func TestClaim(t *testing.T) {
	t.Parallel()
	var (
		noTime     = new(idempotent.NoTimeError)
		busy       = new(idempotent.InProgressError)
		unresolved = new(idempotent.UnresolvedError)
		failed     = new(idempotent.StoreError)
		rounds     = strings.Repeat(" replace", 8)
	)
	// waited returns a hook of a poll after which the caller's time is over.
	waited := func(change func(*driver.Record)) func(*call) {
		return func(c *call) {
			c.clock.Advance(10 * time.Second)
			c.change(change)
			c.do()
		}
	}
	settled := func(state driver.State) func(*call) {
		return waited(func(r *driver.Record) { r.State, r.Encoding, r.Result = state, "json", []byte(`"ch_0"`) })
	}
	for name, c := range map[string]struct {
		stands               *driver.Record // nil: no record
		left                 time.Duration  // of the caller's time; 0: ten seconds
		option               func(*idempotent.Options)
		insert, replace, get func(*call)
		value                string // ch_1 from the handler, ch_0 from the store
		err                  error
		wait                 time.Duration // that the error names
		op                   driver.Op     // that a StoreError names
		calls, events        string
	}{
		// One millisecond is enough to claim and to run, and a fifth of the time is reserved.
		"too little time":       {left: 1249 * time.Microsecond, err: noTime},
		"the last millisecond":  {left: 1250 * time.Microsecond, value: "ch_1", calls: "insert replace", events: "reserved completed"},
		"it cannot be released": {left: time.Second, insert: slow(610 * ms), replace: fail(errDown), err: noTime, calls: "insert replace", events: "reserved completion_failed"},
		"a slow claim":          {left: time.Second, insert: slow(610 * ms), err: noTime, calls: "insert replace", events: "reserved retryable"},
		"not too slow":          {left: time.Second, insert: slow(599 * ms), value: "ch_1", calls: "insert replace", events: "reserved completed"},
		"a slow takeover": {
			stands: free, left: time.Second, replace: first(slow(610 * ms)),
			err: noTime, calls: "insert replace replace", events: "taken_over retryable",
		},
		"a cold start":               {left: 3 * time.Second, insert: slow(1800 * ms), value: "ch_1", calls: "insert replace", events: "reserved completed"},
		"a slow read":                {stands: free, insert: slow(9500*ms - ms), err: noTime, calls: "insert replace replace", events: "taken_over retryable"},
		"a read that takes all time": {stands: free, insert: slow(9500 * ms), err: noTime, calls: "insert"},
		"a read that takes more":     {stands: free, insert: slow(11 * time.Second), err: noTime, calls: "insert"},
		"running":                    {stands: running(time.Hour), err: busy, wait: time.Second, calls: "insert", events: "in_progress"},
		"its lease ends meanwhile":   {stands: running(time.Hour), insert: slow(2 * time.Hour), left: 3 * time.Hour, err: busy, calls: "insert", events: "in_progress"},
		"its lease has ended": {
			stands: running(-time.Second),
			err:    unresolved, wait: 90 * time.Second, calls: "insert replace", events: "marked_unknown unresolved",
		},
		"unknown, due later": {stands: unknownUntil(10 * time.Second), err: unresolved, wait: 10 * time.Second, calls: "insert", events: "unresolved"},
		"unknown, due soon":  {stands: unknownUntil(ms), err: unresolved, wait: ms, calls: "insert", events: "unresolved"},
		"unknown, due now":   {stands: unknownUntil(0), err: unresolved, wait: 90 * time.Second, calls: "insert", events: "unresolved"},
		"unknown, overdue":   {stands: unknownUntil(-time.Second), err: unresolved, wait: 90 * time.Second, calls: "insert", events: "unresolved"},
		"unknown, given up": {
			stands: &driver.Record{State: driver.StateUnknown, Due: start.Add(time.Hour), Exhausted: true},
			err:    unresolved, wait: 90 * time.Second, calls: "insert", events: "unresolved",
		},
		"another request": {
			stands: &driver.Record{State: driver.StateCompleted, Fingerprint: idempotent.FingerprintBytes()},
			err:    new(idempotent.MismatchError), calls: "insert", events: "mismatch",
		},
		"a later fingerprint": {
			stands: &driver.Record{State: driver.StateCompleted, Fingerprint: idempotent.Fingerprint{9}},
			err:    new(idempotent.ReplayUnavailableError), calls: "insert", events: "replay_failed",
		},
		"a state of a later version": {stands: &driver.Record{State: 9}, err: failed, op: driver.OpUnreadable, calls: "insert", events: "store_error"},
		"the store's clock is behind": {
			stands: &driver.Record{State: driver.StateCompleted, Expires: start}, insert: first(func(c *call) { c.Now = start.Add(-1); c.do() }),
			value: "ch_1", calls: "insert insert replace", events: "expired_replaced reserved completed",
		},
		"deleted before the takeover": {insert: first(meets(*free)), value: "ch_1", calls: "insert replace insert replace", events: "reserved completed"},
		"deleted before it is marked": {insert: first(meets(*running(0))), value: "ch_1", calls: "insert replace insert replace", events: "reserved completed"},
		"always retryable":            {insert: meets(*free), replace: meets(*free), err: failed, op: driver.OpReplace, calls: "insert" + rounds, events: "store_error"},
		"always ended": {
			insert: meets(*running(0)), replace: meets(*running(0)),
			err: failed, op: driver.OpReplace, calls: "insert" + rounds, events: "store_error",
		},
		"no reply to a claim": {insert: lose(errDown), err: errDown, op: driver.OpInsert, calls: "insert replace", events: "store_error retryable"},
		"nor to its release": {
			insert: lose(errDown), replace: fail(errDown),
			err: errDown, op: driver.OpInsert, calls: "insert replace", events: "store_error",
		},
		"the store is down":     {insert: fail(errDown), err: errDown, op: driver.OpInsert, calls: "insert replace", events: "store_error"},
		"nothing can be stored": {insert: fail(driver.ErrTooLarge), err: driver.ErrTooLarge, op: driver.OpInsert, calls: "insert", events: "store_error"},
		"no reply to a takeover": {
			stands: free, replace: fail(errDown),
			err: errDown, op: driver.OpReplace, calls: "insert replace replace", events: "store_error",
		},
		"it cannot be marked": {stands: running(0), replace: fail(errDown), err: errDown, op: driver.OpReplace, calls: "insert replace", events: "store_error"},
		"a poll fails": {
			stands: running(time.Hour), option: waitFor(time.Minute), get: fail(errDown),
			err: errDown, op: driver.OpGet, calls: "insert get", events: "store_error",
		},
		"waited until it completed": {
			stands: running(time.Hour), option: waitFor(time.Hour), get: settled(driver.StateCompleted),
			value: "ch_0", calls: "insert get", events: "replayed",
		},
		"waited, and it still runs": {
			stands: running(time.Hour), option: waitFor(time.Hour), get: settled(driver.StateInProgress),
			err: busy, wait: 10 * time.Second, calls: "insert get", events: "in_progress",
		},
		"waited until it was released": {stands: running(time.Hour), option: waitFor(time.Hour), get: settled(driver.StateRetryable), err: noTime, calls: "insert get"},
		"waited until it was unknown":  {stands: running(time.Hour), option: waitFor(time.Hour), get: settled(driver.StateUnknown), err: noTime, calls: "insert get"},
		"waited until it was gone": {
			stands: running(time.Hour), option: waitFor(time.Hour), get: func(c *call) { c.clock.Advance(10 * time.Second); c.Err = idempotent.ErrNoRecord },
			err: noTime, calls: "insert get",
		},
		"waited until its lease ended": {
			stands: &driver.Record{State: driver.StateInProgress, Recovery: idempotent.Rerun, LeaseEnd: start.Add(7 * time.Second)},
			option: waitFor(time.Hour), get: slow(7500 * ms), value: "ch_1", calls: "insert get replace replace", events: "taken_over completed",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, func(o *idempotent.Options) {
				if o.ReconcileAfter = 90 * time.Second; c.option != nil {
					c.option(o)
				}
			})
			if c.stands != nil {
				f.holds(*c.stands)
			}
			f.on(driver.OpInsert, c.insert)
			f.on(driver.OpReplace, c.replace)
			f.on(driver.OpGet, c.get)
			runs := 0
			value, err := idempotent.Do(f.clock.Invocation(t.Context(), cmp.Or(c.left, 10*time.Second)), f.guard, f.key, func(context.Context) (string, error) {
				runs++
				return "ch_1", nil
			})
			if value != c.value || !errtype.Matches(err, c.err) || (runs > 0) != (c.value == "ch_1") {
				t.Errorf("%s: got %q, %v after %d runs; want %q, %T", name, value, err, runs, c.value, c.err)
			}
			if busy, unresolved := new(idempotent.InProgressError), new(idempotent.UnresolvedError); errors.As(err, &busy) && busy.RetryAfter != c.wait ||
				errors.As(err, &unresolved) && unresolved.RetryAfter != c.wait {
				t.Errorf("%s: got %#v, want to wait %s", name, err, c.wait)
			}
			if failed := new(idempotent.StoreError); errors.As(err, &failed) && (failed.Op != c.op || failed.Entered) {
				t.Errorf("%s: got %#v, want the operation %s", name, err, c.op)
			}
			// A refusal is reported with the error that the caller gets.
			if all := f.events.Events(); len(all) == 1 && all[0].Kind != event.Replayed && all[0].Err != err {
				t.Errorf("%s: the event has the error %v", name, all[0].Err)
			}
			if calls, events := strings.Join(f.calls, " "), f.kinds(); calls != c.calls || events != c.events {
				t.Errorf("%s: calls %q and events %q, want %q and %q", name, calls, events, c.calls, c.events)
			}
		})
	}
}

// A claim without a reply is released within LeaseMargin, even if the caller has gone. The
// answer waits for half of the time that is left, and without a deadline for the release.
// What ends later is no event.
func TestUnheardClaimIsReleased(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		left, release, want time.Duration // release: how long the write takes; -1: it fails at once
		writes              int
		state               driver.State
		events              string
	}{
		"at once":                     {10 * time.Second, 0, 0, 1, driver.StateRetryable, "store_error retryable"},
		"in half of the time":         {3 * time.Second, 1450*ms - 1, 1450*ms - 1, 1, driver.StateRetryable, "store_error retryable"},
		"later":                       {3 * time.Second, 2 * time.Second, 1450 * ms, 2, driver.StateRetryable, "store_error"},
		"not in the margin":           {3 * time.Second, time.Hour, 1450 * ms, 2, driver.StateInProgress, "store_error"},
		"without a deadline":          {0, 2 * time.Second, 2 * time.Second, 1, driver.StateRetryable, "store_error retryable"},
		"never, without a deadline":   {0, time.Hour, 3 * time.Second, 1, driver.StateInProgress, "store_error"},
		"before the caller's context": {10 * time.Second, 3*time.Second - 1, 3*time.Second - 1, 1, driver.StateRetryable, "store_error retryable"},
		"fails at once":               {10 * time.Second, -1, 0, 1, driver.StateInProgress, "store_error"},
	} {
		synctest.Test(t, func(t *testing.T) {
			shelf, key, writes := memstore.New(), newKey(), 0
			g, events := newGuardOver(t, idempotenttest.Intercept(shelf, func(ctx context.Context, c *idempotenttest.StoreCall) {
				if c.Op == driver.OpInsert {
					c.Do(ctx)
					c.Current, c.Err = nil, errDown
					return
				}
				if writes++; row.release < 0 {
					c.Err = errDown
					return
				}
				select {
				case <-time.After(row.release):
					c.Do(ctx)
				case <-ctx.Done():
					c.Err = ctx.Err()
				}
			}))
			ctx, cancel := context.WithCancel(t.Context())
			if row.left > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), row.left)
			}
			began := time.Now()
			_, err := idempotent.Do(ctx, g, key, forbidden(t))
			took := time.Since(began)
			cancel()
			time.Sleep(time.Minute)
			synctest.Wait()
			if state := record(t, shelf, key).State; took != row.want || !errors.Is(err, errDown) || state != row.state || kindsOf(events) != row.events || writes != row.writes {
				t.Errorf("%s: answered after %s, want %s, with %v; the record is %s; events %s; %d writes, want %d", name, took, row.want, err, state, kindsOf(events), writes, row.writes)
			}
		})
	}
}

// A panic of the store while it releases a claim beside the answer does not end the process.
func TestReleasePanics(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			f := newFixture(t, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			f.on(driver.OpInsert, lose(errDown))
			f.on(driver.OpReplace, func(c *call) {
				if c.n > 1 && panics {
					panic("no such table")
				}
				<-c.ctx.Done()
				c.Err = c.ctx.Err()
			})
			if _, err := f.do(forbidden(t)); !errors.Is(err, errDown) {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			logged := strings.Contains(log.String(), `msg="idempotent: the store panicked" operation=`) && strings.Contains(log.String(), "panic_type=string")
			if len(f.calls) != 3 || logged != panics || strings.Contains(log.String(), "panicked") != panics {
				t.Errorf("panics: %t; calls %q, log %s", panics, f.calls, log.String())
			}
		})
	}
}

// If the context ends while the key is being claimed, the handler is not entered. Exactly
// what was open before is open.
func TestCallerLeavesDuringTheClaim(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		f := newFixture(t, resume("charge"))
		if open {
			f.dies(nil)
			f.clock.Advance(time.Hour)
		}
		ctx, cancel := context.WithCancel(f.invocation())
		leaves := func(c *call) { c.do(); cancel() }
		f.on(driver.OpInsert, leaves)
		if open {
			f.on(driver.OpInsert, nil)
			f.on(driver.OpReplace, leaves)
		}
		_, err := idempotent.Do(ctx, f.guard, f.key, forbidden(t))
		if !errors.As(err, new(*idempotent.NoTimeError)) || !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want NoTimeError for the canceled context", err)
		}
		if r := f.record(); r.State != driver.StateRetryable || r.Reason != driver.ReasonNoTime || r.OpenSince.IsZero() == open || r.Due.IsZero() == open {
			t.Errorf("open before: %t; the record is %s (%s), open since %s, due %s", open, r.State, r.Reason, r.OpenSince, r.Due)
		}
	}
}

// A refused request is asked to wait as long as the running one has run, at least
// a second, and never longer than until its lease ends. A takeover begins another run: the
// time before it does not count. Evidence is refused with the same error.
func TestInProgressSaysHowLong(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Minute
	for name, row := range map[string]struct {
		created, since, lease time.Duration // before, before and after the request
		want                  time.Duration
	}{
		"just begun":                  {0, 0, lease, time.Second},
		"a moment more than a second": {1001 * ms, 0, lease, 1001 * ms},
		"near its end":                {14 * time.Minute, 0, time.Minute, time.Minute},
		"less than a second left":     {0, 0, 300 * ms, 300 * ms},
		"ahead of this clock":         {-time.Minute, 0, lease, time.Second},
		"taken over":                  {time.Hour, 3 * time.Second, lease, 3 * time.Second},
	} {
		f := newFixture(t)
		r := driver.Record{State: driver.StateInProgress, Created: start.Add(-row.created), LeaseEnd: start.Add(row.lease), Ref: "orders/7"}
		if row.since != 0 {
			r.Since = start.Add(-row.since)
		}
		f.holds(r)
		want := idempotent.InProgressError{RecordID: f.key.RecordID(), RetryAfter: row.want, Until: start.Add(row.lease), Ref: "orders/7"}
		_, refused := f.do(forbidden(t))
		for who, err := range map[string]error{"a request": refused, "evidence": f.resolve(idempotent.Resolved("ch_1"))} {
			var busy *idempotent.InProgressError
			if !errors.As(err, &busy) || *busy != want {
				t.Errorf("%s: %s got %#v, want %#v", name, who, err, want)
			}
		}
	}
}

// AllowMissingKey runs a request without a key, but not one with an invalid key.
// Either way a missing key is reported.
func TestMissingIsNotInvalid(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		f := newFixture(t, func(o *idempotent.Options) { o.AllowMissingKey = allow })
		f.key.Scope = ""
		if _, err := f.do(forbidden(t)); !errors.As(err, new(*idempotent.InvalidKeyError)) || len(f.events.Kinds()) != 0 {
			t.Errorf("allow %v: got error %v and events %v, want InvalidKeyError", allow, err, f.events.Kinds())
		}
		f.key.Scope, f.key.ID = "s", ""
		got, err := f.do(charged)
		if (err == nil) != allow || (got == "ch_1") != allow {
			t.Errorf("allow %v: a request without a key got %q and error %v", allow, got, err)
		}
		if all := f.events.Events(); len(all) != 1 || all[0].Kind != event.KeyMissing || all[0].Operation != "charge" || all[0].KeyHash != "" {
			t.Errorf("allow %v: got events %+v, want key_missing without a key", allow, all)
		}
	}
}

// The record of a claim names its request. Its times are whole milliseconds, as stores
// keep them, and the end of the lease is the deadline and a margin.
func TestClaimedRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *idempotent.Options) { o.RequestID = func(context.Context) string { return "request-1" } })
	ctx := f.clock.Invocation(t.Context(), time.Minute+1234567)
	_, err := idempotent.Do(ctx, f.guard, f.key, func(context.Context) (string, error) {
		if r := f.record(); !r.Created.Equal(start) || !r.Since.IsZero() || r.RequestID != "request-1" || !r.LeaseEnd.Equal(start.Add(63*time.Second+ms)) {
			t.Errorf("the claim is created %v, settled %v, by %q, until %s", r.Created, r.Since, r.RequestID, r.LeaseEnd)
		}
		f.clock.Advance(time.Second)
		return "", nil
	})
	if r := f.record(); err != nil || !r.Since.Equal(start.Add(time.Second)) || r.RequestID != "request-1" {
		t.Errorf("the outcome is settled %v, by %q (%v)", r.Since, r.RequestID, err)
	}
}

// A takeover starts clean: while it runs, the record holds nothing of the last
// attempt's outcome, it is due again if it had been given up, and its other fields are
// preserved.
func TestTakeoverStartsClean(t *testing.T) {
	t.Parallel()
	created := start.Add(-time.Hour)
	for name, change := range map[string]func(*driver.Record){
		"released": func(r *driver.Record) {
			r.State, r.Reason, r.Encoding, r.Result = driver.StateRetryable, driver.ReasonResolved, "json", []byte("1")
		},
		"given up":                         func(r *driver.Record) { r.State, r.ReconcileAttempts, r.Exhausted = driver.StateRetryable, 3, true },
		"killed after it announced itself": func(r *driver.Record) { r.State, r.LeaseEnd, r.Announced = driver.StateInProgress, created, true },
	} {
		f := newFixture(t)
		old := driver.Record{
			Recovery: idempotent.Resume, Owner: driver.Owner{1}, Attempt: 4, Created: created, Since: created, Ref: "orders/7",
			Expires: created.Add(24 * time.Hour), Due: created,
		}
		change(&old)
		f.holds(old)
		if _, err := f.do(func(context.Context) (string, error) {
			r := f.record()
			if r.State != driver.StateInProgress || r.Reason != driver.ReasonTakenOver || r.Recovery != idempotent.Reconcile ||
				r.Owner == old.Owner || r.Owner == (driver.Owner{}) || r.Version == (driver.Version{1}) || r.Version == (driver.Version{}) ||
				r.Attempt != 5 || !r.Since.Equal(start) || r.Encoding != "" || r.Result != nil ||
				r.ReconcileAttempts != 0 || r.Exhausted || r.Announced || !r.Expires.IsZero() {
				t.Errorf("%s: the record while the handler runs is %+v", name, r)
			}
			if !r.Created.Equal(created) || r.Ref != "orders/7" || !r.Due.Equal(r.LeaseEnd) {
				t.Errorf("%s: the record lost fields: %+v", name, r)
			}
			return "", nil
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// OpenSince is set under Resume only, to the start of the first run that may have
// left an unfinished step. Later runs keep it until the record is completed.
func TestOpenSinceIsTheFirstOpenRun(t *testing.T) {
	t.Parallel()
	store := newFixture(t)
	stepFails := func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", noAnswer) }
	for i, row := range []struct {
		recovery      idempotent.Recovery
		handler       handlerFunc // nil: its process dies
		during, after int         // the run that OpenSince is the start of; 0: it is not set
	}{
		{idempotent.Rerun, nil, 0, 0},
		{idempotent.Resume, nil, 2, 2},
		{idempotent.Resume, nil, 2, 2},
		{idempotent.Rerun, nil, 0, 0},
		{idempotent.Resume, stepFails, 5, 5},
		{idempotent.Resume, charged, 5, 0},
	} {
		f := store.with(func(o *idempotent.Options) { o.Recovery, o.Steps = row.recovery, []string{"charge"} })
		f.clock.Advance(time.Hour)
		check := func(when string, run int) {
			want := time.Time{}
			if run > 0 {
				want = start.Add(time.Duration(run) * time.Hour)
			}
			if r := f.record(); r.Attempt != i+1 || !r.OpenSince.Equal(want) {
				t.Errorf("%s run %d of %d: open since %v, want %v", when, r.Attempt, i+1, r.OpenSince, want)
			}
		}
		if row.handler == nil {
			f.dies(func(context.Context) { check("during", row.during) })
		} else {
			_, _ = f.do(func(ctx context.Context) (string, error) {
				check("during", row.during)
				return row.handler(ctx)
			})
		}
		check("after", row.after)
	}
}

// A waiting request polls after about 50 ms and then less and less often, down to
// once a second, with Get only. It waits as long as WaitFor, and ends before the handler's
// own time would end, half a second before the deadline. A long wait does not count as contention.
func TestWaitingLooksEverLessOften(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ left, patience, atLeast, atMost time.Duration }{
		{time.Hour, 20 * time.Second, 18500 * ms, 20 * time.Second},
		{10 * time.Second, time.Hour, 8 * time.Second, 9500 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, waitFor(row.patience), func(o *idempotent.Options) { o.Now = time.Now })
			f.holds(*running(time.Hour))
			var looks []time.Duration
			began := time.Now()
			f.on(driver.OpGet, func(c *call) {
				looks = append(looks, time.Since(began))
				c.do()
			})
			ctx, cancel := context.WithTimeout(t.Context(), row.left)
			defer cancel()
			_, err := idempotent.Do(ctx, f.guard, f.key, forbidden(t))
			if took := time.Since(began); !errors.As(err, new(*idempotent.InProgressError)) || took < row.atLeast || took > row.atMost {
				t.Errorf("got error %v after %s, want InProgressError after about %s", err, took, row.atMost)
			}
			pause, before := 50*ms, time.Duration(0)
			for i, at := range looks {
				if d := at - before; d < pause/2 || d >= pause*3/2 {
					t.Errorf("poll %d came %s after the one before, want half to one and a half of %s", i+1, d, pause)
				}
				pause, before = min(pause*3/2, time.Second), at
			}
			if want := append([]string{"insert"}, slices.Repeat([]string{"get"}, len(looks))...); !slices.Equal(f.calls, want) {
				t.Errorf("calls %v", f.calls)
			}
		})
	}
}

// A request whose caller leaves while it waits is refused at once.
func TestCallerLeavesWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, waitFor(time.Minute), func(o *idempotent.Options) { o.Now = time.Now })
		f.holds(*running(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		began := time.Now()
		if _, err := idempotent.Do(ctx, f.guard, f.key, forbidden(t)); !errors.As(err, new(*idempotent.InProgressError)) || time.Since(began) != 10*time.Second {
			t.Errorf("got error %v after %s", err, time.Since(began))
		}
		if kinds := f.kinds(); kinds != "in_progress" {
			t.Errorf("events %s", kinds)
		}
	})
}

// At most a hundred requests of a guard wait for one key. The others are refused at
// once, and after one of them has left, another one can wait. Other keys do not
// count.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, waitFor(time.Minute), func(o *idempotent.Options) { o.Now = time.Now })
		key, other := f.key, newKey()
		for _, f.key = range []idempotent.Key{key, other} {
			f.holds(*running(time.Hour))
		}
		ask := func(k idempotent.Key) (waited time.Duration) {
			began := time.Now()
			if _, err := idempotent.Do(t.Context(), f.guard, k, forbidden(t)); !errors.As(err, new(*idempotent.InProgressError)) {
				t.Errorf("got %v, want InProgressError", err)
			}
			return time.Since(began)
		}
		for range 2 { // the second round shows that the first one has left
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if waited := ask(key); waited < 50*time.Second {
						t.Errorf("one of a hundred requests waited %s", waited)
					}
				})
			}
			synctest.Wait()
			if waited := ask(key); waited != 0 {
				t.Errorf("one more request waited %s", waited)
			}
			if waited := ask(other); waited < 50*time.Second {
				t.Errorf("a request with another key waited %s", waited)
			}
			wg.Wait()
		}
	})
}
