package idempotent

import (
	"context"
	"time"
)

// deadlineContext has a deadline but never ends.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
