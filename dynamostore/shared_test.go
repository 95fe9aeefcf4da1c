// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// neighbours is how many other items a shared table has.
const neighbours = 2000

// sharedTable returns a database with a table that has other items.
func sharedTable(t *testing.T, others int) *dynamotest.DB {
	t.Helper()
	db := dynamotest.New()
	engine.CreateShared(t, db, tableName)
	engine.FillShared(t, db, tableName, others)
	return db
}

func sharedFixture(db *dynamotest.DB, layout func(*dynamostore.Options), key func(string) item) idempotenttest.Fixture {
	open := func(t testing.TB) driver.Store { return newStore(t, db, layout) }
	return idempotenttest.Fixture{
		Open:   open,
		Reopen: func(t testing.TB, _ driver.Store) driver.Store { return open(t) },
		Remove: func(ctx context.Context, _ driver.Store, id idempotent.RecordID) error {
			_, err := db.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String(tableName), Key: key(string(id))})
			return err
		},
		Damage: func(ctx context.Context, _ driver.Store, id idempotent.RecordID) error {
			_, err := db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: aws.String(tableName), Key: key(string(id)), UpdateExpression: aws.String("SET v = :later"),
				ExpressionAttributeValues: item{":later": &types.AttributeValueMemberN{Value: "77"}},
			})
			return err
		},
	}
}

// The suites on a table with a sort key, other names and other items, which stay as
// they are. A name that is a reserved word needs a placeholder, in every call.
func TestShared(t *testing.T) {
	t.Parallel()
	t.Run("Store", func(t *testing.T) {
		idempotenttest.RunStore(t, sharedFixture(sharedTable(t, 100), engine.SharedLayout, engine.SharedKey))
	})
	t.Run("WithoutIndex", func(t *testing.T) {
		idempotenttest.RunStore(t, sharedFixture(sharedTable(t, 100), func(o *dynamostore.Options) {
			engine.SharedLayout(o)
			noIndex(o)
		}, engine.SharedKey))
	})
	t.Run("ReservedWords", func(t *testing.T) {
		reserved := func(o *dynamostore.Options) {
			o.PartitionKey, o.SortKey, o.TTLAttribute, o.Prefix = "key", "range", "Time.To-Live", "once:"
		}
		db := dynamotest.New()
		s := newStore(t, db, reserved)
		if err := s.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		idempotenttest.RunStore(t, sharedFixture(db, reserved, func(name string) item {
			return item{"key": text("once:" + name), "range": text("once:" + name)}
		}))
		abandoned(t, s, noon, &passed{})
		if _, err := s.PurgeChunks(t.Context(), noon); err != nil {
			t.Error(err)
		}
	})
}

// A list shows only the records of the store, also beside another store in the same
// table, and what removes chunks removes only the store's.
func TestShared_Lists(t *testing.T) {
	t.Parallel()
	db := sharedTable(t, neighbours)
	s := newStore(t, db, engine.SharedLayout)
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	running, due := leftRunning(t, s, 3), waiting(t, s, 4, asTheyAre)
	given := waiting(t, s, 2, func(_ int, r *driver.Record) { r.Exhausted = true })
	other := newStore(t, db, engine.SharedLayout, func(o *dynamostore.Options) { o.Prefix = engine.Domain })
	hidden := waiting(t, other, 5, asTheyAre)
	hidden = append(hidden, leftRunning(t, other, 1)...)

	wantIDs(t, "Due", s.Due(t.Context(), time.Time{}), due...)
	wantIDs(t, "Exhausted", s.Exhausted(t.Context()), given...)
	wantIDs(t, "Running", s.Running(t.Context()), running...)
	every := func(s *dynamostore.Store) iter.Seq2[driver.Listed, error] {
		return func(yield func(driver.Listed, error) bool) {
			s.Scan(t.Context())(func(r driver.Record, err error) bool { return yield(r.Listed(), err) })
		}
	}
	all := append(append(append([]idempotent.RecordID{}, running...), due...), given...)
	wantIDs(t, "Scan", every(s), all...)
	wantIDs(t, "Scan of the other store", every(other), hidden...)
	for _, id := range hidden {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("the record of another prefix: %v", err)
		}
	}
	p := &passed{}
	abandoned(t, s, noon, p)
	p.want(t, "Abandoned", running...)
	if mark, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(tableName), Key: engine.SharedKey("#scan")}); err != nil || mark.Item["next"] == nil {
		t.Errorf("the bookmark is %v, %v", mark, err)
	}
}

