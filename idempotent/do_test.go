// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, row := range []struct {
		err  error
		want string
	}{
		{idempotent.NotExecuted(cause), "cause"},
		{idempotent.NotExecuted(nil), "idempotent: not executed"},
		{idempotent.Unknown(cause), "cause"},
		{idempotent.Unknown(nil), "idempotent: outcome unknown"},
		{idempotent.Final("declined", "no funds"), "declined: no funds"},
		{&idempotent.SettledError{RecordID: "charge#AAAAAAAAAAAAAAAA", State: driver.StateCompleted}, "idempotent: charge#AAAAAAAAAAAA: the record is already completed with another outcome"},
		{&idempotent.UnresolvedError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the outcome of an earlier request is unknown; the key does not run again until evidence settles the outcome"},
		{&idempotent.LeaseLostError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: this run no longer owns the record: it was taken over, settled by another party, or removed; this result is not stored"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is gone"}, "idempotent: charge#AAAA: the request is completed, but its result cannot be replayed: it is gone"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is old", Uncompared: true}, "idempotent: charge#AAAA: the key was used before, and its record cannot be compared with this request: it is old"},
		{&idempotent.SettledError{RecordID: "charge#AAAA", Step: "pay"}, `idempotent: charge#AAAA: step "pay" already has another recorded result; use CorrectedStep if that result is wrong`},
		{&idempotent.InvalidKeyError{Field: "Scope", Problem: "is empty"}, "idempotent: invalid Scope: is empty"},
		{&idempotent.InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: cause}, "idempotent: invalid Fingerprint: cannot be computed: cause"},
		{&idempotent.NoTimeError{Remaining: -time.Second, Err: context.Canceled}, "idempotent: the handler was not executed: -1s left before the deadline (context canceled); a retry is safe"},
		{&idempotent.MismatchError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the key was used for a different request; send a new key, or repeat the first request unchanged"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpInsert, Err: cause}, "idempotent: charge#AAAA: store: insert failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpOpen, Err: cause}, "idempotent: charge#AAAA: Options.Seal: open failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpSeal, Err: cause, Entered: true}, "idempotent: charge#AAAA: Options.Seal: seal failed: cause; the handler was entered, and its outcome may not be stored"},
		{&idempotent.StoreError{Op: driver.OpListDue, Err: cause}, "idempotent: store: list_due failed: cause"},
		{&idempotent.StepError{Step: "ship", Problem: "it was not declared"}, `idempotent: step "ship": it was not declared`},
		{&idempotent.StepError{Step: "ship", Problem: "the result cannot be recorded", Err: cause}, `idempotent: step "ship": the result cannot be recorded: cause`},
		{&idempotent.InProgressError{RecordID: "x", RetryAfter: 1_500_400 * time.Microsecond, Until: time.Date(2040, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))},
			"idempotent: #: another request with this key is in progress; retry after 1.5s; its lease ends at 2040-01-02T02:04:05Z"},
	} {
		if got := row.err.Error(); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
	for _, err := range []error{idempotent.NotExecuted(cause), idempotent.Unknown(cause), &idempotent.StoreError{Err: cause}, &idempotent.LeaseLostError{Err: cause}, &idempotent.NoTimeError{Err: cause}, &idempotent.InvalidKeyError{Err: cause}} {
		if !errors.Is(err, cause) {
			t.Errorf("%T does not unwrap to its cause", err)
		}
	}
}

