// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

var noon = at(1_700_000_000_000)

// waiting inserts n unknown records that are due at noon.
func waiting(t *testing.T, s *dynamostore.Store, n int, change func(i int, r *driver.Record)) (ids []idempotent.RecordID) {
	t.Helper()
	for i := range n {
		r := someRecord()
		r.State, r.Since, r.Due = driver.StateUnknown, noon, noon
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
func idsOf[E any](list iter.Seq2[E, error]) (ids []idempotent.RecordID, err error) {
	for entry, e := range list {
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		switch entry := any(entry).(type) {
		case driver.Listed:
			ids = append(ids, entry.ID)
		case driver.Record:
			ids = append(ids, entry.ID)
		}
	}
	slices.Sort(ids)
	return ids, err
}

func wantIDs[E any](t *testing.T, what string, list iter.Seq2[E, error], want ...idempotent.RecordID) {
	t.Helper()
	got, err := idsOf(list)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got %d records, %v, want %d", what, len(got), err, len(want))
	}
}

// Due queries every shard and reads no record.
func TestDue_QueriesEveryShard(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	wantIDs(t, "an empty table", s.Due(t.Context(), time.Time{}))
	if q := fake.count("Query"); q != 64 {
		t.Errorf("%d queries for an empty table, want 64", q)
	}
	ids := waiting(t, s, 300, asTheyAre)
	wantIDs(t, "300 records", s.Due(t.Context(), time.Time{}), ids...)
	if q, reads := fake.count("Query")-64, fake.count("GetItem")+fake.count("BatchGetItem"); q < 300/maxPage || q > 64+300/maxPage || reads != 0 {
		t.Errorf("%d queries and %d reads for 300 records in pages of %d", q, reads, maxPage)
	}
	before := fake.count("Query")
	wantIDs(t, "after all records", s.Due(t.Context(), noon))
	if q := fake.count("Query") - before; q != 64 {
		t.Errorf("%d queries for what is due after all records, want 64", q)
	}
}

// The lists merge all shards and their pages in the order of the due times,
// whatever the order in which the shards answer.
func TestLists_MergeTheShards(t *testing.T) {
	t.Parallel()
	const records = 300 // on average two pages in each shard
	for name, list := range map[string]func(*dynamostore.Store) iter.Seq2[driver.Listed, error]{
		"Due":       func(s *dynamostore.Store) iter.Seq2[driver.Listed, error] { return s.Due(t.Context(), time.Time{}) },
		"Exhausted": func(s *dynamostore.Store) iter.Seq2[driver.Listed, error] { return s.Exhausted(t.Context()) },
	} {
		fake := newFake()
		s := newStore(t, fake)
		minutes := rand.Perm(records)
		waiting(t, s, records, func(i int, r *driver.Record) {
			r.Due, r.Exhausted = noon.Add(time.Duration(minutes[i])*time.Minute), name == "Exhausted"
		})
		found := 0
		for e, err := range list(s) {
			if want := noon.Add(time.Duration(found) * time.Minute); err != nil || !e.Due.Equal(want) || e.State != driver.StateUnknown || e.Since.IsZero() || e.LeaseEnd.IsZero() {
				t.Fatalf("%s: entry %d is %+v (%v), want the one of %s", name, found, e, err, want)
			}
			found++
		}
		if found != records {
			t.Errorf("%s: %d entries, want %d", name, found, records)
		}
	}
}

// An entry that this version cannot read is listed by its id, and the others are
// listed too, even if it is the first.
func TestLists_UnreadableEntry(t *testing.T) {
	t.Parallel()
	for _, exhausted := range []bool{false, true} {
		fake := newFake()
		s := newStore(t, fake)
		ids := waiting(t, s, 3, func(i int, r *driver.Record) {
			r.Due, r.Exhausted = noon.Add(time.Duration(i)*time.Hour), exhausted
		})
		fake.change(string(ids[0]), func(it item) { it["st"] = &types.AttributeValueMemberS{Value: "Z"} })
		lists := map[string]iter.Seq2[driver.Listed, error]{"Due": s.Due(t.Context(), time.Time{}), "Due without the index": newStore(t, fake, noIndex).Due(t.Context(), time.Time{})}
		if exhausted {
			lists = map[string]iter.Seq2[driver.Listed, error]{"Exhausted": s.Exhausted(t.Context()), "Exhausted without the index": newStore(t, fake, noIndex).Exhausted(t.Context())}
		}
		for name, list := range lists {
			var readable, unreadable []idempotent.RecordID
			for e, err := range list {
				if err != nil {
					unreadable = append(unreadable, e.ID)
					continue
				}
				readable = append(readable, e.ID)
			}
			if !slices.Equal(readable, ids[1:]) || !slices.Equal(unreadable, ids[:1]) {
				t.Errorf("%s: listed %v, and %v with an error; the first of %v cannot be read", name, readable, unreadable, ids)
			}
		}
	}
}

// A reconciler that has no resolver for an operation does not read its records,
// except to process the end of a lease, and then once.
func TestReconciler_ReadsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	clock := &idempotenttest.Clock{}
	guard, err := idempotent.New(s, func(o *idempotent.Options) { o.Now, o.Logger = clock.Now, slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	due := clock.Now().UTC().Truncate(time.Millisecond)
	const foreign = 200
	waiting(t, s, foreign, func(_ int, r *driver.Record) { r.ID, r.Due = idOf("refund"), due })
	running := waiting(t, s, 1, func(_ int, r *driver.Record) {
		r.ID, r.Due, r.State, r.LeaseEnd, r.Recovery = idOf("refund"), due, driver.StateInProgress, due, idempotent.Reconcile
	})
	own := waiting(t, s, 3, func(_ int, r *driver.Record) { r.ID, r.Due = idOf("charge"), due })
	reconcile := idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{
		"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.ResolvedFinal("a", "b"), nil
		},
	})
	for _, want := range []struct{ due, completed, marked, pending, reads int }{
		// Each run reads the bookmark of the scan, too.
		{len(own) + len(running), len(own), len(running), foreign + 1, len(own) + len(running) + 1},
		{0, 0, 0, foreign + 1, 1},
	} {
		before := fake.count("GetItem") + fake.count("BatchGetItem")
		report, err := reconcile(t.Context())
		reads := fake.count("GetItem") + fake.count("BatchGetItem") - before
		refunds := report.Operations["refund"]
		if err != nil || report.Due != want.due || report.Completed != want.completed || report.MarkedUnknown != want.marked || reads != want.reads {
			t.Errorf("%s (%v), with %d reads; want %+v", report, err, reads, want)
		}
		if !report.Listed || report.Pending != want.pending || refunds.Pending != want.pending || !refunds.NoResolver || refunds.Oldest.IsZero() {
			t.Errorf("%d wait, and of refunds %+v; want %d", report.Pending, refunds, want.pending)
		}
		clock.Advance(time.Hour)
	}
	if r, err := s.Get(t.Context(), running[0]); err != nil || r.State != driver.StateUnknown {
		t.Errorf("the record with an ended lease is %+v, %v", r, err)
	}
}