// Large results, their removal, and chunks that were left behind, in the table and
// in one for chunks.
func TestShared_Chunks(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		db := sharedTable(t, 200)
		options := []func(*dynamostore.Options){engine.SharedLayout}
		if apart {
			options = append(options, inChunkTable)
		}
		s := newStore(t, db, options...)
		if apart {
			if err := s.CreateTable(t.Context()); err != nil { // the table of chunks is missing
				t.Fatal(err)
			}
		}
		data, v, left := noise(2*chunkSize), newVersion(), newVersion()
		r := fullRecord()
		r.Version = v
		n, err := s.PutChunks(t.Context(), r.ID, v, data, r.Expires)
		if err != nil {
			t.Fatal(err)
		}
		r.Chunks = driver.Chunks{Count: n, Length: len(data)}
		insert(t, s, r)
		if got, err := s.GetChunks(t.Context(), r.ID, v, n); err != nil || string(got) != string(data) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		if _, err := s.PutChunks(t.Context(), r.ID, left, data, at(1)); err != nil { // and no record
			t.Fatal(err)
		}
		if purged, err := s.PurgeChunks(t.Context(), time.Now()); err != nil || purged != n {
			t.Errorf("%d chunks were removed (%v), want %d", purged, err, n)
		}
		if _, err := s.GetChunks(t.Context(), r.ID, v, n); err != nil {
			t.Errorf("the record's chunks: %v", err)
		}
		if current, err := s.Delete(t.Context(), r.ID, v); current != nil || err != nil {
			t.Errorf("got %v, %v", current, err)
		}
		if _, err := s.GetChunks(t.Context(), r.ID, v, n); !errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("after Delete: %v", err)
		}
		insert(t, s, r)
	}
}

// Commit writes the outcome and items of the same table in one transaction.
func TestShared_Commit(t *testing.T) {
	t.Parallel()
	db := sharedTable(t, 200)
	s := newStore(t, db, engine.SharedLayout)
	g, err := idempotent.New(s)
	if err != nil {
		t.Fatal(err)
	}
	place := func(id string, items ...types.TransactWriteItem) (idempotent.Outcome[string], error) {
		key := idempotent.Key{Operation: "place", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
		return idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
			return "placed", dynamostore.Commit(ctx, "placed", items...)
		})
	}
	orderOf := func(id string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String(tableName), Item: item{"PK": text(engine.Domain + id), "SK": text("METADATA")},
			ConditionExpression: aws.String("attribute_not_exists(PK)"),
		}}
	}
	for replay := range 2 {
		if out, err := place("o-1", orderOf("1")); err != nil || out.Replayed != (replay > 0) || out.Value != "placed" {
			t.Errorf("got %+v, %v", out, err)
		}
	}
	if _, err := place("o-2", orderOf("1")); !errors.As(err, new(*dynamostore.ConditionError)) {
		t.Errorf("an order that exists: %v", err)
	}
	// The record itself as an item is named.
	key := idempotent.Key{Operation: "place", Scope: "acme", ID: "o-3"}
	own := engine.SharedKey(string(key.RecordID()))
	own["more"] = text("x")
	if _, err := place("o-3", types.TransactWriteItem{Put: &types.Put{TableName: aws.String(tableName), Item: own}}); !errors.Is(err, idempotent.ErrNotApplied) ||
		!strings.Contains(err.Error(), `the record and item 0 are the same item of table "once"`) {
		t.Errorf("the record as an item: %v", err)
	}
}

