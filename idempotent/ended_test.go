// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// How long calls take, by the clock.
const (
	insertTakes  = 10 * time.Millisecond
	replaceTakes = 30 * time.Millisecond
	handlerTakes = 200 * time.Millisecond
)

// The last event of every request with a key has the durations of its phases.
func TestRequestEnded(t *testing.T) {
	t.Parallel()
	commit := func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "ok", e.Commit(ctx, "ok", e.Store().Replace)
	}
	takes := map[driver.Op]time.Duration{driver.OpInsert: insertTakes, driver.OpReplace: replaceTakes}
	first := event.Durations{Claim: insertTakes, Handler: handlerTakes, Settle: replaceTakes}
	for _, c := range []struct {
		name    string
		before  func(context.Context) (string, error) // of an earlier request with the key
		handler func(context.Context) (string, error)
		left    time.Duration
		want    event.Durations
	}{
		{"a first request", nil, func(context.Context) (string, error) { return "ok", nil }, time.Minute, first},
		{"an error", nil, func(context.Context) (string, error) { return "", errors.New("no") }, time.Minute, first},
		{"a panic", nil, func(context.Context) (string, error) { panic("no") }, time.Minute, first},
		{"a Commit", nil, commit, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a Commit, then an error", nil, func(ctx context.Context) (string, error) {
			_, _ = commit(ctx)
			return "", errors.New("no")
		}, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a Commit, then a panic", nil, func(ctx context.Context) (string, error) {
			_, _ = commit(ctx)
			panic("no")
		}, time.Minute, event.Durations{Claim: insertTakes, Handler: handlerTakes + replaceTakes}},
		{"a takeover", func(context.Context) (string, error) { return "", idempotent.NotExecuted(errors.New("busy")) },
			func(context.Context) (string, error) { return "ok", nil }, time.Minute,
			event.Durations{Claim: insertTakes + replaceTakes, Handler: handlerTakes, Settle: replaceTakes}},
		{"a replay", func(context.Context) (string, error) { return "ok", nil }, nil, time.Minute, event.Durations{Claim: insertTakes}},
		{"a refusal", func(context.Context) (string, error) { return "", errors.New("no") }, nil, time.Minute, event.Durations{Claim: insertTakes}},
		{"no time", nil, nil, time.Millisecond, event.Durations{Claim: insertTakes + replaceTakes}},
	} {
		clock, events := new(idempotenttest.Clock), new(idempotenttest.Recorder)
		observer := event.ObserverFunc(func(ctx context.Context, e event.Event) {
			if e.Kind == event.Contradicted {
				clock.Advance(time.Hour) // after the handler
			}
			events.Observe(ctx, e)
		})
		slow := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
			clock.Advance(takes[c.Op])
			c.Do(ctx)
		})
		g, err := idempotent.New(slow, func(o *idempotent.Options) {
			o.Now, o.Observer, o.Logger, o.RequestID = clock.Now, observer, quiet, func(context.Context) string { return "request-1" }
		})
		if err != nil {
			t.Fatal(err)
		}
		key := newKey()
		do := func(h func(context.Context) (string, error), left time.Duration) {
			defer func() { _ = recover() }()
			_, _ = idempotent.Do(clock.Invocation(t.Context(), left), g, key, func(ctx context.Context) (string, error) {
				clock.Advance(handlerTakes)
				return h(ctx)
			})
		}
		if c.before != nil {
			do(c.before, time.Minute)
		}
		ended, without := events.Count(event.RequestEnded), events.Count(event.NoOutcome)
		do(c.handler, c.left)
		all := events.Events()
		last := all[len(all)-1]
		if last.Kind != event.RequestEnded || events.Count(event.RequestEnded) != ended+1 || last.Durations != c.want || last.Operation != key.Operation || last.KeyHash != key.RecordID().KeyHash() || last.RequestID != "request-1" {
			t.Errorf("%s: the last of %v is %+v, want %s with %+v", c.name, events.Kinds(), last, event.RequestEnded, c.want)
		}
		if got := events.Count(event.NoOutcome) > without; got != slices.Contains([]string{"a refusal", "no time"}, c.name) {
			t.Errorf("%s: counted as without an outcome: %v", c.name, got)
		}
		for _, e := range all {
			if e.Kind != event.RequestEnded && e.Durations != (event.Durations{}) {
				t.Errorf("%s: %s has durations", c.name, e.Kind)
			}
		}
	}
}

