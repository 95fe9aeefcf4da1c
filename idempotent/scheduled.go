package idempotent

import (
	"context"
	"errors"
	"fmt"
)

// Reconciler returns [ReconcileDue] as a handler for lambda.Start, to be invoked
// on a schedule, usually every minute. The resolvers are listed by operation,
// because several operations can share a table; do not change the map afterwards.
// The handler ignores its event and returns the report, for the log. It returns
// an error if listing the due records fails, or if every record failed, so that
// an alarm on errors reports an outage.
//
// Like [Wrap], it panics if an argument is nil or an option is invalid.
func Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	for operation, resolve := range resolvers {
		if resolve == nil {
			panic(fmt.Errorf("idempotent: Reconciler: the resolver for operation %q must not be nil", operation))
		}
	}
	// A record of an operation without a resolver fails and is eventually listed as
	// exhausted.
	resolve := func(ctx context.Context, r PendingRecord) (Resolution, error) {
		resolve := resolvers[r.ID.Operation()]
		if resolve == nil {
			return Resolution{}, fmt.Errorf("idempotent: no resolver for operation %q", r.ID.Operation())
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
