// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
)

// DB is DynamoDB in memory. Make one with [New]. It is safe for concurrent use.
type DB struct {
	mu     sync.Mutex
	tables map[string]*table
	tokens map[string]transaction
}

var _ dynamostore.Client = (*DB)(nil)

// New returns a database with these tables. Each has the layout of a store's table:
// the string partition key pk, the index of the due records, and time to live.
// [DB.CreateTable] creates tables with other keys. New panics if a name is invalid.
func New(tables ...string) *DB {
	db := &DB{tables: map[string]*table{}, tokens: map[string]transaction{}}
	for _, name := range tables {
		store, err := dynamostore.New(db, name)
		if err == nil {
			err = store.CreateTable(context.Background())
		}
		if err != nil {
			panic("dynamotest: New: " + err.Error())
		}
	}
	return db
}

// transaction is a transaction that was applied under a request token.
type transaction struct {
	items   []types.TransactWriteItem
	applied time.Time
}

// table is a table with its items.
type table struct {
	description types.TableDescription
	ttl         *string // the attribute, if time to live is on
	keys        schema
	indexes     map[string]index
	items       map[string]item // by encoded key
}

// schema is the key of a table or an index: a partition key and possibly a sort key.
type schema []keyAttribute

type keyAttribute struct{ name, kind string }

type index struct {
	schema
	projected []string // the attributes; nil: all
}

// CreateTable creates a table, which is ACTIVE at once.
func (db *DB) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	return call(ctx, &db.mu, "CreateTable", in, "TableName AttributeDefinitions KeySchema GlobalSecondaryIndexes BillingMode ProvisionedThroughput Tags", func(in *dynamodb.CreateTableInput) *dynamodb.CreateTableOutput {
		name := aws.ToString(in.TableName)
		if name == "" || strings.Contains(name, ":") {
			refuse("Invalid table name")
		}
		if db.tables[name] != nil {
			panic(refusal{&types.ResourceInUseException{Message: aws.String("Cannot create preexisting table")}})
		}
		kinds := map[string]string{}
		for _, d := range in.AttributeDefinitions {
			kinds[aws.ToString(d.AttributeName)] = string(d.AttributeType)
		}
		t := &table{keys: newSchema(in.KeySchema, kinds), indexes: map[string]index{}, items: map[string]item{}}
		t.description = types.TableDescription{
			TableName:            in.TableName,
			TableArn:             aws.String(arnPrefix + name),
			TableStatus:          types.TableStatusActive,
			AttributeDefinitions: slices.Clone(in.AttributeDefinitions),
			KeySchema:            slices.Clone(in.KeySchema),
		}
		used := map[string]bool{}
		for _, k := range t.keys {
			used[k.name] = true
		}
		for _, g := range in.GlobalSecondaryIndexes {
			i := index{schema: newSchema(g.KeySchema, kinds)}
			for _, k := range i.schema {
				used[k.name] = true
			}
			if g.Projection == nil {
				refuse("One or more parameter values were invalid: missing projection of index %s", aws.ToString(g.IndexName))
			}
			if g.Projection.ProjectionType != types.ProjectionTypeAll {
				i.projected = slices.Clone(g.Projection.NonKeyAttributes)
				for _, k := range slices.Concat(t.keys, i.schema) {
					i.projected = append(i.projected, k.name)
				}
			}
			t.indexes[aws.ToString(g.IndexName)] = i
			t.description.GlobalSecondaryIndexes = append(t.description.GlobalSecondaryIndexes, types.GlobalSecondaryIndexDescription{
				IndexName: g.IndexName, KeySchema: slices.Clone(g.KeySchema), Projection: g.Projection, IndexStatus: types.IndexStatusActive,
			})
		}
		if len(used) != len(kinds) {
			refuse("One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
		}
		db.tables[name] = t
		return &dynamodb.CreateTableOutput{TableDescription: t.describe()}
	})
}

const arnPrefix = "arn:aws:dynamodb:us-east-1:123456789012:table/"

