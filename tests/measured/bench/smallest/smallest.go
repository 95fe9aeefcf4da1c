// SPDX-License-Identifier: Apache-2.0

// Package smallest is the limit of what a guard on the SDK for Go can reach: a
// hand-written client with as few attributes as possible. It claims a key with a
// conditional write, runs the handler, and stores the result if the claim is still
// its own. The conditions are those of package dynamostore.
package smallest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// ErrInProgress is returned for a key that is claimed and has no result.
var ErrInProgress = errors.New("smallest: in progress")

const retention = 24 * time.Hour

// Do runs h once for id and returns its result, or the stored one. Before that it
// records so many steps, each with a write. The item has five attributes, and six with
// the result. It has no lease: if h fails or its process dies, the key stays claimed
// until the item expires.
func Do[Req, Resp any](
	ctx context.Context, client *dynamodb.Client, table, id string, steps int, r Req, h func(context.Context, Req) (Resp, error),
) (result Resp, replayed bool, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return result, false, err
	}
	var ids [32]byte
	rand.Read(ids[:])
	claim, outcome := ids[:16], ids[16:]
	sum := sha256.Sum256(body)
	now := time.Now()
	item := map[string]types.AttributeValue{
		"pk":  &types.AttributeValueMemberS{Value: "charge#" + id},
		"st":  &types.AttributeValueMemberS{Value: "I"},
		"wid": &types.AttributeValueMemberB{Value: claim},
		"fp":  &types.AttributeValueMemberB{Value: sum[:]},
		"exp": &types.AttributeValueMemberN{Value: seconds(now.Add(retention))}, // also the table's time to live
	}
	_, err = client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &table,
		Item:                                item,
		ConditionExpression:                 aws.String("attribute_not_exists(pk) OR exp <= :now"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: seconds(now)}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		err = decode(refused.Item, sum, &result)
		return result, err == nil, err
	}
	if err != nil {
		return result, false, err
	}
	for i := range steps {
		item["step"+strconv.Itoa(i)] = &types.AttributeValueMemberS{Value: "done"}
		if err := replace(ctx, client, table, item, claim); err != nil {
			return result, false, err
		}
	}
	if result, err = h(ctx, r); err != nil {
		return result, false, err
	}
	data, err := json.Marshal(result)
	if err != nil {
		return result, false, err
	}
	item["st"] = &types.AttributeValueMemberS{Value: "C"}
	item["wid"] = &types.AttributeValueMemberB{Value: outcome}
	item["res"] = &types.AttributeValueMemberB{Value: data}
	item["exp"] = &types.AttributeValueMemberN{Value: seconds(time.Now().Add(retention))}
	return result, false, replace(ctx, client, table, item, claim)
}

// replace writes the item over the one that has the write id.
func replace(ctx context.Context, client *dynamodb.Client, table string, item map[string]types.AttributeValue, was []byte) error {
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &table,
		Item:                                item,
		ConditionExpression:                 aws.String("wid = :was"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":was": &types.AttributeValueMemberB{Value: was}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return err
}

// decode reads the result in the item that refused the claim.
func decode(item map[string]types.AttributeValue, sum [sha256.Size]byte, result any) error {
	state, _ := item["st"].(*types.AttributeValueMemberS)
	fp, _ := item["fp"].(*types.AttributeValueMemberB)
	data, _ := item["res"].(*types.AttributeValueMemberB)
	switch {
	case state == nil || fp == nil:
		return errors.New("smallest: the item is damaged")
	case string(fp.Value) != string(sum[:]):
		return errors.New("smallest: the key was used with another request")
	case state.Value == "I" || data == nil:
		return ErrInProgress
	}
	return json.Unmarshal(data.Value, result)
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
