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