func newSchema(elements []types.KeySchemaElement, kinds map[string]string) (s schema) {
	for i, e := range elements {
		k := keyAttribute{aws.ToString(e.AttributeName), kinds[aws.ToString(e.AttributeName)]}
		if i > 1 || e.KeyType != [...]types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i] || k.kind == "" {
			refuse("Invalid KeySchema: want a HASH key and at most one RANGE key, with their definitions")
		}
		s = append(s, k)
	}
	if len(s) == 0 {
		refuse("Invalid KeySchema: missing HASH key")
	}
	return s
}

func (t *table) describe() *types.TableDescription {
	d := t.description
	d.ItemCount = aws.Int64(int64(len(t.items)))
	return &d
}

// DescribeTable describes a table.
func (db *DB) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return call(ctx, &db.mu, "DescribeTable", in, "TableName", func(in *dynamodb.DescribeTableInput) *dynamodb.DescribeTableOutput {
		return &dynamodb.DescribeTableOutput{Table: db.table(in.TableName).describe()}
	})
}

// UpdateTable makes an empty table global with strong consistency across regions. It
// adds the replicas and the witness to the table's description; all calls use the one
// table. It refuses any other change.
func (db *DB) UpdateTable(ctx context.Context, in *dynamodb.UpdateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error) {
	return call(ctx, &db.mu, "UpdateTable", in, "TableName ReplicaUpdates MultiRegionConsistency GlobalTableWitnessUpdates", func(in *dynamodb.UpdateTableInput) *dynamodb.UpdateTableOutput {
		t := db.table(in.TableName)
		d := t.description
		if in.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
			panic(unsupported("UpdateTable without strong consistency"))
		}
		switch {
		case d.MultiRegionConsistency != "":
			refuse("The consistency of a global table cannot be changed")
		case len(t.items) > 0:
			refuse("A table must be empty to become a global table with strong consistency")
		case t.ttl != nil:
			refuse("A global table with strong consistency has no time to live")
		case len(in.ReplicaUpdates)+len(in.GlobalTableWitnessUpdates) != 2 || len(in.ReplicaUpdates) == 0:
			refuse("A global table with strong consistency has three replicas, or two and a witness")
		}
		own := strings.Split(arnPrefix, ":")[3]
		d.GlobalTableVersion, d.MultiRegionConsistency = aws.String("2019.11.21"), in.MultiRegionConsistency
		regions := map[string]bool{own: true}
		add := func(region *string) {
			if aws.ToString(region) == "" || regions[*region] {
				refuse("Invalid or repeated region")
			}
			regions[*region] = true
		}
		for _, u := range in.ReplicaUpdates {
			if u.Create == nil {
				panic(unsupported("UpdateTable with another change of a replica"))
			}
			add(u.Create.RegionName)
			d.Replicas = append(d.Replicas, types.ReplicaDescription{RegionName: u.Create.RegionName, ReplicaStatus: types.ReplicaStatusActive})
		}
		for _, u := range in.GlobalTableWitnessUpdates {
			if u.Create == nil {
				panic(unsupported("UpdateTable that deletes a witness"))
			}
			add(u.Create.RegionName)
			witness := types.GlobalTableWitnessDescription{RegionName: u.Create.RegionName, WitnessStatus: types.WitnessStatusActive}
			d.GlobalTableWitnesses = append(d.GlobalTableWitnesses, witness)
		}
		t.description = d
		return &dynamodb.UpdateTableOutput{TableDescription: t.describe()}
	})
}

// UpdateTimeToLive switches the time to live on or off. No item is deleted by it.
func (db *DB) UpdateTimeToLive(ctx context.Context, in *dynamodb.UpdateTimeToLiveInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	return call(ctx, &db.mu, "UpdateTimeToLive", in, "TableName TimeToLiveSpecification", func(in *dynamodb.UpdateTimeToLiveInput) *dynamodb.UpdateTimeToLiveOutput {
		t, to := db.table(in.TableName), in.TimeToLiveSpecification
		if to == nil || aws.ToString(to.AttributeName) == "" {
			refuse("missing TimeToLiveSpecification")
		}
		switch on := aws.ToBool(to.Enabled); {
		case on && t.description.MultiRegionConsistency == types.MultiRegionConsistencyStrong:
			refuse("A global table with strong consistency has no time to live")
		case on && t.ttl != nil:
			refuse("TimeToLive is already enabled")
		case !on && t.ttl == nil:
			refuse("TimeToLive is already disabled")
		case on:
			t.ttl = to.AttributeName
		default:
			t.ttl = nil
		}
		return &dynamodb.UpdateTimeToLiveOutput{TimeToLiveSpecification: to}
	})
}

