// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"errors"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

// taker takes orders. It is safe for concurrent use.
type taker struct {
	shop     Shop
	payments Payments
}

// take takes one order. After an error the message is delivered again, and
// finished steps return their stored results. A permanent refusal is Final, so
// the message is acknowledged.
func (t *taker) take(ctx context.Context, o Order) error {
	if err := o.check(); err != nil {
		return idempotent.NotExecuted(err)
	}
	_, err := dynamostore.CommitStep(ctx, "reserve", o.Quantity, t.shop.takeFromStock(o))
	if errors.As(err, new(*dynamostore.ConditionError)) {
		return idempotent.Final("sold_out", "There are not enough left.")
	}
	if err != nil {
		return err
	}
	charge, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (Charge, error) {
		return t.payments.Charge(ctx, idempotent.DownstreamKey(ctx), o.Customer, o.Amount)
	})
	if err != nil {
		return err
	}
	if charge.Declined {
		if _, err := dynamostore.CommitStep(ctx, "give-back", o.Quantity, t.shop.giveBack(o)); err != nil {
			return err
		}
		return idempotent.Final("declined", "The customer cannot pay.")
	}
	return dynamostore.Commit(ctx, struct{}{}, t.shop.order(o, charge), t.shop.announcement(o))
}
