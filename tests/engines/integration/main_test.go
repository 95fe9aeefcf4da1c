// SPDX-License-Identifier: Apache-2.0

// Package integration runs the toolkit on real engines: DynamoDB Local
// directly, and DynamoDB through LocalStack.
package integration

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// local and cloud are the two engines. All tests of an engine share a table,
// with unique keys.
var local, cloud database

type database struct {
	name   string
	cfg    aws.Config
	table  string
	shared bool // the table has other items, as in package engine
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	// Most tests wait for a process or an engine.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
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
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	return store.CreateTable(ctx)
}

func (db *database) client(optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamostore.NewClient(db.cfg, optFns...)
}

func (db *database) store(t testing.TB, optFns ...func(*dynamostore.Options)) *dynamostore.Store {
	t.Helper()
	return db.storeOver(t, db.client(), optFns...)
}

func (db *database) storeOver(t testing.TB, client dynamostore.Client, optFns ...func(*dynamostore.Options)) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, db.table, append([]func(*dynamostore.Options){db.layout}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// layout is the option of a store in the table.
func (db *database) layout(o *dynamostore.Options) {
	if db.shared {
		engine.SharedLayout(o)
	}
}

// key returns the key of the item of a record.
func (db *database) key(id idempotent.RecordID) map[string]types.AttributeValue {
	if db.shared {
		return engine.SharedKey(string(id))
	}
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(id)}}
}

// over returns a store whose requests go over a faulty wire.
func (db *database) over(t testing.TB, faulty http.RoundTripper) driver.Store {
	t.Helper()
	return db.storeOver(t, db.client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: faulty} }))
}

// ownTable returns the database with a new table, which does not exist yet.
func (db *database) ownTable(t *testing.T) *database {
	own := *db
	own.table = "once-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		_, _ = db.client().DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &own.table}) // it may not exist
	})
	return &own
}

// created is ownTable with the table of a store.
func (db *database) created(t *testing.T) *database {
	t.Helper()
	own := db.ownTable(t)
	if err := own.create(); err != nil {
		t.Fatal(err)
	}
	return own
}

// between returns the database with a new table of n other items, which have to be
// as they were when the test ends.
func (db *database) between(t *testing.T, n int) *database {
	t.Helper()
	own := db.ownTable(t)
	own.shared = true
	engine.CreateShared(t, db.client(), own.table)
	engine.FillShared(t, db.client(), own.table, n)
	return own
}

// createKeyed creates the table with another schema: its key are the
// attributes.
func (db *database) createKeyed(t *testing.T, hash string, more ...string) {
	t.Helper()
	in := &dynamodb.CreateTableInput{TableName: &db.table, BillingMode: types.BillingModePayPerRequest}
	for i, name := range append([]string{hash}, more...) {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &name, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	if _, err := db.client().CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a record without the store, as the time to live does.
func (db *database) remove(ctx context.Context, id idempotent.RecordID) error {
	_, err := db.client().DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &db.table,
		Key:       db.key(id),
	})
	return err
}

// damage writes a record of a version that this code does not know.
func (db *database) damage(ctx context.Context, id idempotent.RecordID) error {
	_, err := db.client().UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &db.table,
		Key:                       db.key(id),
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
		Wire:   db.over,
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

// engines runs f on each engine.
func engines(t *testing.T, f func(*testing.T, *database)) {
	for _, db := range []*database{&local, &cloud} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			f(t, db)
		})
	}
}

// tables runs f on each engine, and on a table of other items.
func tables(t *testing.T, f func(*testing.T, *database)) {
	engines(t, f)
	t.Run("SharedTable", func(t *testing.T) {
		t.Parallel()
		f(t, local.between(t, 200))
	})
}

func guardOver(t *testing.T, s driver.Store, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	t.Helper()
	g, err := idempotent.New(s, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
