// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

var noon = at(1_700_000_000_000)

// waiting inserts n unknown records that are due at noon.
func waiting(t *testing.T, s *dynamostore.Store, n int, change func(i int, r *driver.Record)) (ids []idempotent.RecordID) {
	t.Helper()
	for i := range n {
		r := someRecord()
		r.State, r.Due = driver.StateUnknown, noon
		change(i, &r)
		if met, err := s.Insert(t.Context(), r, noon); met != nil || err != nil {
			t.Fatal(met, err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func asTheyAre(int, *driver.Record) {}

// idsOf returns the ids that a list yields, and the error that ends it.
func idsOf(list iter.Seq2[driver.Record, error]) (ids []idempotent.RecordID, err error) {
	for r, e := range list {
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return ids, err
}

func wantIDs(t *testing.T, what string, list iter.Seq2[driver.Record, error], want ...idempotent.RecordID) {
	t.Helper()
	got, err := idsOf(list)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got %d records, %v, want %d", what, len(got), err, len(want))
	}
}

// Due queries every shard, page by page, and reads each page in one batch.
func TestDue_AsksEveryShard(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	wantIDs(t, "an empty table", s.Due(t.Context(), noon))
	if q, b := fake.count("Query"), fake.count("BatchGetItem"); q != 64 || b != 0 {
		t.Errorf("%d queries and %d batches for an empty table, want 64 and 0", q, b)
	}
	ids := waiting(t, s, 300, asTheyAre) // on average five in each shard: two pages
	wantIDs(t, "300 records", s.Due(t.Context(), noon), ids...)
	if b := fake.count("BatchGetItem"); b <= 64 || b > 300/2 {
		t.Errorf("%d batches for 300 records", b)
	}
	for _, in := range fake.batchGets {
		if _, r := only(in.RequestItems); !aws.ToBool(r.ConsistentRead) {
			t.Fatal("the records are not read consistently")
		}
	}
}

// FM45: an index entry may be outdated. The record decides.
func TestStaleIndex(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(*dynamostore.Store) iter.Seq2[driver.Record, error]{
		"Due":       func(s *dynamostore.Store) iter.Seq2[driver.Record, error] { return s.Due(t.Context(), noon) },
		"Exhausted": func(s *dynamostore.Store) iter.Seq2[driver.Record, error] { return s.Exhausted(t.Context()) },
	} {
		fake := newFake()
		s := newStore(t, fake)
		ids := waiting(t, s, 5, func(_ int, r *driver.Record) { r.Exhausted = name == "Exhausted" })
		for _, id := range ids[:4] {
			fake.stale = append(fake.stale, fake.item(string(id)))
		}
		for i, change := range []func(*driver.Record){
			func(r *driver.Record) { r.Due, r.Exhausted = time.Time{}, false },
			func(r *driver.Record) { r.Due, r.Exhausted = noon.Add(time.Millisecond), false },
			func(r *driver.Record) { r.Exhausted = !r.Exhausted },
		} {
			r, err := s.Get(t.Context(), ids[i])
			if err != nil {
				t.Fatal(err)
			}
			was := r.Version
			r.Version = newVersion()
			change(r)
			if met, err := s.Replace(t.Context(), *r, was); met != nil || err != nil {
				t.Fatal(met, err)
			}
		}
		fake.remove(string(ids[3])) // deleted by its time to live
		wantIDs(t, name, list(s), ids[4])
	}
}

// Without the index Scan reads the whole table and reports its progress and its
// cost.
func TestScan(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	due := waiting(t, s, 20, asTheyAre)
	later := waiting(t, s, 5, func(_ int, r *driver.Record) { r.Due = noon.Add(time.Millisecond) })
	given := waiting(t, s, 4, func(_ int, r *driver.Record) { r.Exhausted = true })
	settled := waiting(t, s, 6, func(_ int, r *driver.Record) { r.State, r.Due = driver.StateCompleted, time.Time{} })
	if _, err := s.PutChunks(t.Context(), due[0], newVersion(), noise(3*chunkSize), chunksExpire); err != nil {
		t.Fatal(err)
	}
	const items = 20 + 5 + 4 + 6 + 3
	for _, segments := range []int{0, 1, 7} {
		var told []dynamostore.ScanProgress
		options := func(o *dynamostore.ScanOptions) {
			o.Segments = segments
			o.Progress = func(p dynamostore.ScanProgress) { told = append(told, p) }
		}
		for name, l := range map[string]struct {
			list iter.Seq2[driver.Record, error]
			want []idempotent.RecordID
		}{
			"Scan":      {s.Scan(t.Context(), options), slices.Concat(due, later, given, settled)},
			"ScanDue":   {s.ScanDue(t.Context(), noon, options), due},
			"Due":       {s.WithoutIndex(options).Due(t.Context(), noon), due},
			"Exhausted": {s.WithoutIndex(options).Exhausted(t.Context()), given},
		} {
			told = nil
			wantIDs(t, fmt.Sprintf("%s in %d segments", name, segments), l.list, l.want...)
			if len(told) < items/maxPage || !slices.IsSortedFunc(told, func(a, b dynamostore.ScanProgress) int { return a.Items - b.Items }) {
				t.Fatalf("%s: got %v", name, told)
			}
			if last := told[len(told)-1]; last.Items != items || last.ReadUnits != items/2. {
				t.Errorf("%s: in the end %+v, want %d items", name, last, items)
			}
		}
	}
	calls := fake.count("Scan")
	wantIDs(t, "unknown to this version", s.Scan(t.Context()), slices.Concat(due, later, given, settled)...)
	if n := fake.count("Scan") - calls; n < items/maxPage {
		t.Errorf("%d calls", n)
	}
}

func TestLists_Errors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testListsErrors) // pauses between tries take no time
}

func testListsErrors(t *testing.T) {
	fake := newFake()
	s := newStore(t, fake)
	waiting(t, s, 10, asTheyAre)
	lists := map[string]func(context.Context, *dynamostore.Store) iter.Seq2[driver.Record, error]{
		"Query": func(ctx context.Context, s *dynamostore.Store) iter.Seq2[driver.Record, error] {
			return s.Due(ctx, noon)
		},
		"Scan": func(ctx context.Context, s *dynamostore.Store) iter.Seq2[driver.Record, error] {
			return s.Scan(ctx)
		},
		"BatchGetItem": func(ctx context.Context, s *dynamostore.Store) iter.Seq2[driver.Record, error] {
			return s.Due(ctx, noon)
		},
	}
	for operation, list := range lists {
		fake.refuse = func(called string, n int) error {
			if called == operation {
				return validation("no")
			}
			return nil
		}
		failures := 0
		for r, err := range list(t.Context(), s) {
			if err == nil {
				continue
			}
			failures++
			if r.ID != "" || !strings.Contains(err.Error(), operation+" on table") {
				t.Errorf("%s: %q, %v", operation, r.ID, err)
			}
		}
		if failures != 1 {
			t.Errorf("%s: %d errors, want one that ends the list", operation, failures)
		}
		fake.refuse = nil
	}
	for _, n := range []int{-1, 1_000_001} {
		if _, err := idsOf(s.Scan(t.Context(), func(o *dynamostore.ScanOptions) { o.Segments = n })); err == nil || !strings.Contains(err.Error(), "Segments") {
			t.Errorf("%d segments: %v", n, err)
		}
	}
}

// After the caller stops, there are no more calls.
func TestLists_Stop(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	waiting(t, s, 300, asTheyAre)
	for operation, list := range map[string]iter.Seq2[driver.Record, error]{"Query": s.Due(t.Context(), noon), "Scan": s.Scan(t.Context())} {
		for range 20 {
			before := fake.count(operation)
			for _, err := range list {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if n := fake.count(operation) - before; n > 40 {
				t.Fatalf("%s was called %d times for one record", operation, n)
			}
		}
	}
}

// Scan accepts replies without the consumed read units.
func TestScan_WithoutUnits(t *testing.T) {
	t.Parallel()
	fake := newFake()
	waiting(t, newStore(t, fake), 3, asTheyAre)
	read := 0
	for range newStore(t, silent{fake}).Scan(t.Context(), func(o *dynamostore.ScanOptions) {
		o.Progress = func(p dynamostore.ScanProgress) { read = p.Items }
	}) {
	}
	if read != 3 {
		t.Errorf("%d items", read)
	}
}

type silent struct{ *fakeDynamoDB }

func (s silent) Scan(ctx context.Context, in *dynamodb.ScanInput, optFns ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	out, err := s.fakeDynamoDB.Scan(ctx, in, optFns...)
	if out != nil {
		out.ConsumedCapacity = nil
	}
	return out, err
}
