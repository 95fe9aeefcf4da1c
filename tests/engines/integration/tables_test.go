// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A missing table: every call returns an error that names it and says what to
// do, the handler is not called and nothing is written.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		db = db.ownTable(t)
		s := db.store(t)
		_, err := idempotent.Do(t.Context(), guardOver(t, s), newKey(), func(context.Context) (int, error) {
			t.Error("the handler was entered")
			return 0, nil
		})
		for _, err := range []error{err, s.Check(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), db.table) || !strings.Contains(err.Error(), "CreateTable") {
				t.Errorf("got error %v, want one that names the table and CreateTable", err)
			}
		}
		if !errors.As(err, new(*idempotent.StoreError)) {
			t.Errorf("got error %v, want StoreError", err)
		}
	})
}

// A table with another schema: Check lists the differences.
func TestWrongSchema(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		db = db.ownTable(t)
		s := db.store(t)
		db.createKeyed(t, "id", "sk")
		var schema *dynamostore.SchemaError
		if err := s.Check(t.Context()); !errors.As(err, &schema) || len(schema.Problems) < 3 {
			t.Fatalf("got error %v, want one for the key, the time to live and the index", err)
		}
		for _, word := range []string{"pk", "ttl", "recovery"} {
			if !strings.Contains(schema.Error(), word) {
				t.Errorf("the error does not name %q: %v", word, schema)
			}
		}
		if err := s.CreateTable(t.Context()); !errors.As(err, &schema) {
			t.Errorf("CreateTable accepted the table: %v", err)
		}
		r := driver.Record{ID: newKey().RecordID(), State: driver.StateUnknown}
		if _, err := s.Insert(t.Context(), r, r.Created); err == nil || !strings.Contains(err.Error(), "Check") {
			t.Errorf("Insert: got error %v, want one that names Check", err)
		}
	})
}

