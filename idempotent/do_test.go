// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
	})
}

// The same over a store that stores large results beside their records.
func TestFailureModesWithChunks(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newChunked(memstore.New()) },
	})
}

// F44: the handler's context ends before the deadline, and its downstream key
// differs for every record.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.key.RecordID()
	if _, err := f.do(func(ctx context.Context) (string, error) {
		if d, _ := ctx.Deadline(); !d.Equal(start.Add(9500 * ms)) {
			t.Errorf("the handler's context ends at %v, want half a second before %v", d, start.Add(10*time.Second))
		}
		e, ok := idempotent.FromContext(ctx)
		if !ok || e.RecordID() != id || e.Attempt() != 1 || e.Token() != f.record().Token() || e.Recovery() != idempotent.Reconcile {
			t.Errorf("got execution %+v, %v", e, ok)
		}
		if got := idempotent.DownstreamKey(ctx); got != id.DownstreamKey() || !strings.HasPrefix(got, "once-") || len(got) != 48 {
			t.Errorf("got downstream key %q", got)
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	if one, two := idempotent.DownstreamKey(t.Context()), idempotent.DownstreamKey(t.Context()); one == two || one == "" {
		t.Error("outside an execution two downstream keys are equal")
	}
	if id.DownstreamKey() == newKey().RecordID().DownstreamKey() {
		t.Error("two records share a downstream key")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	steps := slices.Repeat([]string{strings.Repeat("s", 64)}, 256)
	for name, row := range map[string]struct {
		f    func(*idempotent.Options)
		says string
	}{
		"retention":       {func(o *idempotent.Options) { o.Retention = -time.Hour }, "Operation.Retention"},
		"below a ms":      {func(o *idempotent.Options) { o.LeaseMargin = time.Microsecond }, "at least 1ms"},
		"reserve":         {func(o *idempotent.Options) { o.DeadlineReserve = -1 }, "Operation.DeadlineReserve"},
		"a short reserve": {func(o *idempotent.Options) { o.DeadlineReserve = 100*ms - 1 }, "Operation.DeadlineReserve is 99.999999ms; it must be at least 100ms"},
		"lease":           {func(o *idempotent.Options) { o.DefaultLease = time.Second }, "longer than Operation.LeaseMargin"},
		"reconcile after": {func(o *idempotent.Options) { o.ReconcileAfter = -1 }, "Operation.ReconcileAfter"},
		"cache age":       {func(o *idempotent.Options) { o.CacheAge = -1 }, "Options.CacheAge"},
		"cache entries":   {func(o *idempotent.Options) { o.CacheEntries = -1 }, "CacheEntries"},
		"cache bytes":     {func(o *idempotent.Options) { o.CacheBytes = -1 }, "CacheBytes"},
		"wait":            {func(o *idempotent.Options) { o.WaitFor = -1 }, "WaitFor"},
		"unresolved":      {func(o *idempotent.Options) { o.UnresolvedRetention = -1 }, "UnresolvedRetention"},
		"no steps":        {func(o *idempotent.Options) { o.Recovery = idempotent.Resume }, "Operation.Steps is empty"},
		"step name":       {func(o *idempotent.Options) { o.Steps = []string{"a", "b c"} }, "Operation.Steps: "},
		"lease of margin": {func(o *idempotent.Options) { o.DefaultLease, o.LeaseMargin = time.Second, time.Second }, "longer than Operation.LeaseMargin"},
		"recovery":        {func(o *idempotent.Options) { o.Recovery = 7 }, "Reconcile, Resume or Rerun"},
		"codec name":      {func(o *idempotent.Options) { o.Codec = named("json+br") }, "without '+'"},
		"codec final":     {func(o *idempotent.Options) { o.Codec = named("final") }, `"final"`},
		"codec omitted":   {func(o *idempotent.Options) { o.Codec = named("omitted") }, `"omitted"`},
		"codec unnamed":   {func(o *idempotent.Options) { o.Codec = named("") }, "Operation.Codec"},
		"too many steps":  {resume(append(steps, "s")...), "Operation.Steps: 257 names have 16385 bytes together; the limit is 16384"},
		"version text":    {func(o *idempotent.Options) { o.ResultVersion = "2\xff" }, "Operation.ResultVersion: want at most 1024 bytes of valid UTF-8"},
		"version length":  {func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1025) }, "Operation.ResultVersion"},
	} {
		if _, err := idempotent.New(memstore.New(), row.f); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: New: got error %v, want one that contains %q", name, err, row.says)
		}
		if _, err := newFixture(t).guard.With(row.f); err == nil {
			t.Errorf("%s: With accepted it", name)
		}
	}
	if _, err := newFixture(t).do(charged, func(o *idempotent.Operation) { o.Retention = -1 }); err == nil {
		t.Error("Do accepted a negative retention")
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.LeaseMargin, o.CacheAge = ms, ms }); err != nil {
		t.Errorf("1 ms: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1024) }); err != nil {
		t.Errorf("a version of 1,024 bytes: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), resume(steps...)); err != nil {
		t.Errorf("names of 16 KB: %v", err)
	}
	if _, err := idempotent.New(nil); err == nil {
		t.Error("New accepted a nil store")
	}
	g, err := newFixture(t).guard.With(func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := idempotent.Do(t.Context(), g, idempotent.Key{}, charged); got != "ch_1" || err != nil {
			t.Errorf("With did not change the option: %v", err)
		}
	}
}

type named string

func (n named) Name() string             { return string(n) }
func (named) Encode(any) ([]byte, error) { return nil, nil }
func (named) Decode([]byte, any) error   { return nil }

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	kit.Part(t, "../docs/concepts.md", "decide", idempotent.DecisionTable(), *update)
}

var update = flag.Bool("update", false, "write the generated parts of the documents")

// A disabled guard logs that once.
func TestDisabledIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := newFixture(t, func(o *idempotent.Options) { o.Disabled, o.Logger = true, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		if _, err := f.do(charged); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "Options.Disabled") {
			t.Errorf("logged %q", text)
		}
	}
}

// A nil guard panics with a message that says what to do.
func TestNilGuard(t *testing.T) {
	t.Parallel()
	var g *idempotent.Guard
	for name, use := range map[string]func(){
		"Do":               func() { _, _ = idempotent.Do(t.Context(), g, newKey(), charged) },
		"With":             func() { _, _ = g.With() },
		"Resolve":          func() { _ = g.Resolve(t.Context(), newKey().RecordID(), idempotent.Resolved(1)) },
		"Pending":          func() { _ = g.Pending(driver.Record{}) },
		"StoredOutcome":    func() { _, _, _ = g.StoredOutcome(t.Context(), driver.Record{}) },
		"Forget":           func() { _ = g.Forget(t.Context(), newKey().RecordID(), idempotent.Correction{}) },
		"Requeue":          func() { _ = g.Requeue(t.Context(), newKey().RecordID()) },
		"RequeueExhausted": func() { _, _ = g.RequeueExhausted(t.Context()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name+": the guard is nil; create one with New") {
					t.Errorf("%s: panicked with %q", name, text)
				}
			}()
			use()
		}()
	}
}
