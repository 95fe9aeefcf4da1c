package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/examples/charge-lambda/receipt"
	"github.com/once-lambda/once/idempotent"
)

// Short waits for the demo. A function leaves these options at their defaults:
// two seconds and a minute.
const (
	leaseMargin    = 300 * time.Millisecond
	reconcileAfter = 50 * time.Millisecond
)

// config is the AWS configuration for DynamoDB Local, which accepts any
// credentials.
func config(engine string) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(engine),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "demo", SecretAccessKey: "demo"}, nil
		}),
	}
}

// open returns the shop over the tables with that prefix and the services at
// that address. It stops where k does.
func open(engine, tables, services string, k killer) (*order.Shop, *dynamostore.Store, error) {
	c := &haltingClient{dynamostore.NewClient(config(engine)), k}
	store, err := dynamostore.New(c, tables+"records")
	if err != nil {
		return nil, nil, err
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.LeaseMargin, o.ReconcileAfter = leaseMargin, reconcileAfter
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	if err != nil {
		return nil, nil, err
	}
	payments, err := charge.NewClient(services + "/provider")
	if err != nil {
		return nil, nil, err
	}
	return &order.Shop{
		Guard: guard, Client: c,
		Provider: &haltingProvider{payments, k}, Mailer: &haltingMailer{&receipt.Client{Base: services + "/mail"}, k},
		Orders: tables + "orders", Outbox: tables + "outbox",
	}, store, nil
}

// createTables creates the three tables.
func createTables(ctx context.Context, shop *order.Shop, store *dynamostore.Store) error {
	if err := store.CreateTable(ctx); err != nil {
		return err
	}
	for _, name := range []string{shop.Orders, shop.Outbox} {
		_, err := shop.Client.(*haltingClient).CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: aws.String(name), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
		})
		if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
			return err
		}
	}
	return nil
}