// New refuses a layout with which keys could collide, or attributes, and invalid values.
func TestNew_Options(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		options dynamostore.Options
		err     string // empty: accepted
	}{
		{dynamostore.Options{SortKey: "SK", Prefix: "ONCE#"}, ""},
		{dynamostore.Options{Prefix: "team:once/"}, ""},
		{dynamostore.Options{PartitionKey: "id", TTLAttribute: "expires"}, ""},
		{dynamostore.Options{Prefix: "once~"}, ""},
		{dynamostore.Options{Prefix: strings.Repeat("x", 127) + "#"}, ""},
		{dynamostore.Options{PartitionKey: strings.Repeat("x", 255)}, ""},
		{dynamostore.Options{SortKey: "SK"}, "SortKey is set without a Prefix"},
		{dynamostore.Options{Prefix: "ONCE"}, `invalid Options.Prefix "ONCE"`}, // ONCEMORE#1
		{dynamostore.Options{Prefix: "ONCE1"}, "invalid Options.Prefix"},
		{dynamostore.Options{Prefix: "ON CE#"}, "invalid Options.Prefix"},
		{dynamostore.Options{Prefix: "ÖNCE#"}, "invalid Options.Prefix"},
		{dynamostore.Options{Prefix: strings.Repeat("x", 128) + "#"}, "invalid Options.Prefix"},
		{dynamostore.Options{PartitionKey: "wid"}, `invalid Options.PartitionKey "wid": each record has an attribute of that name`},
		{dynamostore.Options{SortKey: "rat", Prefix: "ONCE#"}, `invalid Options.SortKey "rat"`},
		{dynamostore.Options{TTLAttribute: "exp"}, `invalid Options.TTLAttribute "exp"`},
		{dynamostore.Options{TTLAttribute: "until"}, `invalid Options.TTLAttribute "until"`}, // of the bookmark, with the next five
		{dynamostore.Options{TTLAttribute: "began"}, `invalid Options.TTLAttribute "began"`},
		{dynamostore.Options{TTLAttribute: "ended"}, `invalid Options.TTLAttribute "ended"`},
		{dynamostore.Options{TTLAttribute: "pause"}, `invalid Options.TTLAttribute "pause"`},
		{dynamostore.Options{TTLAttribute: "found"}, `invalid Options.TTLAttribute "found"`},
		{dynamostore.Options{TTLAttribute: "next"}, `invalid Options.TTLAttribute "next"`},
		{dynamostore.Options{TTLAttribute: "part"}, `invalid Options.TTLAttribute "part"`}, // of a chunk
		{dynamostore.Options{SortKey: "pk", Prefix: "ONCE#"}, "must differ"},
		{dynamostore.Options{TTLAttribute: "pk"}, "must differ"},
		{dynamostore.Options{SortKey: "ttl", Prefix: "ONCE#"}, "must differ"},
		{dynamostore.Options{PartitionKey: strings.Repeat("x", 256)}, "PartitionKey has 256 bytes; DynamoDB accepts 255"},
		{dynamostore.Options{Consistency: "eventual"}, `invalid Options.Consistency "eventual": want "strong"`},
		{dynamostore.Options{Name: "orders"}, "Options.Name, Client and NoWarmUp are for Open"},
		{dynamostore.Options{Client: dynamotest.New()}, "Options.Name, Client and NoWarmUp are for Open"},
		{dynamostore.Options{NoWarmUp: true}, "Options.Name, Client and NoWarmUp are for Open"},
	} {
		s, err := dynamostore.New(dynamotest.New(), tableName, func(o *dynamostore.Options) { *o = row.options })
		if row.err == "" && (err != nil || s == nil) || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%+v: got error %v, want %q", row.options, err, row.err)
		}
	}
}