// DescribeTimeToLive describes the time to live of a table.
func (db *DB) DescribeTimeToLive(ctx context.Context, in *dynamodb.DescribeTimeToLiveInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return call(ctx, &db.mu, "DescribeTimeToLive", in, "TableName", func(in *dynamodb.DescribeTimeToLiveInput) *dynamodb.DescribeTimeToLiveOutput {
		d := &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusDisabled}
		if t := db.table(in.TableName); t.ttl != nil {
			d = &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusEnabled, AttributeName: t.ttl}
		}
		return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: d}
	})
}

// table returns the table with a name or ARN.
func (db *DB) table(name *string) *table {
	t := db.tables[strings.TrimPrefix(aws.ToString(name), arnPrefix)]
	switch {
	case t != nil:
		return t
	case aws.ToString(name) == "":
		refuse("missing TableName")
	}
	panic(refusal{&types.ResourceNotFoundException{Message: aws.String("Requested resource not found")}})
}

// key returns the encoded key of an item, or of a key, which has no other
// attributes.
func (t *table) key(it item, isKey bool) string {
	if isKey && len(it) != len(t.keys) {
		refuse("The provided key element does not match the schema")
	}
	for _, k := range t.keys {
		switch kind := kindOf(it[k.name]); {
		case kind == "" && !isKey:
			refuse("One or more parameter values were invalid: Missing the key %s in the item", k.name)
		case kind != k.kind && !isKey:
			refuse("One or more parameter values were invalid: Type mismatch for key %s expected: %s actual: %s", k.name, k.kind, kind)
		case kind != k.kind:
			refuse("The provided key element does not match the schema")
		}
	}
	t.keys.checkSizes(it)
	return encodeKey(t.keys.of(it)...)
}

// of returns the values of a key, or nil if the item does not have all of them.
func (s schema) of(it item) (values []types.AttributeValue) {
	for _, k := range s {
		if it[k.name] == nil {
			return nil
		}
		values = append(values, it[k.name])
	}
	return values
}

// The largest keys in bytes.
const (
	maxPartitionKey = 2048
	maxSortKey      = 1024
)

func (s schema) checkSizes(it item) {
	for i, k := range s {
		value := it[k.name]
		switch n := len(scalar(value)); {
		case value == nil || kindOf(value) == "N":
		case n == 0:
			refuse("One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: %s", k.name)
		case n > [...]int{maxPartitionKey, maxSortKey}[i]:
			refuse("One or more parameter values were invalid: Size of key %s has exceeded the maximum size limit", k.name)
		}
	}
}

// checkPaths refuses paths into attributes that are part of a key, which are scalars.
func (t *table) checkPaths(entered []string) {
	keys := append(schema{}, t.keys...)
	for _, i := range t.indexes {
		keys = append(keys, i.schema...)
	}
	for _, k := range keys {
		if slices.Contains(entered, k.name) {
			refuse("Key attributes must be scalars; list random access '[]' and map lookup '.' are not allowed: Key: %s", k.name)
		}
	}
}

// check refuses an item that the table cannot hold.
func (t *table) check(it item) {
	for _, i := range t.indexes {
		for _, k := range i.schema {
			if kind := kindOf(it[k.name]); kind != "" && kind != k.kind {
				refuse("One or more parameter values were invalid: Type mismatch for Index Key %s Expected: %s Actual: %s", k.name, k.kind, kind)
			}
		}
		i.checkSizes(it)
	}
	if sizeOf(it) > maxItem {
		refuse("Item size has exceeded the maximum allowed size")
	}
}

// keyOf returns the attributes of it that are the table's key, and those of an
// index.
func (t *table) keyOf(it item, index schema) item {
	key := item{}
	for _, k := range slices.Concat(t.keys, index) {
		key[k.name] = it[k.name]
	}
	return key
}