// idOf returns a new record id of an operation.
func idOf(operation string) idempotent.RecordID {
	return idempotent.Key{Operation: operation, Scope: "acme", ID: fmt.Sprint(rand.Uint64())}.RecordID()
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
		whole := newStore(t, fake, func(o *dynamostore.Options) {
			noIndex(o)
			options(o.NoIndex)
		})
		for name, check := range map[string]func(string){
			"Scan": func(what string) {
				wantIDs(t, what, s.Scan(t.Context(), options), slices.Concat(due, later, given, settled)...)
			},
			"Due": func(what string) {
				wantIDs(t, what, whole.Due(t.Context(), time.Time{}), slices.Concat(due, later)...)
			},
			"Exhausted": func(what string) { wantIDs(t, what, whole.Exhausted(t.Context()), given...) },
		} {
			told = nil
			check(fmt.Sprintf("%s in %d segments", name, segments))
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
	synctest.Test(t, func(t *testing.T) { // pauses between tries take no time
		fake := newFake()
		s := newStore(t, fake)
		waiting(t, s, 10, asTheyAre)
		for operation, read := range map[string]func() ([]idempotent.RecordID, error){
			"Query": func() ([]idempotent.RecordID, error) { return idsOf(s.Due(t.Context(), time.Time{})) },
			"Scan":  func() ([]idempotent.RecordID, error) { return idsOf(s.Scan(t.Context())) },
			"Scan ": func() ([]idempotent.RecordID, error) {
				return idsOf(newStore(t, fake, noIndex).Due(t.Context(), time.Time{}))
			},
		} {
			operation = strings.TrimSpace(operation)
			fake.refuse = refusing(operation, validation("no"))
			_, err := read()
			if err == nil || strings.Count(err.Error(), operation+" on table") != 1 {
				t.Errorf("%s: %v, want one error that ends the list", operation, err)
			}
			fake.refuse = nil
		}
		for _, n := range []int{-1, 1_000_001} {
			if _, err := idsOf(s.Scan(t.Context(), func(o *dynamostore.ScanOptions) { o.Segments = n })); err == nil || !strings.Contains(err.Error(), "Segments") {
				t.Errorf("%d segments: %v", n, err)
			}
		}
	})
}

// A list whose context ends yields the error of the context, even after its last
// entry.
func TestDue_ContextEnds(t *testing.T) {
	t.Parallel()
	s := newStore(t, newFake())
	waiting(t, s, 1, asTheyAre)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entries, ended := 0, error(nil)
	for _, err := range s.Due(ctx, time.Time{}) {
		if ended = err; err == nil {
			entries++
		}
		cancel()
	}
	if entries != 1 || !errors.Is(ended, context.Canceled) {
		t.Errorf("%d entries, and then %v", entries, ended)
	}
}

// A failure on a later page ends the list: it is the last that is yielded, and the
// failed query is not made again. A list that has to read the whole table yields no
// entry then, because the earliest one may be missing.
func TestLists_LaterPageFails(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	failed := map[string]int{} // by partition
	client := dynamotest.Intercept(newFake(), func(ctx context.Context, c *dynamotest.Call) {
		switch in := c.In.(type) {
		case *dynamodb.QueryInput:
			if in.ExclusiveStartKey != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[in.ExpressionAttributeValues[":shard"].(*types.AttributeValueMemberS).Value]++
				c.Err = validation("no")
				return
			}
		case *dynamodb.ScanInput:
			if in.ExclusiveStartKey != nil {
				c.Err = validation("no")
				return
			}
		}
		c.Do(ctx)
	})
	s := newStore(t, client)
	const records = 64*maxPage + 1 // a shard has a second page
	waiting(t, s, records, asTheyAre)
	oneSegment := func(o *dynamostore.Options) { o.NoIndex = &dynamostore.ScanOptions{Segments: 1} }
	for name, row := range map[string]struct {
		list   iter.Seq2[driver.Listed, error]
		before int // at most so many entries
	}{
		"Due":                   {s.Due(t.Context(), time.Time{}), records - 1},
		"Due without the index": {newStore(t, client, oneSegment).Due(t.Context(), time.Time{}), 0},
	} {
		entries, failures := 0, 0
		for _, err := range row.list {
			switch {
			case err != nil:
				failures++
			case failures > 0:
				t.Fatalf("%s continued after an error", name)
			default:
				entries++
			}
		}
		if failures != 1 || entries > row.before {
			t.Errorf("%s: %d entries and %d errors", name, entries, failures)
		}
	}
	for partition, times := range failed {
		if times > 1 {
			t.Errorf("the query of %s failed %d times", partition, times)
		}
	}
}

