// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/internal/kit"
)

// A handler that is about to be killed announces its run with one write. A handler
// that returns in time costs no write more, whatever it does.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	const invocation, announced = 10 * time.Second, 9600 * time.Millisecond
	after := func(d time.Duration, then ...func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			time.Sleep(d) // as a computation that does not look at its context
			for _, f := range then {
				if err := f(ctx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	commit := func(ctx context.Context) error {
		e, _ := idempotent.FromContext(ctx)
		return e.Commit(ctx, "ok", e.Store().Replace)
	}
	inStep := func(mode bool, f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := idempotent.Step(ctx, "pay", func(ctx context.Context) (string, error) { return "ok", f(ctx) }, func(o *idempotent.StepOptions) { o.AtMostOnce = mode })
			return err
		}
	}
	under := func(r idempotent.Recovery) func(*idempotent.Options) {
		return func(o *idempotent.Options) { o.Recovery, o.Steps = r, []string{"pay"} }
	}
	deadlineOf := func(ctx context.Context) time.Time { end, _ := ctx.Deadline(); return end }
	made := func(ctx context.Context, c *idempotenttest.StoreCall) { c.Do(ctx) }
	lost := func(ctx context.Context, c *idempotenttest.StoreCall) { c.Do(ctx); c.Current, c.Err = nil, errLost }
	fails := func(_ context.Context, c *idempotenttest.StoreCall) { c.Err = errLost }
	hangs := func(ctx context.Context, c *idempotenttest.StoreCall) { <-ctx.Done(); c.Err = ctx.Err() }
	slowly := func(d time.Duration) func(context.Context, *idempotenttest.StoreCall) {
		return func(ctx context.Context, c *idempotenttest.StoreCall) { time.Sleep(d); c.Do(ctx) }
	}
	another := func(ctx context.Context, c *idempotenttest.StoreCall) { // a later request has taken over the record
		was, mine := c.Was, c.Record
		c.Record.Owner, c.Record.Version, c.Record.Announced = driver.Owner{1}, driver.Version{1}, false
		c.Do(ctx)
		c.Record, c.Was = mine, was
		c.Do(ctx)
	}
	for name, row := range map[string]struct {
		options func(*idempotent.Options)
		left    time.Duration // zero: without a deadline
		handler func(context.Context) error
		first   func(context.Context, *idempotenttest.StoreCall) // makes the first call of Replace
		want    bool                                             // announced when the handler returns
		writes  int                                              // calls of Replace, with that of the outcome
		err     bool
	}{
		"returns just in time":     {under(idempotent.Reconcile), invocation, after(announced - time.Millisecond), made, false, 1, false},
		"obeys its context":        {under(idempotent.Reconcile), invocation, func(ctx context.Context) error { <-ctx.Done(); return nil }, made, false, 1, false},
		"does not look":            {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), made, true, 2, false},
		"under Resume":             {under(idempotent.Resume), invocation, after(announced + time.Millisecond), made, true, 2, false},
		"under Rerun":              {under(idempotent.Rerun), invocation, after(announced + time.Millisecond), made, false, 1, false},
		"under Rerun, in a step":   {under(idempotent.Rerun), invocation, inStep(false, after(announced+time.Millisecond)), made, false, 2, false},
		"in a step that runs once": {under(idempotent.Rerun), invocation, inStep(true, after(announced+time.Millisecond)), made, false, 4, false},
		"a step ends afterwards":   {under(idempotent.Resume), invocation, inStep(false, after(announced+time.Millisecond)), made, true, 3, false},
		"without a deadline":       {under(idempotent.Reconcile), 0, after(15*time.Minute - 3*time.Second - 399*time.Millisecond), made, true, 2, false},
		"with a reserve of 100 ms": {under(idempotent.Reconcile), 500 * time.Millisecond, after(421 * time.Millisecond), made, true, 2, false},
		"with a reserve of 2 s":    {func(o *idempotent.Options) { o.Recovery, o.DeadlineReserve = idempotent.Reconcile, 2*time.Second }, invocation, after(8101 * time.Millisecond), made, true, 2, false},
		"has committed":            {under(idempotent.Reconcile), invocation, after(0, commit, after(announced)), made, false, 1, false},
		"commits":                  {under(idempotent.Reconcile), invocation, after(0, commit), slowly(9450 * time.Millisecond), false, 1, false},
		"commits, and the reply fails": {under(idempotent.Reconcile), invocation, after(0, func(ctx context.Context) error {
			_ = commit(ctx)
			time.Sleep(announced + time.Millisecond)
			return nil
		}), lost, false, 2, false},
		"hangs in a Commit": {under(idempotent.Reconcile), invocation, after(9*time.Second, func(ctx context.Context) error {
			err := commit(ctx)
			time.Sleep(time.Millisecond)
			if end := time.Until(deadlineOf(ctx)); end != -201*time.Millisecond {
				t.Errorf("the Commit ended %s before the end of the handler's time, want 200 ms after it", end+time.Millisecond)
			}
			return err
		}), hangs, true, 3, true},
		"the announcement fails":         {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), fails, false, 2, false},
		"its reply is lost":              {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), lost, true, 3, false},
		"returns meanwhile":              {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), slowly(100 * time.Millisecond), false, 2, false},
		"the store hangs":                {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), hangs, false, 2, false},
		"belongs to another run already": {under(idempotent.Reconcile), invocation, after(announced + time.Millisecond), another, false, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				writes, writing := 0, false
				shelf := memstore.New()
				store := idempotenttest.Intercept(shelf, func(ctx context.Context, c *idempotenttest.StoreCall) {
					if c.Op != driver.OpReplace {
						c.Do(ctx)
						return
					}
					if writing {
						t.Error("two writes at a time")
					}
					writing = true
					defer func() { writing = false }()
					if writes++; writes == 1 {
						row.first(ctx, c)
					} else {
						c.Do(ctx)
					}
				})
				g, _ := newGuardOver(t, store, row.options)
				ctx, cancel := t.Context(), func() {}
				if row.left > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.left)
				}
				defer cancel()
				key := newKey()
				_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (string, error) {
					err := row.handler(ctx)
					r, _ := shelf.Get(t.Context(), key.RecordID())
					if r.Announced != row.want || row.want && !r.Due.Equal(r.LeaseEnd) {
						t.Errorf("when the handler returned, the record was announced: %t, and due at %s, want %t", r.Announced, r.Due, row.want)
					}
					return "ok", err
				})
				if (err != nil) != row.err {
					t.Errorf("got error %v", err)
				}
				synctest.Wait()
				r, _ := shelf.Get(t.Context(), key.RecordID())
				if writes != row.writes || r.Announced || !row.err && r.State != driver.StateCompleted {
					t.Errorf("%d writes, want %d; in the end the record is %s, and announced: %t", writes, row.writes, r.State, r.Announced)
				}
			})
		})
	}
}

