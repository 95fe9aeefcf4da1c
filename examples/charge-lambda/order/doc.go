// SPDX-License-Identifier: Apache-2.0

// Package order takes an order in three steps: it authorises the payment at the
// provider, writes the order, and requests a receipt by mail. Each of them happens
// once, wherever the process dies.
//
// [Shop.InSteps] declares [idempotent.Resume]: each effect is a step, and the next
// request continues where the last one stopped. The order and the mark of its step
// are written in one transaction. If no request comes, [Shop.ResolveSteps] records
// a payment that a dead attempt made.
//
// [Shop.AtOnce] declares [idempotent.Reconcile]: there is one external effect, the
// payment, and the order, the request for a receipt, and the outcome are one
// transaction. A request that dies between the two leaves an unknown outcome, which
// [Shop.Resolve] settles with the provider's answer. Without the payment the
// handler would consist of one Commit, and declare [idempotent.Rerun].
//
// The transactions are DynamoDB's, so the guard needs a store of package
// dynamostore. Without transactions, the order would have to be a separate step
// with a conditional write, which is safe to repeat, and AtOnce would not be safe.
package order
