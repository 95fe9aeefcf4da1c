// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Shop is the name of the shop's table: stock, orders, and an outbox that
// another service empties. Its partition key is the string pk.
type Shop string

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.Itoa(n)}
}

// takeFromStock is refused if the stock is too low.
func (s Shop) takeFromStock(o Order) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(string(s)), Key: item{"pk": text("stock#" + o.SKU)},
		UpdateExpression:          aws.String("SET available = available - :n"),
		ConditionExpression:       aws.String("available >= :n"),
		ExpressionAttributeValues: item{":n": number(o.Quantity)},
	}}
}

func (s Shop) giveBack(o Order) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(string(s)), Key: item{"pk": text("stock#" + o.SKU)},
		UpdateExpression:          aws.String("SET available = available + :n"),
		ExpressionAttributeValues: item{":n": number(o.Quantity)},
	}}
}

func (s Shop) order(o Order, c Charge) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(string(s)),
		Item:      item{"pk": text("order#" + o.ID), "customer": text(o.Customer), "sku": text(o.SKU), "quantity": number(o.Quantity), "charge": text(c.ID)},
	}}
}

// announcement is the message to other services. It is written if and only if
// the order is. Its key is the receiver's idempotency key.
func (s Shop) announcement(o Order) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(string(s)), Item: item{"pk": text("outbox#" + o.ID), "what": text("order-taken")},
	}}
}
