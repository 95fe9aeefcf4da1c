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

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

// Handler takes an order. It is an alias because lambda.StartHandlerFunc takes no
// defined type.
type Handler = func(context.Context, Request) (Confirmation, error)

// Shop holds the dependencies of orders. It is safe for concurrent use; do not
// change it after the first call.
type Shop struct {
	Guard    *idempotent.Guard // over a *dynamostore.Store
	Client   dynamostore.Client
	Provider Provider
	// Mail mails the receipt of an order, once per key, and returns its id.
	Mail   func(ctx context.Context, key, order string) (id string, err error)
	Orders string // the table of the orders; partition key "pk"
	Outbox string // the table of receipts to mail; partition key "pk"
	Now    func() time.Time
}

// Provider takes payments, once per key. A *charge.Client is one.
type Provider interface {
	Charge(ctx context.Context, key string, r charge.Request) (charge.Charge, error)
	Find(ctx context.Context, key string) (charge.Charge, error)
}

func byNumber(operation string) idempotent.KeyFunc[Request] {
	return idempotent.KeyFrom(operation, func(r Request) (scope, id string) { return r.Customer, r.Number })
}

var declined = idempotent.Final("card_declined", "The card was declined.")

// ID returns the shop's number for the order of a record. A resolver can compute
// it, too, without the request.
func ID(record idempotent.RecordID) string { return "ord_" + record.KeyHash() }

// order writes an order that was paid by c, if there is no order with that id
// yet.
func (s *Shop) order(id string, c charge.Charge) types.TransactWriteItem {
	return put(s.Orders, id, map[string]types.AttributeValue{
		"charge":   text(c.ID),
		"customer": text(c.Customer),
		"amount":   &types.AttributeValueMemberN{Value: strconv.FormatInt(c.Amount, 10)},
		"currency": text(c.Currency),
	})
}

// wanted writes that the receipt of an order is to be mailed. The mailer uses
// the order's id as the idempotency key.
func (s *Shop) wanted(id string) types.TransactWriteItem {
	return put(s.Outbox, id, map[string]types.AttributeValue{"what": text("receipt")})
}

func put(table, id string, item map[string]types.AttributeValue) types.TransactWriteItem {
	item["pk"] = text(id)
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(table), Item: item,
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