// F44: the handler's context ends before the deadline, and its downstream key
// differs for every record.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	key := newKey()
	_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (int, error) {
		if d, _ := ctx.Deadline(); !d.Equal(deadline.Add(-500 * time.Millisecond)) {
			t.Errorf("the handler's context ends at %v, want half a second before %v", d, deadline)
		}
		e, ok := idempotent.FromContext(ctx)
		if !ok || e.RecordID() != key.RecordID() || e.Attempt() != 1 {
			t.Errorf("got execution %+v, %v", e, ok)
		}
		if got := idempotent.DownstreamKey(ctx); got != key.RecordID().DownstreamKey() || !strings.HasPrefix(got, "once-") || len(got) != 48 {
			t.Errorf("got downstream key %q", got)
		}
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if one, two := idempotent.DownstreamKey(ctx), idempotent.DownstreamKey(ctx); one == two || one == "" {
		t.Error("outside an execution two downstream keys are equal")
	}
	if key.RecordID().DownstreamKey() == newKey().RecordID().DownstreamKey() {
		t.Error("two records share a downstream key")
	}
}

func TestHintIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{idempotent.NotExecuted(errors.New("x")), idempotent.Unknown(errors.New("x")), errors.New("secret"), errors.New("secret")} {
		idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) { return 0, err })
		if logged := log.Len() > 0; logged != (i >= 2) {
			t.Errorf("after error %d: got log %q", i, log.String())
		}
	}
	text := log.String()
	if strings.Count(text, "NotExecuted") != 1 || !strings.Contains(text, "operation=charge") || !strings.Contains(text, "*errors.errorString") {
		t.Errorf("got log %q, want the hint once", text)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the log contains the error's text: %q", text)
	}
}

func TestObserverPanicIsCaught(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer = event.ObserverFunc(func(context.Context, event.Event) { panic("observer") })
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got, err := idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("got %d and error %v", got, err)
	}
	if n := strings.Count(log.String(), "the observer panicked"); n != 3 {
		t.Errorf("%d lines in the log, want one per event: %s", n, &log)
	}
}

func TestEventsCarryFacts(t *testing.T) {
	t.Parallel()
	type requestID struct{}
	g, events := newGuard(t, func(o *idempotent.Options) {
		o.Recovery = idempotent.Rerun
		o.RequestID = func(ctx context.Context) string { return ctx.Value(requestID{}).(string) }
	})
	s := context.WithValue(t.Context(), requestID{}, "req-1")
	key := newKey()
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, idempotent.NotExecuted(errors.New("busy")) }); err == nil {
		t.Fatal("got no error")
	}
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	all := events.Events()
	if got := fmt.Sprint(events.Kinds()); got != "[reserved retryable taken_over completed]" {
		t.Fatalf("got events %s", got)
	}
	for i, e := range all {
		if e.Operation != "charge" || e.KeyHash != key.RecordID().KeyHash() || e.RequestID != "req-1" || e.Recovery != idempotent.Rerun || e.Time.IsZero() || e.Attempt != i/2+1 {
			t.Errorf("event %d has missing fields: %+v", i, e)
		}
	}
	if all[1].Reason != driver.ReasonNotExecuted || all[1].Err == nil {
		t.Errorf("the event has no reason: %+v", all[1])
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		f    func(*idempotent.Options)
		says string
	}{
		"retention":       {func(o *idempotent.Options) { o.Retention = -time.Hour }, "Options.Retention"},
		"below a ms":      {func(o *idempotent.Options) { o.LeaseMargin = time.Microsecond }, "at least 1ms"},
		"reserve":         {func(o *idempotent.Options) { o.DeadlineReserve = -1 }, "Options.DeadlineReserve"},
		"lease":           {func(o *idempotent.Options) { o.DefaultLease = time.Second }, "longer than Options.LeaseMargin"},
		"reconcile after": {func(o *idempotent.Options) { o.ReconcileAfter = -1 }, "Options.ReconcileAfter"},
		"cache age":       {func(o *idempotent.Options) { o.CacheAge = -1 }, "Options.CacheAge"},
		"cache entries":   {func(o *idempotent.Options) { o.CacheEntries = -1 }, "CacheEntries"},
		"cache bytes":     {func(o *idempotent.Options) { o.CacheBytes = -1 }, "CacheBytes"},
		"wait":            {func(o *idempotent.Options) { o.WaitFor = -1 }, "WaitFor"},
		"unresolved":      {func(o *idempotent.Options) { o.UnresolvedRetention = -1 }, "UnresolvedRetention"},
		"no steps":        {func(o *idempotent.Options) { o.Recovery = idempotent.Resume }, "Options.Steps is empty"},
		"step name":       {func(o *idempotent.Options) { o.Steps = []string{"a", "b c"} }, "Options.Steps: "},
		"lease of margin": {func(o *idempotent.Options) { o.DefaultLease, o.LeaseMargin = time.Second, time.Second }, "longer than Options.LeaseMargin"},
		"recovery":        {func(o *idempotent.Options) { o.Recovery = 7 }, "Reconcile, Resume or Rerun"},
		"codec name":      {func(o *idempotent.Options) { o.Codec = named("json+br") }, "without '+'"},
		"codec final":     {func(o *idempotent.Options) { o.Codec = named("final") }, `"final"`},
		"codec omitted":   {func(o *idempotent.Options) { o.Codec = named("omitted") }, `"omitted"`},
		"codec unnamed":   {func(o *idempotent.Options) { o.Codec = named("") }, "Options.Codec"},
		"version text":    {func(o *idempotent.Options) { o.ResultVersion = "2\xff" }, "Options.ResultVersion: want at most 1024 bytes of valid UTF-8"},
		"version length":  {func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1025) }, "Options.ResultVersion"},
	} {
		if _, err := idempotent.New(memstore.New(), row.f); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: New: got error %v, want one that contains %q", name, err, row.says)
		}
		if _, err := mustGuard(t).With(row.f); err == nil {
			t.Errorf("%s: With accepted it", name)
		}
		if _, err := idempotent.Do(t.Context(), mustGuard(t), newKey(), func(context.Context) (int, error) { return 0, nil }, row.f); err == nil {
			t.Errorf("%s: Do accepted it", name)
		}
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.LeaseMargin = time.Millisecond }); err != nil {
		t.Errorf("a margin of 1ms: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1024) }); err != nil {
		t.Errorf("a version of 1,024 bytes: %v", err)
	}
	if _, err := idempotent.New(nil); err == nil {
		t.Error("New accepted a nil store")
	}
	g, err := mustGuard(t).With(func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		runs := 0
		if _, err := idempotent.Do(t.Context(), g, idempotent.Key{}, func(context.Context) (int, error) { runs++; return 0, nil }); err != nil || runs != 1 {
			t.Errorf("With did not change the option: %v", err)
		}
	}
}

