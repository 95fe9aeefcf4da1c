package dynamostore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

type Order struct{ Merchant, ID string }

type Receipt struct{ Charge string }

func ExampleNew() {
	client := newFake() // in a function: dynamostore.NewClient(cfg)
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

// A deployment that checks its table before it takes traffic.
func ExampleStore_Check() {
	client := goodTable()
	client.ttl = nil // somebody forgot it
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
	// dynamostore: table "once" cannot serve as a store:
	//   - its time to live is off; switch it on for attribute "ttl", or expired records are kept and paid for ever
}
