// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
)

// The record stores the trace parent of its current attempt, and the events about
// it contain that, whichever request they report.
func TestTraceParent(t *testing.T) {
	t.Parallel()
	const first, second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-00"
	type current struct{}
	s, key := memstore.New(), newKey()
	g, events := newGuardOver(t, s, func(o *idempotent.Options) {
		o.TraceParent = func(ctx context.Context) string { return ctx.Value(current{}).(string) }
	})
	send := func(trace string, err error) {
		_, _ = idempotent.Do(context.WithValue(t.Context(), current{}, trace), g, key, func(context.Context) (int, error) { return 1, err })
	}
	send(first, idempotent.NotExecuted(errors.New("busy")))
	if r := record(t, s, key); r.TraceParent != first {
		t.Errorf("the record has the trace %q, want that of the first request", r.TraceParent)
	}
	send(second, nil)
	send(first, nil) // a replay
	if r := record(t, s, key); r.TraceParent != second {
		t.Errorf("the record has the trace %q, want that of the request that ran", r.TraceParent)
	}
	want := []struct {
		kind  event.Kind
		trace string
	}{{event.Reserved, first}, {event.Retryable, first}, {event.TakenOver, second}, {event.Completed, second}, {event.Replayed, second}}
	for i, e := range events.Events() {
		if e.Kind != want[i].kind || e.TraceParent != want[i].trace {
			t.Errorf("event %d is %s with the trace %q, want %s with %q", i, e.Kind, e.TraceParent, want[i].kind, want[i].trace)
		}
	}
	for _, invalid := range []string{
		"", "no trace", first + "0", first[1:], strings.ToUpper(first), "ff" + first[2:], strings.Replace(first, "c", "\n", 1),
	} {
		key = newKey()
		send(invalid, nil)
		if r := record(t, s, key); r.TraceParent != "" {
			t.Errorf("%q is stored as %q", invalid, r.TraceParent)
		}
	}
}

// Without the option nothing is stored, and an earlier attempt's trace goes with
// that attempt.
func TestTraceParentIsOffByDefault(t *testing.T) {
	t.Parallel()
	s, key := memstore.New(), newKey()
	for i, o := range []func(*idempotent.Options){
		func(o *idempotent.Options) {
			o.TraceParent = func(context.Context) string { return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }
		},
		func(*idempotent.Options) {},
	} {
		g, _ := newGuardOver(t, s, o)
		_, _ = idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 1, idempotent.NotExecuted(errors.New("busy")) })
		if r := record(t, s, key); (r.TraceParent == "") != (i == 1) || r.Attempt != i+1 {
			t.Errorf("attempt %d has the trace %q", r.Attempt, r.TraceParent)
		}
	}
}
