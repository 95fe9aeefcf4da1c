// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/view"
)

// ForgetQuestion returns what will be discarded. The answer is the hash of the record.
func ForgetQuestion(e *Env, o Store, r *driver.Record, reason string) Question {
	facts := append(about(o, r, "since "+output.When(r.Since, e.Now())),
		[2]string{"result", output.DescribeResult(view.Of(r))}, writes([]becoming{{one: "retryable, because its outcome is discarded"}}, reason))
	return Question{facts, "The next request with this key runs. If the effect did happen, it happens twice:\nundo it at the provider first.", r.ID.KeyHash()}
}

// Forget lets the guard check and discard the outcome, and returns the line for the
// audit.
func Forget(ctx context.Context, e *Env, o Store, r *driver.Record, token, reason string) (AuditLine, error) {
	line := AuditLine{Action: "forget", Record: r.ID, From: r.State.String(), To: r.State.String(), Token: token, Reason: reason}
	written := false
	g := Guard(e, o, func(opts *idempotent.Options) {
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) { written = written || e.Kind == event.Forgotten })
	})
	err := g.Forget(ctx, r.ID, idempotent.Correction{Token: token, Actor: e.actor(), Reason: reason})
	if written {
		line.To = driver.StateRetryable.String()
	}
	err = refusal(stale(r.ID, err, ""))
	return line.ended(o, written, err), err
}
