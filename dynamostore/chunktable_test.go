// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
)

const chunkTable = "once-chunks"

func inChunkTable(o *dynamostore.Options) { o.ChunkTable = chunkTable }

// twoTables returns a database with a store's two tables.
func twoTables(t *testing.T) (*dynamotest.DB, *dynamostore.Store) {
	t.Helper()
	db := dynamotest.New()
	s := newStore(t, db, inChunkTable)
	if err := s.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, s
}

// partsIn returns the number of chunks in a table, and of other items.
func partsIn(t *testing.T, db *dynamotest.DB, table string) (parts, others int) {
	t.Helper()
	for pages := dynamodb.NewScanPaginator(db, &dynamodb.ScanInput{TableName: aws.String(table)}); pages.HasMorePages(); {
		out, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range out.Items {
			if it["part"] != nil {
				parts++
			} else {
				others++
			}
		}
	}
	return parts, others
}

// A large result lies in the other table: after a run, a Commit, and until Delete.
func TestChunkTable(t *testing.T) {
	t.Parallel()
	db, s := twoTables(t)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(s, func(o *idempotent.Options) { o.Codec = asItIs{} })
	if err != nil {
		t.Fatal(err)
	}
	data := noise(2 * chunkSize)
	key := func(id string) idempotent.Key {
		return idempotent.Key{Operation: "report", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
	}
	for id, handler := range map[string]func(context.Context) ([]byte, error){
		"run": func(context.Context) ([]byte, error) { return data, nil },
		"commit": func(ctx context.Context) ([]byte, error) {
			return data, dynamostore.Commit(ctx, data, types.TransactWriteItem{Put: &types.Put{TableName: aws.String(tableName), Item: item{"pk": text("an order")}}})
		},
	} {
		for replay := range 2 {
			out, err := idempotent.DoOutcome(t.Context(), guard, key(id), handler)
			if err != nil || out.Replayed != (replay > 0) || !bytes.Equal(out.Value, data) {
				t.Fatalf("%s: got %d bytes, replayed %t, %v", id, len(out.Value), out.Replayed, err)
			}
		}
	}
	if parts, others := partsIn(t, db, tableName); parts != 0 || others != 3 {
		t.Errorf("the store's table has %d chunks and %d other items, want 2 records and the order", parts, others)
	}
	if parts, others := partsIn(t, db, chunkTable); parts != 4 || others != 0 {
		t.Errorf("the other table has %d chunks and %d other items, want 4 chunks", parts, others)
	}
	for _, id := range []string{"run", "commit"} {
		r, err := s.Get(t.Context(), key(id).RecordID())
		if err != nil {
			t.Fatal(err)
		}
		if current, err := s.Delete(t.Context(), r.ID, r.Version); current != nil || err != nil {
			t.Fatal(current, err)
		}
	}
	if parts, _ := partsIn(t, db, chunkTable); parts != 0 {
		t.Errorf("after Delete %d chunks are left", parts)
	}
}

// Results that were stored before the option was set are found and deleted, and a
// missing chunk is one.
func TestChunkTable_SetLater(t *testing.T) {
	t.Parallel()
	db, s := twoTables(t)
	before := newStore(t, db)
	data := noise(chunkSize + 1)
	id, v, count := putChunks(t, before, data)
	if got, err := s.GetChunks(t.Context(), id, v, count); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := s.GetChunks(t.Context(), id, newVersion(), count); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("a missing result: %v", err)
	}
	r := fullRecord()
	r.ID, r.Version, r.Chunks.Count = id, v, count
	if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
	if current, err := s.Delete(t.Context(), id, v); current != nil || err != nil {
		t.Fatal(current, err)
	}
	if parts, _ := partsIn(t, db, tableName); parts != 0 {
		t.Errorf("after Delete %d chunks are left", parts)
	}
}

func TestChunkTable_Purge(t *testing.T) {
	t.Parallel()
	db, s := twoTables(t)
	r := someRecord()
	for _, store := range []*dynamostore.Store{s, newStore(t, db)} {
		if _, err := store.PutChunks(t.Context(), "report#gone", newVersion(), noise(10), at(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PutChunks(t.Context(), r.ID, r.Version, noise(10), at(1)); err != nil {
		t.Fatal(err)
	}
	r.Chunks.Count = 1
	if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
	if n, err := s.PurgeChunks(t.Context(), time.Now()); n != 2 || err != nil {
		t.Errorf("purged %d, %v, want one in each table", n, err)
	}
	if parts, _ := partsIn(t, db, chunkTable); parts != 1 {
		t.Errorf("%d chunks are left, want the one that a record refers to", parts)
	}
}

// The problems and errors name the table that they are about.
func TestChunkTable_Errors(t *testing.T) {
	t.Parallel()
	db := dynamotest.New(tableName)
	s := newStore(t, db, inChunkTable)
	schema := (*dynamostore.SchemaError)(nil)
	if err := s.Check(t.Context()); !errors.As(err, &schema) || schema.Table != chunkTable || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := s.PutChunks(t.Context(), "report#1", newVersion(), noise(10), at(1)); err == nil || !strings.Contains(err.Error(), `BatchWriteItem on table "once-chunks"`) {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := s.PurgeChunks(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), `Scan on table "once-chunks"`) {
		t.Errorf("a missing table: %v", err)
	}
	if _, err := dynamostore.New(db, tableName, func(o *dynamostore.Options) { o.ChunkTable = "no table" }); err == nil || !strings.Contains(err.Error(), "no table") {
		t.Errorf("an invalid name: %v", err)
	}
	same := newStore(t, db, func(o *dynamostore.Options) { o.ChunkTable = tableName })
	if err := same.Check(t.Context()); err != nil {
		t.Errorf("the store's own table: %v", err)
	}
}

// A table whose scans would read many large results is a problem, unless no scan
// reads them.
func TestCheck_LargeResults(t *testing.T) {
	t.Parallel()
	const gb = 1 << 30
	asItIs := func(*dynamostore.Options) {}
	for _, row := range []struct {
		name        string
		size, items int64
		options     func(*dynamostore.Options)
		want        string // in the problem; empty: no problem
	}{
		{"large results", 100 * gb, 1_000_000, asItIs, "104 KB on average…reads 100 GB (13107200 read units)…ChunkTable…ScanEvery"},
		{"one GB", gb, gb / 4096, asItIs, "4 KB on average"},
		{"less than one GB", gb - 1, 10, asItIs, ""},
		{"records alone", 100 * gb, 100 * gb / 4095, asItIs, ""},
		{"a scan a day", 24*gb - 1, 10, func(o *dynamostore.Options) { o.ScanEvery = 0 }, ""},
		{"no scan", 100 * gb, 1000, func(o *dynamostore.Options) { o.ScanEvery = -1 }, ""},
	} {
		fake := goodTable()
		fake.table.TableSizeBytes, fake.table.ItemCount = &row.size, &row.items
		s := newStore(t, fake, func(o *dynamostore.Options) { o.ScanEvery = time.Hour }, row.options)
		err := s.Check(t.Context())
		if row.want == "" && err != nil || row.want != "" && (err == nil || !containsInOrder(err.Error(), strings.Split(row.want, "…"))) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// A chunk table that is the store's own table is read once.
func TestChunkTable_Itself(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake, func(o *dynamostore.Options) { o.ChunkTable = tableName })
	r := someRecord()
	if _, err := s.GetChunks(t.Context(), r.ID, r.Version, 1); !errors.Is(err, idempotent.ErrNoRecord) || fake.count("BatchGetItem") != 1 {
		t.Errorf("%v after %d reads", err, fake.count("BatchGetItem"))
	}
}
