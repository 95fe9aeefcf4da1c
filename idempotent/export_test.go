// SPDX-License-Identifier: Apache-2.0

package idempotent

import "context"

// Reading is how many entries a run of the following functions reads before it works.
type Reading int

// ReconcileDue is the function of that name.
func (n Reading) ReconcileDue(ctx context.Context, g *Guard, resolve ResolveFunc, optFns ...func(*ReconcileOptions)) (Report, error) {
	return reconcileDue(ctx, &progress{first: int(n)}, g, resolve, optFns)
}

// Reconciler is the function of that name.
func (n Reading) Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	return reconcilerOf(&progress{first: int(n)}, g, resolvers, optFns)
}
