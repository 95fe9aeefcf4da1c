// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

func logOf(level slog.Level, events ...event.Event) string {
	var b bytes.Buffer
	o := event.LogObserver(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for _, e := range events {
		o.Observe(context.Background(), e)
	}
	return b.String()
}

// A line has the fields of the event, the type of an error, and the text of an
// error of this toolkit.
func TestLogObserver(t *testing.T) {
	t.Parallel()
	full := event.Event{
		Kind: event.StoreError, Operation: "charge", KeyHash: "abc", RequestID: "r-1", Attempt: 2,
		Recovery: idempotent.Rerun, Reason: driver.ReasonLeaseEnded, Step: "ship", Err: errors.New("the card is 4242"),
	}
	want := `level=ERROR msg="once: store_error" event=store_error operation=charge key_hash=abc request_id=r-1 reason=` + string(driver.ReasonLeaseEnded) +
		` step=ship attempt=2 recovery=rerun error_type=*errors.errorString` + "\n"
	if got := logOf(slog.LevelInfo, full); got != want {
		t.Errorf("it logged\n%swant\n%s", got, want)
	}
	full.Err = fmt.Errorf("the card is 4242: %w", &idempotent.InvalidKeyError{Field: "ID", Problem: "missing"})
	if got := logOf(slog.LevelInfo, full); strings.Contains(got, "4242") || !strings.Contains(got, ` error_type=*fmt.wrapError error="idempotent: invalid ID: missing"`) {
		t.Errorf("of an error of this toolkit it logged %s", got)
	}
	ended := event.Event{Kind: event.RequestEnded, Operation: "charge", Durations: event.Durations{Claim: 2 * time.Millisecond, Handler: time.Second}}
	if got, want := logOf(slog.LevelDebug, ended), `level=DEBUG msg="once: request_ended" event=request_ended operation=charge claim_duration=0.002 handler_duration=1`+"\n"; got != want {
		t.Errorf("it logged\n%swant\n%s", got, want)
	}
	bare := event.Event{Kind: event.KeyMissing, Operation: "charge"}
	if got, want := logOf(slog.LevelInfo, bare), `level=WARN msg="once: key_missing" event=key_missing operation=charge`+"\n"; got != want {
		t.Errorf("it logged\n%swant\n%s", got, want)
	}
}

// Events that need no action are logged at debug level.
func TestLogObserver_Levels(t *testing.T) {
	t.Parallel()
	for kind, want := range map[event.Kind]string{
		event.Reserved: "DEBUG", event.Replayed: "DEBUG", event.Completed: "DEBUG", event.InProgress: "DEBUG",
		event.TakenOver: "DEBUG", event.Retryable: "DEBUG", event.StepDone: "DEBUG", event.Resolved: "DEBUG",
		event.Mismatch: "WARN", event.MarkedUnknown: "WARN", event.Unresolved: "WARN", event.LateCompletion: "WARN",
		event.LeaseLost: "WARN", event.ReplayFailed: "WARN", event.KeyMissing: "WARN", event.ReconcileFailed: "WARN", event.Forgotten: "WARN",
		event.StoreError: "ERROR", event.CompletionFailed: "ERROR", event.Contradicted: "ERROR", event.ReconcileExhausted: "ERROR",
	} {
		if got := logOf(slog.LevelDebug, event.Event{Kind: kind}); !strings.HasPrefix(got, "level="+want+" ") {
			t.Errorf("%s is logged as %q, want %s", kind, got, want)
		}
		if got := logOf(slog.LevelInfo, event.Event{Kind: kind}); (got == "") != (want == "DEBUG") {
			t.Errorf("%s: a log without debug lines has %q", kind, got)
		}
	}
}

// Observers calls every observer in order; nil observers are skipped.
func TestObservers(t *testing.T) {
	t.Parallel()
	var told []string
	named := func(name string) event.Observer {
		return event.ObserverFunc(func(_ context.Context, e event.Event) { told = append(told, name+" "+string(e.Kind)) })
	}
	o := event.Observers(named("a"), nil, named("b"))
	o.Observe(t.Context(), event.Event{Kind: event.Reserved})
	if want := []string{"a reserved", "b reserved"}; !slices.Equal(told, want) {
		t.Errorf("got calls %q, want %q", told, want)
	}
	event.Observers().Observe(t.Context(), event.Event{})
}
