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
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newHandler(guard))
}

// newHandler returns the handler of the queue of orders.
func newHandler(guard *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return lambdabatch.SQS(guard, take, func(o *lambdabatch.Options) {
		o.Operation = "take-order"
		o.ID = lambdabatch.Field("/order_id")
		o.Concurrency = 10
		o.Guard = func(o *idempotent.Operation) {
			o.Recovery, o.Steps = idempotent.Resume, []string{"charge"}
		}
	})
}

// order is the body of a message.
type order struct {
	ID     string `json:"order_id"`
	Amount int    `json:"amount"`
}

// take charges the customer, and writes the order and the outcome in one
// transaction. A message that is delivered again continues where the last delivery
// stopped.
func take(ctx context.Context, o order) error {
	charge, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return pay(ctx, idempotent.DownstreamKey(ctx), o)
	})
	if err != nil {
		return err
	}
	err = dynamostore.Commit(ctx, struct{}{}, types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(os.Getenv("ORDERS_TABLE")),
		Item: map[string]types.AttributeValue{
			"pk":     &types.AttributeValueMemberS{Value: o.ID},
			"charge": &types.AttributeValueMemberS{Value: charge},
		},
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}})
	if errors.As(err, new(*dynamostore.ConditionError)) {
		return idempotent.Unknown(err) // paid, and the order has another origin: a person decides
	}
	return err
}

// pay asks the payment provider, which makes one charge for each key.
func pay(ctx context.Context, key string, o order) (charge string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), strings.NewReader(fmt.Sprintf(`{"amount":%d}`, o.Amount)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("the provider answered %s", answer.Status)
	}
	var made struct{ ID string }
	err = json.NewDecoder(answer.Body).Decode(&made)
	return made.ID, err
}
