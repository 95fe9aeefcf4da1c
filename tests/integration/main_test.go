// Package integration runs the toolkit on real engines: DynamoDB Local
// directly, and DynamoDB through LocalStack.
package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/tests/engine"
)

// local and cloud are the two engines. All tests of an engine share a table,
// with unique keys.
var local, cloud database

type database struct {
	name  string
	cfg   aws.Config
	table string
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	local = database{name: "DynamoDBLocal", cfg: engine.Config(endpoint)}

	endpoint, stop, err = engine.LocalStack()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	cloud = database{name: "LocalStack", cfg: engine.Config(endpoint)}

	for _, db := range []*database{&local, &cloud} {
		db.table = "once-" + strings.ToLower(rand.Text())
		if err := db.create(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", db.name, err)
			return 1
		}
	}
	return m.Run()
}

func (db *database) create() error {
	store, err := dynamostore.New(db.client(), db.table)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return store.CreateTable(ctx)
}

func (db *database) client(optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamostore.NewClient(db.cfg, optFns...)
}

func (db *database) store(t testing.TB) *dynamostore.Store {
	t.Helper()
	return db.storeOver(t, db.client())
}

func (db *database) storeOver(t testing.TB, client dynamostore.Client) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, db.table)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// over returns a store whose requests go over a faulty wire.
func (db *database) over(t testing.TB, faults *idempotenttest.Faults) *dynamostore.Store {
	t.Helper()
	return db.storeOver(t, db.client(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: faults.Transport(nil)}
	}))
}

// remove deletes a record without the store, as the time to live does.
func (db *database) remove(ctx context.Context, id idempotent.RecordID) error {
	_, err := db.client().DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &db.table,
		Key:       map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(id)}},
	})
	return err
}

// damage writes a record of a version that this code does not know.
func (db *database) damage(ctx context.Context, id idempotent.RecordID) error {
	_, err := db.client().UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &db.table,
		Key:                       map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(id)}},
		UpdateExpression:          aws.String("SET v = :later"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":later": &types.AttributeValueMemberN{Value: "77"}},
	})
	return err
}

func (db *database) fixture() idempotenttest.Fixture {
	return idempotenttest.Fixture{
		Open:   func(t testing.TB) driver.Store { return db.store(t) },
		Reopen: func(t testing.TB, _ driver.Store) driver.Store { return db.store(t) },
		Remove: func(ctx context.Context, _ driver.Store, id idempotent.RecordID) error { return db.remove(ctx, id) },
		Damage: func(ctx context.Context, _ driver.Store, id idempotent.RecordID) error { return db.damage(ctx, id) },
		Wire:   func(t testing.TB, faults *idempotenttest.Faults) driver.Store { return db.over(t, faults) },
	}
}

// newKey returns a key that no other test uses.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "charge",
		Scope:       "acme",
		ID:          rand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}
