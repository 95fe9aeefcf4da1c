// SPDX-License-Identifier: Apache-2.0

// Package powertools tests the move from Powertools to once with the real
// packages for Python and TypeScript, at the versions of tests/measured/bench/peers, and
// DynamoDB Local. It has the code of docs/migrate-from-powertools.md:
//
//	handler.go           the guarded function
//	python, typescript   before: the function with Powertools; shared: with the table of once
//
// A worker runs the function of a language in one process. Its commands are lines
// of JSON: n, orderId, amount and mode. Mode ok returns a receipt, fail raises an
// error before the effect, crash ends the run after it as a kill does, late waits
// after it for a release with the same order, and hash returns the key of the item. Its answers are lines of JSON too: effect when the
// effect happens, then result, error or key.
package powertools

import (
	"context"
	"encoding/json"

	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/idempotent"
)

// Order is the event of the function. A number keeps the spelling of the event, such
// as 50.00.
type Order struct {
	OrderID string      `json:"orderId"`
	Amount  json.Number `json:"amount"`
}

// Receipt is its result.
type Receipt struct {
	Receipt int         `json:"receipt"`
	Amount  json.Number `json:"amount"`
}

type orderKey struct{}

// newHandler returns the function that takes over from one that uses Powertools.
func newHandler(
	guard *idempotent.Guard, client powertools.Client, table string, language powertools.Language, prefix string,
	takePayment func(context.Context, Order) (Receipt, error), optFns ...func(*powertools.Options),
) (func(context.Context, Order) (Receipt, error), error) {
	validated := func(o *powertools.Options) {
		o.Validation = func(ctx context.Context, _ idempotent.Key) (any, error) {
			return ctx.Value(orderKey{}).(Order).Amount, nil // payload_validation_jmespath="amount"
		}
	}
	asked, err := powertools.Predecessor(client, table, language, prefix, append(optFns, validated)...)
	if err != nil {
		return nil, err
	}
	key := idempotent.KeyFrom("charge", func(o Order) (scope, id string) { return idempotent.Global, o.OrderID })
	handler := idempotent.Wrap(guard, key, takePayment, func(o *idempotent.Operation) { o.Predecessor = asked })
	return func(ctx context.Context, o Order) (Receipt, error) {
		return handler(context.WithValue(ctx, orderKey{}, o), o)
	}, nil
}

// newReconciler settles the payments whose outcome is unknown.
func newReconciler(
	guard *idempotent.Guard, client powertools.Reader, table string, language powertools.Language, prefix string,
	askProvider idempotent.ResolveFunc, optFns ...func(*powertools.Options),
) (func(context.Context) (idempotent.Report, error), error) {
	resolve, err := powertools.Resolver(client, table, language, prefix, askProvider, optFns...)
	if err != nil {
		return nil, err
	}
	return idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{"charge": resolve}), nil
}