// A request that ends without a run and without a replay is counted once, however
// often the store failed. A stored error is an outcome, and a mismatch is the
// client's mistake.
func TestNoOutcome(t *testing.T) {
	t.Parallel()
	works := func(context.Context) (string, error) { return "ok", nil }
	returns := func(err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return "", err }
	}
	for name, c := range map[string]struct {
		before  func(context.Context) (string, error) // an earlier request with the key
		request func(context.Context, *idempotent.Guard, idempotent.Key) error
		down    bool // the store
		want    int
	}{
		"a first request":        {request: asks(works)},
		"a handler that fails":   {request: asks(returns(errors.New("no")))},
		"a replay":               {before: works, request: asks(works)},
		"a replayed Final error": {before: returns(idempotent.Final("declined", "no")), request: asks(works)},
		"a takeover":             {before: returns(idempotent.NotExecuted(errors.New("busy"))), request: asks(works)},
		"a mismatch": {before: works, request: func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
			key.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
			return asks(works)(ctx, g, key)
		}},
		"the store is down":               {request: asks(works), down: true, want: 1},
		"unresolved":                      {before: returns(errors.New("no")), request: asks(works), want: 1},
		"a result of another type stored": {before: works, request: asks(func(context.Context) (int, error) { return 1, nil }), want: 1},
		"in progress": {request: func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
			return asks(func(ctx context.Context) (string, error) {
				return "ok", asks(works)(context.WithoutCancel(t.Context()), g, key)
			})(ctx, g, key)
		}, want: 1},
	} {
		var events idempotenttest.Recorder
		down := false
		store := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, call *idempotenttest.StoreCall) {
			if call.Do(ctx); down {
				call.Err = errLost
			}
		})
		g, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer, o.Logger = &events, quiet })
		if err != nil {
			t.Fatal(err)
		}
		key := newKey()
		if c.before != nil {
			_ = asks(c.before)(t.Context(), g, key)
		}
		if n := events.Count(event.NoOutcome); n != 0 {
			t.Errorf("%s: the earlier request is counted %d times", name, n)
		}
		down = c.down
		if err := c.request(t.Context(), g, key); events.Count(event.NoOutcome) != c.want {
			t.Errorf("%s: counted %d times, want %d (%v)", name, events.Count(event.NoOutcome), c.want, err)
		}
	}
}

// asks returns a request whose handler is h.
func asks[T any](h func(context.Context) (T, error)) func(context.Context, *idempotent.Guard, idempotent.Key) error {
	return func(ctx context.Context, g *idempotent.Guard, key idempotent.Key) error {
		_, err := idempotent.Do(ctx, g, key, h)
		return err
	}
}

// A request without a key is not counted as one that ended: it is not guarded.
func TestRequestWithoutAKeyHasNoEnd(t *testing.T) {
	t.Parallel()
	events := new(idempotenttest.Recorder)
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer, o.Logger = events, quiet })
	if err != nil {
		t.Fatal(err)
	}
	key := newKey()
	key.ID = ""
	for _, disabled := range []bool{false, true} {
		_, _ = idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 1, nil }, func(o *idempotent.Options) { o.Disabled = disabled })
	}
	if n := events.Count(event.RequestEnded); n != 0 || events.Count(event.KeyMissing) != 1 {
		t.Errorf("got events %v, want key_missing alone", events.Kinds())
	}
}
