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

// A step outside a guarded handler is logged once per process. The test is not
// parallel, because it replaces the output of the default logger.
func TestStepWithoutExecutionIsLogged(t *testing.T) {
	defer log.SetOutput(log.Writer())
	var logged strings.Builder
	log.SetOutput(&logged)
	warnedOutside.Store(false)
	for range 2 {
		if _, err := Step(t.Context(), "a", func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}
	if strings.Count(logged.String(), "Step was called") != 1 {
		t.Errorf("logged %q", &logged)
	}
}
