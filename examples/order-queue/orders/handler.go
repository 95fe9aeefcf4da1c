// SPDX-License-Identifier: Apache-2.0

// Package orders takes orders from a queue: it reserves the goods, charges the
// customer, and writes the order, once for each order, even if the process dies
// in between.
//
//	message ─► reserve   the stock goes down and the step is recorded, in one transaction
//	        ─► charge    at the provider, under a key that is the same on every attempt
//	        ─► Commit    the order, a message for the shop and the outcome, in one transaction
//
// If the customer cannot pay, a separate step returns the goods.
package orders

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// Operation is the operation name of the records. It is a constant because it is
// part of every record's id: records must still be found after a function is
// renamed.
const Operation = "take-order"

// HandlerFunc is a Lambda handler for an SQS queue.
type HandlerFunc = func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// New returns the function's handler. guard needs a *dynamostore.Store, because
// the shop's table is written in its transactions. queue hides messages of orders
// that are being taken elsewhere; if it is nil, they return after the queue's
// visibility time-out.
func New(guard *idempotent.Guard, shop Shop, payments Payments, queue *sqs.Client) HandlerFunc {
	t := &taker{shop, payments}
	return lambdabatch.SQS(guard, t.take, func(o *lambdabatch.Options) {
		o.Operation = Operation
		o.ID = lambdabatch.Field("/order_id")
		o.Concurrency = 10
		o.Guard = func(g *idempotent.Operation) {
			g.Recovery, g.Steps = idempotent.Resume, []string{"reserve", "charge", "give-back"}
		}
		if queue == nil {
			return
		}
		o.Visibility.Change = func(ctx context.Context, queueURL, receiptHandle string, seconds int32) error {
			_, err := queue.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
				QueueUrl: &queueURL, ReceiptHandle: &receiptHandle, VisibilityTimeout: seconds,
			})
			return err
		}
	})
}

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

// Order is the body of a message.
type Order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"` // in cents
}

// errInvalid is the error for a message that can never succeed. The message
// goes to the dead-letter queue, where a person can look at it.
var errInvalid = errors.New("orders: invalid order: id, customer, SKU, quantity and amount are required")

func (o Order) check() error {
	if o.ID == "" || o.Customer == "" || o.SKU == "" || o.Quantity < 1 || o.Amount < 1 {
		return errInvalid
	}
	return nil
}
