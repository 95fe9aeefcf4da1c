package idempotent

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Resolvers are the resolvers of a table that several operations share, by
// operation. Do not change it while it is in use.
type Resolvers map[string]ResolveFunc

// Resolve is a [ResolveFunc]: it asks the resolver of the record's operation.
// Without one it fails, so that the record ends among the exhausted and not
// nowhere.
func (m Resolvers) Resolve(ctx context.Context, r driver.Record) (Resolution, error) {
	resolve := m[r.ID.Operation()]
	if resolve == nil {
		return Resolution{}, fmt.Errorf("idempotent: no resolver for the operation %q", r.ID.Operation())
	}
	return resolve(ctx, r)
}

// Reconciler returns [ReconcileDue] as a handler for lambda.Start, to be called
// on a schedule: every minute is usual. What the schedule sends is ignored; the
// report is returned, for the log. It fails if the list of due records does, or
// if every record failed, so that an alarm on errors tells of an outage.
//
// Like [Wrap] it panics if an argument is nil or an option is wrong.
func Reconciler(g *Guard, resolvers Resolvers, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	for operation, resolve := range resolvers {
		if resolve == nil {
			panic(fmt.Errorf("idempotent: Reconciler wants a function for the operation %q, got nil", operation))
		}
	}
	if _, err := newReconciler(g, resolvers.Resolve, optFns); err != nil {
		panic(err)
	}
	return func(ctx context.Context) (Report, error) {
		report, err := ReconcileDue(ctx, g, resolvers.Resolve, optFns...)
		if err == nil && report.Due > 0 && report.Failed >= report.Due {
			err = errors.New("idempotent: reconciliation failed for every record that was due")
		}
		return report, err
	}
}
