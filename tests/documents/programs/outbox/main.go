// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

// The program is that of two functions: ROLE is place or send.
func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	if os.Getenv("ROLE") == "send" {
		lambda.Start(newSender(guard))
		return
	}
	lambda.Start(newShop(guard))
}

type order struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

type receipt struct {
	Order string `json:"order"`
}

// newShop returns the handler that takes orders.
func newShop(guard *idempotent.Guard) func(context.Context, order) (receipt, error) {
	byOrder := idempotent.KeyFrom("place", func(o order) (scope, id string) { return o.Email, o.ID })
	return idempotent.Wrap(guard, byOrder, place, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
}

// place writes the order, the e-mail and the outcome in one transaction.
func place(ctx context.Context, o order) (receipt, error) {
	r := receipt{Order: o.ID}
	err := dynamostore.Commit(ctx, r, put("orders", o.ID, o.Email), put("outbox", o.ID, o.Email))
	if errors.As(err, new(*dynamostore.ConditionError)) {
		return receipt{}, idempotent.Final("order_exists", "This order exists already.")
	}
	return r, err
}

// put writes an item that does not exist.
func put(table, id, email string) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &table,
		Item: map[string]types.AttributeValue{
			"pk":    &types.AttributeValueMemberS{Value: id},
			"email": &types.AttributeValueMemberS{Value: email},
		},
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}}
}

// newSender returns the handler of the stream of the table outbox.
func newSender(guard *idempotent.Guard) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	return lambdabatch.DynamoDB(guard, send, func(o *lambdabatch.Options) {
		o.Operation = "send"
		o.Guard = func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"mail"} }
	})
}

// send sends the e-mail of a new item.
func send(ctx context.Context, c lambdabatch.Change[struct{ Email string }]) error {
	if c.EventName != "INSERT" {
		return nil
	}
	_, err := idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		return c.NewImage.Email, mail(ctx, c.NewImage.Email, idempotent.DownstreamKey(ctx))
	})
	return err
}

// sendOnce is send for a service that knows no keys.
func sendOnce(ctx context.Context, c lambdabatch.Change[struct{ Email string }]) error {
	if c.EventName != "INSERT" {
		return nil
	}
	_, err := idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		return c.NewImage.Email, mail(ctx, c.NewImage.Email, "")
	}, func(o *idempotent.StepOptions) { o.AtMostOnce = true })
	return err
}

// mail asks a service to send an e-mail.
func mail(ctx context.Context, to, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("MAIL_URL"), strings.NewReader(to))
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the mail service answered %s", answer.Status)
	}
	return nil
}
