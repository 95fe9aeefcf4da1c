// SPDX-License-Identifier: Apache-2.0

// Command bare is the limit: the smallest client on the bare SDK that claims a key
// with a conditional write, runs the handler, and stores the result if the claim
// is still its own. Its item has five attributes, and six with the result.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/tests/bench/peers/contestant"
)

func main() {
	cfg, err := contestant.Config()
	if err != nil {
		log.Fatal(err)
	}
	contestant.Main(bare{dynamodb.NewFromConfig(cfg), os.Getenv("TABLE")})
}

type bare struct {
	client *dynamodb.Client
	table  string
}

const retention = 24 * time.Hour

func (b bare) Do(ctx context.Context, r contestant.Request) (result contestant.Result, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return result, err
	}
	var ids [32]byte
	rand.Read(ids[:])
	claim, outcome := ids[:16], ids[16:]
	sum := sha256.Sum256(body)
	now := time.Now()
	item := map[string]types.AttributeValue{
		"pk":  &types.AttributeValueMemberS{Value: "charge#" + r.ID},
		"st":  &types.AttributeValueMemberS{Value: "I"},
		"wid": &types.AttributeValueMemberB{Value: claim},
		"fp":  &types.AttributeValueMemberB{Value: sum[:]},
		"exp": &types.AttributeValueMemberN{Value: seconds(now.Add(retention))},
	}
	_, err = b.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &b.table,
		Item:                                item,
		ConditionExpression:                 aws.String("attribute_not_exists(pk) OR exp <= :now"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: seconds(now)}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return stored(refused.Item, sum)
	}
	if err != nil {
		return result, err
	}
	if result, err = contestant.Handle(ctx, r); err != nil {
		return result, err // the claim stays until it expires
	}
	data, err := json.Marshal(result)
	if err != nil {
		return result, err
	}
	item["st"] = &types.AttributeValueMemberS{Value: "C"}
	item["wid"] = &types.AttributeValueMemberB{Value: outcome}
	item["res"] = &types.AttributeValueMemberB{Value: data}
	item["exp"] = &types.AttributeValueMemberN{Value: seconds(time.Now().Add(retention))}
	_, err = b.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &b.table,
		Item:                                item,
		ConditionExpression:                 aws.String("wid = :was"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":was": &types.AttributeValueMemberB{Value: claim}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return result, err
}

// stored returns the result in the item that refused the claim.
func stored(item map[string]types.AttributeValue, sum [sha256.Size]byte) (result contestant.Result, err error) {
	state, _ := item["st"].(*types.AttributeValueMemberS)
	fp, _ := item["fp"].(*types.AttributeValueMemberB)
	data, _ := item["res"].(*types.AttributeValueMemberB)
	switch {
	case state == nil || fp == nil:
		return result, errors.New("the item is damaged")
	case string(fp.Value) != string(sum[:]):
		return result, errors.New("the key was used with another request")
	case state.Value == "I" || data == nil:
		return result, contestant.ErrInProgress
	}
	err = json.Unmarshal(data.Value, &result)
	return result, err
}

// Batch takes the messages at the same time.
func (b bare) Batch(ctx context.Context, batch []contestant.Request) (int, error) {
	var failed atomic.Int64
	var all sync.WaitGroup
	for _, r := range batch {
		all.Go(func() {
			if _, err := b.Do(ctx, r); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load()), nil
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
