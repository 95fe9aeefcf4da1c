// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry/audit"
)

func read(t *testing.T, w *bytes.Buffer) (all []audit.Line) {
	t.Helper()
	for line := range bytes.Lines(w.Bytes()) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var l audit.Line
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, l)
	}
	return all
}

// F71: one line for each settled operation through its whole life, and no line for
// other facts.
func TestOneLineForEachSettledOperation(t *testing.T) {
	t.Parallel()
	var (
		w     bytes.Buffer
		clock idempotenttest.Clock
	)
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer, o.Now, o.Logger = audit.New(&w), clock.Now, slog.New(slog.DiscardHandler)
		o.RequestID = func(context.Context) string { return "r-1" }
	})
	if err != nil {
		t.Fatal(err)
	}
	key := func(id string) idempotent.Key {
		return idempotent.Key{Operation: "charge", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes([]byte("secret payload"))}
	}
	do := func(id string, err error) {
		idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key(id), func(context.Context) (string, error) { return "secret result", err })
	}
	do("order-1", nil)
	do("order-1", nil) // a replay
	do("order-2", idempotent.NotExecuted(errors.New("secret error")))
	do("order-2", nil) // a takeover
	do("order-3", errors.New("secret error"))
	do("order-3", nil) // unresolved
	do("order-4", idempotent.Final("declined", "secret message"))
	if err := guard.Resolve(t.Context(), key("order-3").RecordID(), idempotent.Resolved("secret result")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range read(t, &w) {
		if l.Time.IsZero() || l.Operation != "charge" || len(l.KeyHash) != 12 || l.Recovery != "reconcile" || l.Outcome != "resolved" && l.RequestID != "r-1" {
			t.Errorf("a line is incomplete: %+v", l)
		}
		order := slices.IndexFunc([]string{"order-1", "order-2", "order-3", "order-4"}, func(id string) bool { return key(id).RecordID().KeyHash() == l.KeyHash })
		got = append(got, fmt.Sprintf("%d %s %s %d", order+1, l.Outcome, l.Reason, l.Attempt))
	}
	want := []string{
		"1 completed result 1", "2 retryable not_executed 1", "2 completed result 2", "3 unknown handler_error 1", "4 completed final 1", "3 resolved resolved 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the lines:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(w.String(), "secret") || strings.Contains(w.String(), "order-") {
		t.Errorf("a line contains a secret:\n%s", &w)
	}
}

// Evidence about a step has a separate line. The line names the step and does
// not report the operation as settled.
func TestEvidenceAboutAStepIsNotAnOutcome(t *testing.T) {
	t.Parallel()
	var (
		w     bytes.Buffer
		clock idempotenttest.Clock
	)
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer, o.Now, o.Logger = audit.New(&w), clock.Now, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	if _, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key, func(ctx context.Context) (string, error) {
		return "", guard.Resolve(ctx, key.RecordID(), idempotent.ResolvedStep("charge", "secret result"))
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range read(t, &w) {
		got = append(got, strings.TrimSpace(l.Outcome+" "+l.Step))
	}
	if want := []string{"step_resolved charge", "completed"}; !slices.Equal(got, want) || strings.Contains(w.String(), "secret") {
		t.Errorf("the lines:\n%s\nwant %q", &w, want)
	}
}

// If a record became unknown because a provider may have forgotten a step's key,
// the line contains that reason.
func TestForgottenKeysAreAReason(t *testing.T) {
	t.Parallel()
	var (
		w     bytes.Buffer
		clock idempotenttest.Clock
	)
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.DownstreamRetention = idempotent.Resume, []string{"charge"}, time.Hour
		o.Observer, o.Now, o.Logger = audit.New(&w), clock.Now, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes(nil)}
		_, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key, func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errors.New("no answer") })
		})
		if err == nil {
			t.Error("the error was lost")
		}
		clock.Advance(time.Hour)
	}
	var got []string
	for _, l := range read(t, &w) {
		got = append(got, l.Outcome+" "+l.Reason)
	}
	if want := []string{"retryable handler_error", "unknown keys_forgotten"}; !slices.Equal(got, want) {
		t.Errorf("the lines %q, want %q", got, want)
	}
}