// After the caller stops, there are no more calls.
func TestLists_Stop(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	waiting(t, s, 600, asTheyAre)
	leftRunning(t, s, 600)
	for name, first := range map[string]func() error{
		"Query":         func() error { return firstOf(s.Due(t.Context(), time.Time{})) },
		"Scan":          func() error { return firstOf(s.Scan(t.Context())) },
		"Scan, Running": func() error { return firstOf(s.Running(t.Context())) },
	} {
		operation, _, _ := strings.Cut(name, ",")
		for range 20 {
			before := fake.count(operation)
			if err := first(); err != nil {
				t.Fatal(err)
			}
			// At most two pages of each shard; the whole list has more.
			if n := fake.count(operation) - before; n > 128 || operation == "Scan" && n > 40 {
				t.Fatalf("%s was called %d times for one record", operation, n)
			}
		}
	}
}

// A list that has returned has no query under way.
func TestDue_WaitsForItsQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Bool // the first query for a later page
		s := newStore(t, dynamotest.Intercept(newFake(), func(ctx context.Context, c *dynamotest.Call) {
			if in, ok := c.In.(*dynamodb.QueryInput); !ok || in.ExclusiveStartKey == nil || begun.Swap(true) {
				c.Do(ctx)
				return
			}
			<-ctx.Done()
			<-time.After(time.Second) // the reply of a slow server
			c.Err = ctx.Err()
			ended.Store(true)
		}))
		waiting(t, s, 64*maxPage+1, asTheyAre) // a shard has a second page
		for range s.Due(t.Context(), time.Time{}) {
			synctest.Wait() // it reads pages ahead
			break
		}
		if !begun.Load() || !ended.Load() {
			t.Errorf("a query of a later page: begun %t, ended %t", begun.Load(), ended.Load())
		}
	})
}

// firstOf reads the first entry of a list.
func firstOf[E any](list iter.Seq2[E, error]) error {
	for _, err := range list {
		return err
	}
	return errors.New("the list is empty")
}

// Scan accepts replies without the consumed read units.
func TestScan_WithoutUnits(t *testing.T) {
	t.Parallel()
	fake := newFake()
	waiting(t, newStore(t, fake), 3, asTheyAre)
	read := 0
	for range newStore(t, billing(fake, nil)).Scan(t.Context(), func(o *dynamostore.ScanOptions) {
		o.Progress = func(p dynamostore.ScanProgress) { read = p.Items }
	}) {
	}
	if read != 3 {
		t.Errorf("%d items", read)
	}
}

// billing returns a client whose scans report that cost for each page.
func billing(client dynamostore.Client, cost *types.ConsumedCapacity) dynamostore.Client {
	return dynamotest.Intercept(client, func(ctx context.Context, c *dynamotest.Call) {
		c.Do(ctx)
		if out, ok := c.Out.(*dynamodb.ScanOutput); ok {
			out.ConsumedCapacity = cost
		}
	})
}
