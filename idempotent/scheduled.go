package idempotent

import (
	"context"
	"errors"
	"fmt"
)

// Reconciler returns [ReconcileDue] as a handler for lambda.Start, to be called
// on a schedule: every minute is usual. The resolvers of a table that several
// operations share are listed by operation; do not change the map afterwards. What the schedule sends is ignored; the
// report is returned, for the log. It fails if the list of due records does, or
// if every record failed, so that an alarm on errors tells of an outage.
//
// Like [Wrap] it panics if an argument is nil or an option is wrong.
func Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	for operation, resolve := range resolvers {
		if resolve == nil {
			panic(fmt.Errorf("idempotent: Reconciler wants a function for the operation %q, got nil", operation))
		}
	}
	// An operation without a resolver fails, so that its records end in the list of
	// the exhausted.
	resolve := func(ctx context.Context, r PendingRecord) (Resolution, error) {
		resolve := resolvers[r.ID.Operation()]
		if resolve == nil {
			return Resolution{}, fmt.Errorf("idempotent: no resolver for the operation %q", r.ID.Operation())
		}
		return resolve(ctx, r)
	}
	if _, err := newReconciler(g, resolve, optFns); err != nil {
		panic(err)
	}
	return func(ctx context.Context) (Report, error) {
		report, err := ReconcileDue(ctx, g, resolve, optFns...)
		if err == nil && report.Due > 0 && report.Failed >= report.Due {
			err = errors.New("idempotent: reconciliation failed for every record that was due")
		}
		return report, err
	}
}
