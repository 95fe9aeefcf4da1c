// SPDX-License-Identifier: Apache-2.0

package order

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
)

// AtOnce returns the handler that pays, and then writes everything else in one
// transaction: the order, the request for a receipt, and the outcome.
func (s *Shop) AtOnce() Handler {
	return idempotent.Wrap(s.Guard, byNumber(AtOnce), s.atOnce, func(o *idempotent.Operation) { o.Recovery = idempotent.Reconcile })
}

func (s *Shop) atOnce(ctx context.Context, r Request) (Confirmation, error) {
	paid, err := s.Provider.Charge(ctx, idempotent.DownstreamKey(ctx), r.Request)
	switch {
	case errors.Is(err, charge.ErrDeclined):
		return Confirmation{}, declined
	case errors.Is(err, charge.ErrNotSent):
		return Confirmation{}, idempotent.NotExecuted(err)
	case err != nil: // unknown: only the provider knows the result
		return Confirmation{}, err
	}
	execution, _ := idempotent.FromContext(ctx) // of the guard in AtOnce
	done := Confirmation{Order: ID(execution.RecordID()), Charge: paid.ID}
	return done, dynamostore.Commit(ctx, done, s.order(done.Order, paid), s.wanted(done.Order))
}

// Resolve is an [idempotent.ResolveFunc] for AtOnce. If the provider was paid,
// it writes what the handler did not write. It is safe to call twice, and while
// a late handler writes the same: only one of them can write the order.
func (s *Shop) Resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	paid, err := s.Provider.Find(ctx, r.ID.DownstreamKey())
	switch {
	case errors.Is(err, charge.ErrNoCharge):
		return charge.NotCharged(r, s.Now()), nil
	case err != nil:
		return idempotent.Resolution{}, err // retried later
	}
	done := Confirmation{Order: ID(r.ID), Charge: paid.ID}
	_, err = s.Client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{s.order(done.Order, paid), s.wanted(done.Order)},
	})
	if err != nil && !written(err) {
		return idempotent.Resolution{}, err
	}
	return idempotent.Resolved(done), nil
}

// written reports whether err means that the order exists already.
func written(err error) bool {
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	return ok && len(cancelled.CancellationReasons) > 0 &&
		aws.ToString(cancelled.CancellationReasons[0].Code) == "ConditionalCheckFailed"
}