type named string

func (n named) Name() string             { return string(n) }
func (named) Encode(any) ([]byte, error) { return nil, nil }
func (named) Decode([]byte, any) error   { return nil }

func TestNames(t *testing.T) {
	t.Parallel()
	for s, name := range map[driver.State]string{1: "in_progress", 2: "completed", 3: "retryable", 4: "unknown"} {
		parsed, err := driver.ParseState(s.Code())
		if s.String() != name || parsed != s || err != nil {
			t.Errorf("state %d: name %q, code %q parsed as %d (%v)", s, s, s.Code(), parsed, err)
		}
	}
	for _, s := range []driver.State{0, 5} {
		if _, err := driver.ParseState(s.Code()); err == nil || s.Code() != "?" {
			t.Errorf("the code %q of %s was parsed", s.Code(), s)
		}
		if got, want := s.String(), fmt.Sprintf("State(%d)", uint8(s)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, r := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
		if parsed, err := driver.ParseRecovery(r.String()); parsed != r || err != nil {
			t.Errorf("recovery %d parsed as %d (%v)", r, parsed, err)
		}
	}
	if _, err := driver.ParseRecovery("resume?"); err == nil {
		t.Error("an unknown recovery was parsed")
	}
	if got := idempotent.Recovery(9).String(); got != "Recovery(9)" {
		t.Errorf("got %q", got)
	}
}

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	kit.Part(t, "../docs/concepts.md", "decide", idempotent.DecisionTable(), *update)
}

var update = flag.Bool("update", false, "write the generated parts of the documents")
