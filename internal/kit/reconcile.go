// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"strings"

	"github.com/once-lambda/once/idempotent"
)

// Reconcile makes one run of a reconciler with a resolver for every operation, or, if
// resolve is nil, without one. Records that failed are in the report, and no error: only an
// outage, of which the reconciler's two texts are known here, is dropped.
func Reconcile(
	ctx context.Context, g *idempotent.Guard, resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions),
) (idempotent.Report, error) {
	report, err := idempotent.Reconciler(g, Resolver(resolve), optFns...)(ctx)
	if err != nil && (strings.HasPrefix(err.Error(), "idempotent: reconciliation failed for every record") ||
		strings.Contains(err.Error(), " calls in a row of the resolver for ")) {
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
