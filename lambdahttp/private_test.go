// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdahttp"
)

// F11, F25: the key, the caller, the path and the content of a request are
// identified by their hashes. No record, log line or event contains them,
// whatever the outcome, even if no route is known.
func TestRequestsAreNotKept(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		var log, told bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w := newFixture(t, on, guard(func(o *idempotent.Options) {
			o.Logger = logger
			o.Observer = event.Observers(event.LogObserver(logger), event.ObserverFunc(func(_ context.Context, e event.Event) {
				fmt.Fprintf(&told, "%+v %v\n", e, e.Err)
			}))
		}), func(o *lambdahttp.Options) { o.Profile.Syntax = lambdahttp.QuotedOrBareKey })
		var mu sync.Mutex
		var kept bytes.Buffer
		w.store.set(func(s *faultyStore) {
			s.Store = idempotenttest.Intercept(s.Store, func(ctx context.Context, c *idempotenttest.StoreCall) {
				mu.Lock()
				fmt.Fprintf(&kept, "%+v %s\n", c.Record, c.Record.Result)
				mu.Unlock()
				c.Do(ctx)
			})
		})

		private := func(r *request) {
			r.query = "promo=private-query"
			to("", "/customers/ana@example.com/charges")(r)
		}
		r := charge(withBody(`{"card":"4242424242424242"}`), private)
		again := func(key string) request {
			return charge(withBody(r.body), withKey(key), private)
		}
		w.becomes(duringRun(func() { w.post(r) })) // the second one gets Retry-After
		for _, next := range []request{r, r, charge(withBody(`{"card":"5555555555554444"}`), private)} {
			w.post(next) // runs, is replayed, is refused as a mismatch
		}
		for _, err := range []error{idempotent.NotExecuted(errDown), idempotent.Unknown(errDown), nil} {
			w.becomes(answers(503, err))
			w.post(again(keyB)) // becomes retryable, is taken over and becomes unknown, is refused
		}
		w.post(again("too short"))
		w.store.set(func(s *faultyStore) { s.insertErr = errDown })
		w.post(again("third-key-of-the-test"))
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = nil, errDown })
		w.post(again("fourth-key-of-the-test"))

		for what, text := range map[string]struct{ holds, has string }{
			"the store":  {kept.String(), "ch_1"},
			"the log":    {log.String(), "event=mismatch"},
			"the events": {told.String(), string(event.Unresolved)},
		} {
			if !strings.Contains(text.holds, text.has) {
				t.Errorf("%s has no %q, so the test did not exercise it:\n%s", what, text.has, text.holds)
			}
			for _, private := range []string{keyA, keyB, "key-of-the-test", "too short", "merchant-1", "4242424242424242", "5555555555554444", "private-query", "ana"} {
				if strings.Contains(text.holds, private) {
					t.Errorf("%s contains %q", what, private)
				}
			}
		}
	})
}
