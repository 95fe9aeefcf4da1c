// SPDX-License-Identifier: Apache-2.0

// Package order takes an order in three steps: it authorises the payment at the
// provider, writes the order, and requests a receipt by mail. Each of them happens
// once, wherever the process dies. Read its files in this order:
//
//	shop.go   what both handlers share: the order and what it writes
//	steps.go  InSteps, under idempotent.Resume: each effect is a step
//	once.go   AtOnce, under idempotent.Reconcile: the payment, and one transaction
//
// The transactions are DynamoDB's, so the guard needs a store of package
// dynamostore. Without transactions, the order would have to be a separate step
// with a conditional write, which is safe to repeat, and AtOnce would not be safe.
package order
