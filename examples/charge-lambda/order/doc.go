// Package order takes an order in three steps: it authorises the payment at the
// provider, writes the order, and sees to a receipt. Each of them happens once,
// wherever the process dies.
//
// [Shop.InSteps] declares [idempotent.Resume]: each effect is a step, and the
// next request goes on where the last one stopped. The order is written in one
// transaction with the mark of its step. If no request comes, [Shop.ResolveSteps]
// records a payment that a dead attempt made.
//
// [Shop.AtOnce] declares [idempotent.Reconcile]: there is one foreign effect, the
// payment, and the order, the request for a receipt, and the outcome are one
// transaction. A request that dies between the two leaves an unknown outcome,
// which [Shop.Resolve] settles from what the provider says. Without the payment the
// handler would be a Commit and nothing else, and declare [idempotent.Rerun].
//
// The transactions are DynamoDB's, so the guard has to be over a store of package
// dynamostore. Without transactions the order would be a step of its own that
// writes under a condition, which is safe to repeat, and AtOnce would not be.
package order
