package orders

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

// Operation names what is done once for each order. It is part of every record's
// id: a renamed function must not forget what ran.
const Operation = "take-order"

// HandlerFunc is a Lambda handler for an SQS queue.
type HandlerFunc = func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// New returns the function's handler. It keeps its records in guard, which has to
// be over a *dynamostore.Store: the shop's table is written in its transactions.
func New(guard *idempotent.Guard, shop Shop, payments Payments) HandlerFunc {
	t := &taker{shop, payments}
	return lambdabatch.SQS(guard, t.take, func(o *lambdabatch.Options) {
		o.Operation = Operation
		o.ID = lambdabatch.Field("/order_id")
		o.Recovery, o.Steps = lambdabatch.Resume, []string{"reserve", "charge", "give-back"}
		o.Concurrency = 10
	})
}
