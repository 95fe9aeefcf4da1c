// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
)

// settler writes evidence of operators.
type settler struct {
	*env
	resultVersion string
	force         bool // whatever the shape of a result is
}

// write lets the guard check and write the evidence. It reports whether the record
// changed: it may already hold the same outcome.
func (c *settler) write(ctx context.Context, o *opened, id idempotent.RecordID, ev *evidence) (written bool, err error) {
	g, err := c.guard(o, func(opts *idempotent.Options) {
		opts.ResultVersion = c.resultVersion
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			written = written || e.Kind == event.Resolved
		})
	})
	if err != nil {
		return false, err
	}
	err = g.Resolve(ctx, id, ev.resolution)
	if stale, ok := errors.AsType[*idempotent.StaleEvidenceError](err); ok {
		err = staleToken(id, stale)
	}
	return written, refusal(err) // for example of a result that is too large
}

// staleToken refuses evidence about an earlier attempt.
func staleToken(id idempotent.RecordID, stale *idempotent.StaleEvidenceError) error {
	return refuse("%s: the token is not that of its current attempt (attempt %d); run once show again, then ask the provider again", short(id), stale.Attempt)
}