// A run that is killed in a step is found with this step.
func TestAnnounce_InAStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, resume("pay"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		forever := make(chan struct{})
		defer close(forever)
		go idempotent.Do(ctx, g, newKey(), func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "pay", func(context.Context) (string, error) { <-forever; return "", errLost })
		})
		time.Sleep(time.Minute)
		report, err := kit.Reconcile(t.Context(), g, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if stored := r.Stored(); len(stored.Steps) != 1 || stored.Steps[0].Name != "pay" || stored.Steps[0].Finished {
				t.Errorf("the resolver sees the steps %+v, want that pay has begun", stored.Steps)
			}
			return idempotent.Later(0), nil
		})
		if err != nil || report.String() != "1 due, 1 released, 1 postponed" {
			t.Errorf("%s, %v", report, err)
		}
	})
}

// answeredBy is when each function answers at the latest, by its time-out: before it by a
// fifth of the reserve, at least 50 ms and at most 100 ms, and at most half of the reserve,
// which is 500 ms, or a fifth of the time-out if that is less.
var answeredBy = map[time.Duration]time.Duration{
	400 * ms:         360 * ms,
	time.Second:      950 * ms,
	1500 * ms:        1440 * ms,
	3 * time.Second:  2900 * ms,
	10 * time.Second: 9900 * ms,
	20 * time.Second: 19900 * ms,
	29 * time.Second: 28900 * ms,
	40 * time.Second: 39900 * ms,
}

