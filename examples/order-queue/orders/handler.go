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

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

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
