// SPDX-License-Identifier: Apache-2.0

package order

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
)

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
