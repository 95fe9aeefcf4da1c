// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
)

type Order struct{ Merchant, ID string }

type Receipt struct{ Charge string }

func ExampleNew() {
	client := dynamotest.New("idempotency") // in a function: dynamostore.NewClient(cfg)
	store, err := dynamostore.New(client, "idempotency")
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(o Order) (scope, id string) { return o.Merchant, o.ID })
	charge := idempotent.Wrap(guard, byOrder, func(ctx context.Context, o Order) (Receipt, error) {
		fmt.Println("charging")
		return Receipt{Charge: "ch_1"}, nil
	})

	for range 2 {
		fmt.Println(charge(context.Background(), Order{Merchant: "m_1", ID: "o_1"}))
	}
	// Output:
	// charging
	// {ch_1} <nil>
	// {ch_1} <nil>
}

func ExampleNewClient() {
	cfg := aws.Config{Region: "eu-central-1"} // usually config.LoadDefaultConfig
	store, err := dynamostore.New(dynamostore.NewClient(cfg), "idempotency")
	if err != nil {
		panic(err)
	}
	fmt.Println(store.Table())
	// Output: idempotency
}

// A deployment that checks its table before the table gets traffic.
func ExampleStore_Check() {
	client := goodTable()
	client.ttl = nil // not switched on
	store, err := dynamostore.New(client, "once")
	if err != nil {
		panic(err)
	}
	err = store.Check(context.Background())
	var schema *dynamostore.SchemaError
	if errors.As(err, &schema) {
		fmt.Println(err)
	}
	// Output:
	// dynamostore: table "once" cannot be used as a store:
	//   - its time to live is off; switch it on for attribute "ttl", or expired records stay and are billed
}

// An order and the outcome of the request in one transaction. The handler does
// nothing else, so running it again is harmless: a killed attempt wrote either
// nothing or everything.
func ExampleCommit() {
	place := func(ctx context.Context, o Order) (Receipt, error) {
		receipt := Receipt{Charge: "ch_1"}
		order := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: o.ID}}
		err := dynamostore.Commit(ctx, receipt, types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String("orders"), Item: order,
			ConditionExpression: aws.String("attribute_not_exists(pk)"),
		}})
		if errors.As(err, new(*dynamostore.ConditionError)) {
			return Receipt{}, idempotent.Final("order_exists", "This order exists already.")
		}
		return receipt, err
	}

	client := dynamotest.New("idempotency", "orders") // in a function: dynamostore.NewClient(cfg)
	store, err := dynamostore.New(client, "idempotency")
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("place", func(o Order) (scope, id string) { return o.Merchant, o.ID })
	handler := idempotent.Wrap(guard, byOrder, place, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
	for range 2 {
		fmt.Println(handler(context.Background(), Order{Merchant: "m_1", ID: "o_1"}))
	}
	orders, err := client.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("orders")})
	if err != nil {
		panic(err)
	}
	fmt.Println(orders.Count, "order")
	// Output:
	// {ch_1} <nil>
	// {ch_1} <nil>
	// 1 order
}

// F46: a step whose message is in the outbox if and only if the step is stored.
func ExampleCommitStep() {
	client := dynamotest.New("idempotency", "outbox")
	store, err := dynamostore.New(client, "idempotency")
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("place", func(o Order) (scope, id string) { return o.Merchant, o.ID })
	place := idempotent.Wrap(guard, byOrder, func(ctx context.Context, o Order) (string, error) {
		execution, _ := idempotent.FromContext(ctx)
		return dynamostore.CommitStep(ctx, "announce", "announced "+o.ID, outboxItem(execution))
	}, func(o *idempotent.Operation) {
		o.Recovery = idempotent.Resume
		o.Steps = []string{"announce"}
	})
	fmt.Println(place(context.Background(), Order{Merchant: "m_1", ID: "o_1"}))
	// Output: announced o_1 <nil>
}

func outboxItem(execution *idempotent.Execution) types.TransactWriteItem {
	outbox := types.TransactWriteItem{Put: &types.Put{TableName: aws.String("outbox"), Item: map[string]types.AttributeValue{
		"pk":   &types.AttributeValueMemberS{Value: string(execution.RecordID())},
		"what": &types.AttributeValueMemberS{Value: "order-placed"},
	}}}
	return outbox
}