// A store, a sealer or a predecessor that stops answering delays no answer beyond the time
// that is left for it, wherever it stops, and whatever else it is asked then.
func TestAnsweredBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	large := fmt.Sprintf("%x", noise(10<<10))
	running := &driver.Record{State: driver.StateInProgress, LeaseEnd: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)}
	retryable := &driver.Record{State: driver.StateRetryable}
	ended := &driver.Record{State: driver.StateInProgress, LeaseEnd: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}
	step := func(once bool) handlerFunc {
		return func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "pay", value("ok"), func(o *idempotent.StepOptions) { o.AtMostOnce = once })
		}
	}
	commits := func(result string, times int) handlerFunc {
		return func(ctx context.Context) (_ string, err error) {
			e, _ := idempotent.FromContext(ctx)
			for range times {
				err = e.Commit(context.WithoutCancel(ctx), result, e.Store().Replace)
			}
			return result, err
		}
	}
	asks := func(found bool, err error) func(*idempotent.Options) {
		return func(o *idempotent.Options) {
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return "ok", found, err }
		}
	}
	noError := func(err error) bool { return err == nil }
	notApplied := func(err error) bool { return errors.Is(err, idempotent.ErrNotApplied) }
	for name, row := range map[string]struct {
		stops   driver.Op
		handler handlerFunc      // nil: it does not run
		err     func(error) bool // nil: StoreError
		events  string           // without those of the requests before
		held    *driver.Record   // before the request
		stored  string           // result of a request before
		options func(*idempotent.Options)
	}{
		"claim":                        {driver.OpInsert, nil, nil, "store_error", nil, "", nil},
		"takeover":                     {driver.OpReplace, nil, nil, "store_error", retryable, "", nil},
		"mark as unknown":              {driver.OpReplace, nil, nil, "store_error", ended, "", nil},
		"a read while it waits":        {driver.OpGet, nil, nil, "store_error", running, "", waitFor(time.Hour)},
		"predecessor":                  {driver.OpPredecessor, nil, nil, "reserved store_error", nil, "", nil},
		"undoing a claim":              {driver.OpReplace, nil, is[*idempotent.InProgressError], "reserved in_progress", nil, "", asks(false, &idempotent.InProgressError{})},
		"storing a predecessor's work": {driver.OpReplace, nil, noError, "reserved completion_failed replayed", nil, "", asks(true, nil)},
		"chunks of a replay":           {driver.OpGetChunks, nil, nil, "replay_failed", nil, large, nil},
		"opening a replay":             {driver.OpOpen, nil, nil, "replay_failed", nil, "ok", nil},
		"step":                         {driver.OpReplace, step(false), noError, "reserved store_error completion_failed", nil, "", nil},
		"mark of a step":               {driver.OpReplace, step(true), nil, "reserved completion_failed", nil, "", nil},
		"sealing a step":               {driver.OpSeal, step(false), is[*idempotent.StepError], "reserved completion_failed", nil, "", nil},
		"commit":                       {driver.OpReplace, commits("ok", 1), nil, "reserved store_error completion_failed", nil, "", nil},
		"two commits":                  {driver.OpReplace, commits("ok", 2), nil, "reserved store_error store_error completion_failed", nil, "", nil},
		"chunks of a commit":           {driver.OpPutChunks, commits(large, 1), notApplied, "reserved store_error completion_failed", nil, "", nil},
		"sealing a commit":             {driver.OpSeal, commits("ok", 1), notApplied, "reserved store_error completion_failed", nil, "", nil},
		"outcome":                      {driver.OpReplace, value("ok"), noError, "reserved completion_failed", nil, "", nil},
		"outcome at the end":           {driver.OpReplace, obeys, noError, "reserved completion_failed", nil, "", nil},
		"chunks of an outcome":         {driver.OpPutChunks, value(large), noError, "reserved completion_failed completion_failed", nil, "", nil},
		"sealing an outcome":           {driver.OpSeal, value("ok"), noError, "reserved completion_failed completion_failed", nil, "", nil},
		"nowhere, at the end":          {"", obeys, noError, "reserved completed", nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for limit, by := range answeredBy {
				synctest.Test(t, func(t *testing.T) {
					var stopped atomic.Bool
					meets := func(ctx context.Context, op driver.Op) error {
						if stopped.Load() || op == row.stops {
							stopped.Store(true)
							<-ctx.Done()
						}
						return ctx.Err()
					}
					shelf, key := newChunked(memstore.New()), newKey()
					store := idempotenttest.Intercept(shelf, func(ctx context.Context, c *idempotenttest.StoreCall) {
						if c.Err = meets(ctx, c.Op); c.Err == nil {
							c.Do(ctx)
						}
					})
					g, events := newGuardOver(t, store, func(o *idempotent.Options) {
						switch row.stops {
						case driver.OpSeal, driver.OpOpen:
							s := kit.NewSealer()
							s.BeforeSeal = func(ctx context.Context, _, _ []byte) error { return meets(ctx, driver.OpSeal) }
							s.BeforeOpen = func(ctx context.Context, _, _ []byte) error { return meets(ctx, driver.OpOpen) }
							o.Seal = s
						case driver.OpPredecessor:
							o.Predecessor = func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
								return nil, false, meets(ctx, driver.OpPredecessor)
							}
						default: // a call of the store
						}
						if row.options != nil {
							row.options(o)
						}
					})
					if row.held != nil {
						r := *row.held
						r.ID, r.Version, r.Fingerprint = key.RecordID(), driver.Version{1}, invariant.StoredFingerprint(key)
						if _, err := shelf.Insert(t.Context(), r, time.Unix(0, 0)); err != nil {
							t.Fatal(err)
						}
					}
					if row.stored != "" {
						if _, err := idempotent.Do(t.Context(), g, key, value(row.stored)); err != nil {
							t.Fatal(err)
						}
						*events = idempotenttest.Recorder{}
					}
					h, want := row.handler, row.err
					if h == nil {
						h = forbidden(t)
					}
					if want == nil {
						want = is[*idempotent.StoreError]
					}
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					began := time.Now()
					_, err := idempotent.Do(ctx, g, key, h)
					took := time.Since(began)
					time.Sleep(time.Minute) // what ends later makes no event
					if kinds := kindsOf(events); took > by || !want(err) || kinds != row.events {
						t.Errorf("of %s: answered after %s, want %s at the latest; error %v; events %s, want %s", limit, took, by, err, kinds, row.events)
					}
				})
			}
		})
	}
}

// obeys is a handler that runs until its context ends.
func obeys(ctx context.Context) (string, error) { <-ctx.Done(); return "ok", nil }

func is[E error](err error) bool { return errors.As(err, new(E)) }

func kindsOf(events *idempotenttest.Recorder) string {
	return strings.Trim(fmt.Sprint(events.Kinds()), "[]")
}
