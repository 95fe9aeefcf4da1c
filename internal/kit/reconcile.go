// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/outage"
)

// Reconcile makes one run of a reconciler with a resolver for every operation, or, if
// resolve is nil, without one. Records that failed are in the report, and no error.
func Reconcile(
	ctx context.Context, g *idempotent.Guard, resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions),
) (idempotent.Report, error) {
	report, err := idempotent.Reconciler(g, Resolver(resolve), optFns...)(ctx)
	if errors.As(err, new(*outage.Error)) {
		err = nil
	}
	return report, err
}

// Resolver returns the resolvers of a reconciler that has one for every operation.
func Resolver(resolve idempotent.ResolveFunc) map[string]idempotent.ResolveFunc {
	if resolve == nil {
		return nil
	}
	return map[string]idempotent.ResolveFunc{"*": resolve}
}