// Several processes may create the table at once.
func TestCreateTableTogether(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		s := db.ownTable(t).store(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := s.CreateTable(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// In a table of 2,500 records of which 100 are due, the index finds them with at
// most two items read for each, and a scan reports its cost.
func TestDue(t *testing.T) {
	t.Parallel()
	const records, due, later, exhausted = 2_500, 100, 50, 7
	const waiting = due + later
	var counting sync.Mutex
	queries, entries, gets := 0, 0, 0
	db := local.created(t)
	s := db.storeOver(t, dynamotest.Intercept(local.client(), func(ctx context.Context, c *dynamotest.Call) {
		c.Do(ctx)
		counting.Lock()
		defer counting.Unlock()
		switch out := c.Out.(type) {
		case *dynamodb.QueryOutput:
			queries++
			entries += int(out.ScannedCount)
		case *dynamodb.GetItemOutput, *dynamodb.BatchGetItemOutput:
			gets++
		}
	}))
	at := time.Now().UTC().Truncate(time.Millisecond)
	insert := func(r driver.Record) idempotent.RecordID {
		key := newKey()
		r.ID, r.Attempt, r.Fingerprint, r.LeaseEnd, r.Created, r.Since = key.RecordID(), 1, key.Fingerprint, at, at, at
		rand.Read(r.Version[:])
		met, err := s.Insert(t.Context(), r, at)
		if own := met != nil && met.Version == r.Version; err != nil || met != nil && !own { // own: sent twice, by a busy engine's client
			t.Fatal(met, err)
		}
		return r.ID
	}
	for i := range waiting {
		when := at.Add(-time.Duration(i) * time.Second)
		if i >= due {
			when = at.Add(time.Hour)
		}
		insert(driver.Record{State: driver.StateUnknown, Reason: driver.ReasonResult, Due: when})
	}
	for range exhausted {
		insert(driver.Record{State: driver.StateUnknown, Reason: driver.ReasonResult, Due: at, Exhausted: true})
	}
	large := bytes.Repeat([]byte("1"), 2_000) // a page of a scan has 1 MB
	done := insert(driver.Record{State: driver.StateCompleted, Reason: driver.ReasonResult, Encoding: "json", Result: large, Expires: at.Add(24 * time.Hour)})
	db.fill(t, done, records-waiting-exhausted-1)

	found := 0
	var last time.Time
	for e, err := range s.Due(t.Context(), time.Time{}) {
		if err != nil || e.State != driver.StateUnknown || e.Since.IsZero() || e.LeaseEnd.IsZero() || e.Due.Before(last) {
			t.Fatal(e, err)
		}
		if last = e.Due; !e.Due.After(at) {
			found++
		}
	}
	t.Logf("%d due of %d: %d queries read %d entries, and %d records", found, records, queries, entries, gets)
	if found != due || entries != waiting || gets > 0 {
		t.Errorf("%d records were listed as due, %d entries and %d records were read; want %d, %d and none", found, entries, gets, due, waiting)
	}
	var progress dynamostore.ScanProgress
	pages, n := 0, 0
	scanning := db.store(t, func(o *dynamostore.Options) {
		o.NoIndex = &dynamostore.ScanOptions{Progress: func(p dynamostore.ScanProgress) { progress = p; pages++ }}
	})
	for e, err := range scanning.Due(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(e, err)
		}
		n++
	}
	t.Logf("by a scan: %d waiting, %d items and %.1f read units in %d pages", n, progress.Items, progress.ReadUnits, pages)
	if n != waiting || progress.Items != records || progress.ReadUnits == 0 || pages < 4 {
		t.Errorf("the scan found %d records, read %d items for %v units in %d pages", n, progress.Items, progress.ReadUnits, pages)
	}
}

// Without the index, the error says what to do.
func TestDueWithoutIndex(t *testing.T) {
	t.Parallel()
	db := local.ownTable(t)
	db.createKeyed(t, "pk")
	s := db.store(t)
	for _, err := range s.Due(t.Context(), time.Time{}) {
		if err == nil || !strings.Contains(fmt.Sprint(err), "NoIndex") {
			t.Errorf("got error %v, want one that says what to do", err)
		}
	}
	for _, err := range db.store(t, noIndex).Due(t.Context(), time.Time{}) {
		t.Errorf("the list of an empty table has an entry: %v", err)
	}
}

// Chunks past their time to live, without a record that names them, are found
// and removed.
func TestPurgeChunks(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		s := db.store(t)
		operation := "purge-" + rand.Text()
		key := idempotent.Key{Operation: operation, Scope: "acme", ID: "1"}
		only := func(o *dynamostore.PurgeOptions) { o.Operations = []string{operation} }
		var v driver.Version
		rand.Read(v[:])
		if _, err := s.PutChunks(t.Context(), key.RecordID(), v, make([]byte, 500<<10), time.Now().Add(-3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{2, 0} {
			if n, err := s.PurgeChunks(t.Context(), time.Now(), only); n != want || err != nil {
				t.Errorf("removed %d chunks, %v; want %d", n, err, want)
			}
		}
	})
}

// fill writes n copies of a record under other keys.
func (db *database) fill(t *testing.T, like idempotent.RecordID, n int) {
	t.Helper()
	client := db.client()
	got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &db.table, Key: db.key(like)})
	if err != nil {
		t.Fatal(err)
	}
	const batch = 25
	for left := n; left > 0; left -= batch {
		writes := make([]types.WriteRequest, min(batch, left))
		for i := range writes {
			it := maps.Clone(got.Item)
			key := idempotent.Key{Operation: like.Operation(), Scope: "acme", ID: rand.Text()}
			maps.Copy(it, db.key(key.RecordID()))
			writes[i].PutRequest = &types.PutRequest{Item: it}
		}
		for len(writes) > 0 {
			out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{db.table: writes}})
			if err != nil {
				t.Fatal(err)
			}
			writes = slices.Clone(out.UnprocessedItems[db.table])
		}
	}
}
