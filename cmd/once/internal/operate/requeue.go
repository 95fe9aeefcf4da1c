// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// GivenUp returns the records of the operations that reconciliation has given up.
func GivenUp(ctx context.Context, e *Env, o Store, operations []string) (list []*driver.Record, err error) {
	m := e.Meter("listing", 0)
	for r, err := range Exhausted(ctx, o, operations) {
		if err != nil {
			return nil, err
		}
		list = append(list, &r)
		m.Add(1)
	}
	return list, o.Alien(ctx)
}

// RequeueQuestion returns what will be requeued. The answer is the number of records.
func RequeueQuestion(o Store, list []*driver.Record, reason string) Question {
	var become []becoming
	for _, r := range list {
		text := "due now, of " + output.OneLine(r.ID.Operation())
		become = append(become, becoming{text, text})
	}
	facts := [][2]string{{"in", output.OneLine(o.Name())}, writes(become, reason)}
	return Question{facts, "Reconciliation asks about them again. Nothing runs, and no outcome is stored.", fmt.Sprint(len(list))}
}

// RequeueAll requeues the records. It returns the results, and the errors of the audit.
func RequeueAll(ctx context.Context, e *Env, o Store, list []*driver.Record, reason string, a *Auditor) (*Results, error) {
	var tasks []*Task
	for _, r := range list {
		tasks = append(tasks, &Task{ID: r.ID, Piece: Piece{Record: r}, Line: AuditLine{From: r.State.String()}})
	}
	all := e.Results(false)
	return all, all.CarryOut(ctx, tasks, a, func(t *Task) { t.Line, _ = Requeue(ctx, e, o, t.Record, reason) })
}

// Requeue requeues a record, and returns its line for the audit.
func Requeue(ctx context.Context, e *Env, o Store, r *driver.Record, reason string) (AuditLine, error) {
	state := r.State.String()
	line := AuditLine{Action: "requeue", Record: r.ID, From: state, To: state, Reason: reason}
	written := false
	g := Guard(e, o, func(opts *idempotent.Options) {
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			if e.Kind == event.MarkedUnknown {
				line.To = driver.StateUnknown.String()
			}
			if e.Kind == event.Retryable {
				line.To = driver.StateRetryable.String()
			}
			written = written || e.Kind == event.ReconcileScheduled || line.To != state
		})
	})
	err := refusal(g.Requeue(ctx, r.ID))
	return line.ended(o, written, err), err
}
