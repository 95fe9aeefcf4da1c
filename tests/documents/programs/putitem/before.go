// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
)

var errInProgress = errors.New("this order is being charged")

// before returns the handler as it was: the item of an order is its lock.
func before(db dynamostore.Client, table string) func(context.Context, order) (receipt, error) {
	return func(ctx context.Context, o order) (receipt, error) {
		now := time.Now()
		item := map[string]types.AttributeValue{
			"pk":      text(o.ID),
			"started": seconds(now),
			"expires": seconds(now.Add(24 * time.Hour)),
		}
		_, err := db.PutItem(ctx, &dynamodb.PutItemInput{
			TableName:                           &table,
			Item:                                item,
			ConditionExpression:                 aws.String("attribute_not_exists(pk) OR expires < :now"),
			ExpressionAttributeValues:           map[string]types.AttributeValue{":now": seconds(now)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
			if charge, done := refused.Item["charge"].(*types.AttributeValueMemberS); done {
				return receipt{Charge: charge.Value}, nil
			}
			return receipt{}, errInProgress
		}
		if err != nil {
			return receipt{}, err
		}
		r, err := charge(ctx, o)
		if err != nil {
			return receipt{}, err // the item stays without a charge
		}
		item["charge"] = text(r.Charge)
		_, err = db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item})
		return r, err
	}
}

func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

func seconds(t time.Time) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.Unix(), 10)}
}