// The outcome of each kind of fact that settles an operation. If evidence is about a
// step, it is not the operation's outcome.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[event.Kind]string{
		event.Completed: "completed", event.LateCompletion: "completed", event.Retryable: "retryable",
		event.MarkedUnknown: "unknown", event.Resolved: "step_resolved", event.Forgotten: "forgotten", event.Contradicted: "contradicted",
		event.LeaseLost: "lease_lost", event.ReconcileExhausted: "exhausted",
		event.Reserved: "", event.TakenOver: "", event.Replayed: "", event.StepDone: "",
		event.StoreError: "", event.ReconcileScheduled: "", event.CompletionFailed: "",
	} {
		var w bytes.Buffer
		audit.New(&w).Observe(t.Context(), event.Event{Kind: kind, Step: "charge"})
		got := ""
		for _, l := range read(t, &w) {
			got += l.Outcome
		}
		if got != want {
			t.Errorf("%s is %q, want %q", kind, got, want)
		}
	}
}

// broken is a writer that fails, or panics.
type broken struct{ panics bool }

var errFull = errors.New("the disk is full")

func (b broken) Write([]byte) (int, error) {
	if b.panics {
		panic("broken")
	}
	return 0, errFull
}

func TestWriterFails(t *testing.T) {
	t.Parallel()
	settled := event.Event{Kind: event.Completed}
	var told error
	o := audit.New(broken{}, func(o *audit.Options) { o.Failed = func(err error) { told = err } })
	o.Observe(t.Context(), settled)
	if !errors.Is(told, errFull) {
		t.Errorf("Failed got %v", told)
	}
	var w bytes.Buffer
	o = audit.New(&w, func(o *audit.Options) { o.Failed = func(err error) { told = err } })
	if o.Observe(t.Context(), settled); told != errFull {
		t.Errorf("Failed got %v although the line was written", told)
	}
	w.Reset()
	tooLate := event.Event{Kind: event.Completed, Time: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if o.Observe(t.Context(), tooLate); told == errFull || w.Len() != 0 {
		t.Errorf("Failed got %v, and %q was written, for a time that JSON cannot represent", told, &w)
	}
	audit.New(broken{}).Observe(t.Context(), settled) // Failed is not set
	audit.New(broken{}, func(o *audit.Options) { o.Failed = nil }).Observe(t.Context(), settled)
	o = audit.New(broken{panics: true})
	for range 2 { // blocks if the lock is still held
		func() {
			defer func() { recover() }()
			o.Observe(t.Context(), settled)
		}()
	}
	defer func() {
		if recover() == nil {
			t.Error("New accepted a nil writer")
		}
	}()
	audit.New(nil)
}

// Lines of concurrent invocations are not mixed.
func TestManyInvocations(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := audit.New(&w)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 20 {
				o.Observe(t.Context(), event.Event{Kind: event.Completed, Operation: "charge"})
			}
		})
	}
	all.Wait()
	if n := len(read(t, &w)); n != 64*20 {
		t.Errorf("%d lines, want %d", n, 64*20)
	}
}

// The line about a discarded outcome names who discarded it, and why.
func TestForgotten(t *testing.T) {
	t.Parallel()
	var (
		w     bytes.Buffer
		clock idempotenttest.Clock
	)
	store := memstore.New()
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now = clock.Now })
	if err != nil {
		t.Fatal(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes([]byte("payload"))}
	if _, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key, func(context.Context) (string, error) { return "ch_1", nil }); err != nil {
		t.Fatal(err)
	}
	r, err := store.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	audited, err := guard.With(func(o *idempotent.Options) { o.Observer = audit.New(&w) })
	if err != nil {
		t.Fatal(err)
	}
	if err := audited.Forget(t.Context(), r.ID, idempotent.Correction{Token: r.Token(), Actor: "mia@desk", Reason: "ch_1 is of another order"}); err != nil {
		t.Fatal(err)
	}
	lines := read(t, &w)
	if len(lines) != 1 || lines[0].Outcome != "forgotten" || lines[0].Actor != "mia@desk" || lines[0].Note != "ch_1 is of another order" || lines[0].Reason != "forgotten" {
		t.Errorf("got %+v", lines)
	}
}
