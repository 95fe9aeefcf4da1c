// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
