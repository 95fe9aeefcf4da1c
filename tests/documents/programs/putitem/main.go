// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

func main() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.Open(ctx) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(after(guard, dynamostore.NewClient(cfg), os.Getenv("ORDERS_TABLE")))
}

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

type receipt struct {
	Charge string `json:"charge"`
}

// after returns the same handler with once.
func after(guard *idempotent.Guard, db dynamostore.Client, table string) func(context.Context, order) (receipt, error) {
	byOrder := idempotent.KeyFrom("charge", func(o order) (scope, id string) { return idempotent.Global, o.ID })
	return idempotent.Wrap(guard, byOrder, charge, func(o *idempotent.Operation) {
		o.Predecessor = predecessor(db, table)
	})
}

// killed is the time-out of the old function, and a margin: Lambda may kill late.
const killed = 30*time.Second + 3*time.Second

// predecessor keeps the old version from an order, or returns what it has done.
func predecessor(db dynamostore.Client, table string) func(context.Context, idempotent.Key) (any, bool, error) {
	return func(ctx context.Context, key idempotent.Key) (any, bool, error) {
		now, id := time.Now(), string(key.RecordID())
		_, err := db.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &table,
			Item: map[string]types.AttributeValue{
				"pk":      text(key.ID),
				"once":    text(id),                              // a later attempt finds its own item
				"expires": seconds(now.Add(30 * 24 * time.Hour)), // after the change-over
			},
			ConditionExpression:                 aws.String("attribute_not_exists(pk) OR once = :id OR (expires < :now AND attribute_exists(charge))"),
			ExpressionAttributeValues:           map[string]types.AttributeValue{":id": text(id), ":now": seconds(now)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
		if !ok {
			return nil, false, err // nil: the handler runs
		}
		if charge, done := refused.Item["charge"].(*types.AttributeValueMemberS); done {
			return receipt{Charge: charge.Value}, true, nil
		}
		started, err := startOf(refused.Item)
		if err != nil {
			return nil, false, err
		}
		if until := started.Add(killed); now.Before(until) {
			return nil, false, &idempotent.InProgressError{RecordID: key.RecordID(), RetryAfter: 2 * time.Second, Until: until}
		}
		return nil, false, idempotent.Unknown(errors.New("the old version began this order and stored no charge"))
	}
}

// startOf returns when the old function began the order of an item.
func startOf(item map[string]types.AttributeValue) (time.Time, error) {
	n, ok := item["started"].(*types.AttributeValueMemberN)
	if !ok {
		return time.Time{}, errors.New("the item has no start")
	}
	s, err := strconv.ParseInt(n.Value, 10, 64)
	return time.Unix(s, 0), err
}

// charge asks the payment provider for a charge. It is the same before and after.
func charge(ctx context.Context, o order) (r receipt, err error) {
	body := fmt.Sprintf(`{"order":%q,"amount":%d}`, o.ID, o.Amount)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), strings.NewReader(body))
	if err != nil {
		return r, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return r, fmt.Errorf("the payment provider answered %s", answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&r)
	return r, err
}