// Check names the option for a table whose keys the options do not describe, and
// each call fails there without an effect.
func TestCheck_Layout(t *testing.T) {
	t.Parallel()
	plain := func(*dynamostore.Options) {}
	named := func(o *dynamostore.Options) { o.PartitionKey, o.TTLAttribute = "PK", "expires_at" }
	for _, row := range []struct {
		name         string
		table, store func(*dynamostore.Options)
		want         []string
	}{
		{"a sort key that no option names", engine.SharedLayout, named, []string{"its key is PK (HASH, S), SK (RANGE, S) and must be PK (HASH, S)", "or name its keys in Options.PartitionKey and SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY), with a Prefix"}},
		{"no option at all", engine.SharedLayout, plain, []string{"must be pk (HASH, S)", "with a Prefix", `on attribute "expires_at" and must be on "ttl"; name it in Options.TTLAttribute`}},
		{"no sort key, and an option that names one", named, engine.SharedLayout, []string{"its key is PK (HASH, S) and must be PK (HASH, S), SK (RANGE, S)", "or remove Options.SortKey"}},
		{"other names", named, plain, []string{"its key is PK (HASH, S) and must be pk (HASH, S)", "or name its keys in Options.PartitionKey"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dynamotest.New()
			if err := newStore(t, db, row.table).CreateTable(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := newStore(t, db, row.store)
			err := s.Check(t.Context())
			for _, want := range row.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			r := someRecord()
			_, inserted := s.Insert(t.Context(), r, noon)
			_, read := s.Get(t.Context(), r.ID)
			if row.name == "no sort key, and an option that names one" { // which a put stores as an attribute
				inserted = read
			}
			for _, err := range []error{inserted, read} {
				if err == nil || errors.Is(err, idempotent.ErrNoRecord) || !strings.Contains(err.Error(), "Store.Check") {
					t.Errorf("got %v, want an error that names Store.Check", err)
				}
			}
		})
	}
}

// Check reports an index of the user on an attribute of records, and what a scan of
// all other items costs.
func TestCheck_SharedTable(t *testing.T) {
	t.Parallel()
	shared := func() *fakeDynamoDB {
		db, good := dynamotest.New(), goodTable()
		engine.CreateShared(t, db, tableName)
		fake := fakeOn(db)
		fake.table, fake.ttl = good.table, good.ttl
		fake.table.KeySchema = []types.KeySchemaElement{hash("PK"), sorted("SK")}
		for _, name := range []string{"PK", "SK", "ref", "st"} {
			fake.table.AttributeDefinitions = append(fake.table.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: "S"})
		}
		fake.ttl.AttributeName = aws.String("expires_at")
		return fake
	}
	for _, row := range []struct {
		name    string
		change  func(*fakeDynamoDB)
		options func(*dynamostore.Options)
		want    string
	}{
		{"an inverted index", func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[0].KeySchema = []types.KeySchemaElement{hash("SK"), sorted("PK")}
		}, nil, ""},
		{"an index on an attribute of records", func(f *fakeDynamoDB) {
			f.table.GlobalSecondaryIndexes[0].KeySchema = []types.KeySchemaElement{hash("ref")}
		}, nil, `its index "another-index" has the key attribute ref, which records have for something else`},
		{"a local index", func(f *fakeDynamoDB) {
			f.table.LocalSecondaryIndexes = []types.LocalSecondaryIndexDescription{{IndexName: aws.String("by-st"), KeySchema: []types.KeySchemaElement{hash("PK"), sorted("st")}}}
		}, nil, `its index "by-st" has the key attribute st`},
		{"a sort key of another type", func(f *fakeDynamoDB) { f.table.AttributeDefinitions[4].AttributeType = "N" }, nil, "its key is PK (HASH, S), SK (RANGE, N) and must be PK (HASH, S), SK (RANGE, S)"},
		{"many other items", large(80<<30, 1e9), nil, "it has other items, and each scan for abandoned runs reads all 80 GB (10485760 read units); scan less often with Options.ScanEvery (ONCE_SCAN_EVERY)"},
		{"fewer other items", large(20<<30, 1e9), nil, ""},
		{"fewer other items, often", large(20<<30, 1e9), func(o *dynamostore.Options) { o.ScanEvery = 12 * time.Hour }, "reads all 20 GB"},
		{"some other items", large(1<<29, 1e6), nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			fake := shared()
			row.change(fake)
			err := newStore(t, fake, engine.SharedLayout, row.options).Check(t.Context())
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

// large describes a table of that size.
func large(bytes, items int64) func(*fakeDynamoDB) {
	return func(f *fakeDynamoDB) { f.table.TableSizeBytes, f.table.ItemCount = &bytes, &items }
}
