// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"log"
	"strings"
	"testing"
	"time"
)

// deadlineContext has a deadline but never ends.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A step or a downstream key outside a guarded handler is logged once per process.
// The test is not parallel, because it replaces the output of the default logger.
func TestStepWithoutExecutionIsLogged(t *testing.T) {
	defer log.SetOutput(log.Writer())
	for name, use := range map[string]func(context.Context){
		"Step": func(ctx context.Context) {
			if _, err := Step(ctx, "a", func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Error(err)
			}
		},
		"DownstreamKey": func(ctx context.Context) { DownstreamKey(ctx) },
	} {
		var logged strings.Builder
		log.SetOutput(&logged)
		warnedOutside.Store(false)
		use(withExecution(t.Context(), nil)) // as in a handler that a guard runs unguarded
		if logged.Len() != 0 {
			t.Errorf("%s in an unguarded handler: logged %q", name, &logged)
		}
		for range 2 {
			if use(t.Context()); strings.Count(logged.String(), name+" was called") != 1 {
				t.Errorf("%s: logged %q", name, &logged)
			}
		}
	}
}

// Records store times in UTC and in whole milliseconds.
func TestNow(t *testing.T) {
	t.Parallel()
	given := time.Date(2026, 11, 22, 10, 30, 0, 123_456_789, time.FixedZone("", 3600))
	o := Options{Now: func() time.Time { return given }}
	if got, want := o.now(), time.Date(2026, 11, 22, 9, 30, 0, 123_000_000, time.UTC); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
