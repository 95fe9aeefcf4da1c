// SPDX-License-Identifier: Apache-2.0

package order

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
)

// The operations. They are part of every record's id.
const (
	InSteps = "order-in-steps"
	AtOnce  = "order-at-once"
)

// Request is a client's order.
type Request struct {
	Number string // the client's order number: the idempotency key
	charge.Request
}

// Confirmation is the answer to a client, and to its retries.
type Confirmation struct {
	Order  string `json:"order"`
	Charge string `json:"charge"`
}

// Provider takes payments. A *charge.Client is one.
type Provider interface {
	Charge(ctx context.Context, key string, record idempotent.RecordID, r charge.Request) (charge.Charge, error)
	Find(ctx context.Context, key string) (charge.Charge, error)
}

// Mailer mails receipts. A *receipt.Client is one.
type Mailer interface {
	Mail(ctx context.Context, key, order string) (id string, err error)
}

var _ Provider = (*charge.Client)(nil)

// Shop holds the dependencies of orders. It is safe for concurrent use; do not
// change it after the first call.
type Shop struct {
	Guard    *idempotent.Guard // over a *dynamostore.Store
	Client   dynamostore.Client
	Provider Provider
	Mailer   Mailer
	Orders   string // the table of the orders; partition key "pk"
	Outbox   string // the table of receipts to mail; partition key "pk"
}

// Handler takes an order. It is an alias because lambda.StartHandlerFunc takes no
// defined type.
type Handler = func(context.Context, Request) (Confirmation, error)

// ID returns the shop's number for the order of a record. A resolver can compute
// it, too, without the request.
func ID(record idempotent.RecordID) string { return "ord_" + record.KeyHash() }

// current returns the record that ctx belongs to.
func current(ctx context.Context) idempotent.RecordID {
	execution, ok := idempotent.FromContext(ctx)
	if !ok {
		panic("order: no execution in the context: call the handler through its guard")
	}
	return execution.RecordID()
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
