// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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

// fill writes n completed records, due ones that are unknown, and exhausted ones.
func fill(t *testing.T, s *dynamostore.Store, n, due, exhausted int, at time.Time) {
	t.Helper()
	var writes sync.WaitGroup
	slots := make(chan struct{}, 8)
	insert := func(change func(*driver.Record)) {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			key := newKey()
			r := driver.Record{
				ID: key.RecordID(), State: driver.StateCompleted, Reason: driver.ReasonResult, Attempt: 1,
				Fingerprint: key.Fingerprint, LeaseEnd: at, Created: at, Since: at, Encoding: "json", Result: bytes.Repeat([]byte("1"), 2_000), // a page of a scan has 1 MB
				Expires: at.Add(24 * time.Hour),
			}
			rand.Read(r.Version[:])
			change(&r)
			met, err := s.Insert(t.Context(), r, at)
			if own := met != nil && met.Version == r.Version; err != nil || met != nil && !own { // own: sent twice, by a busy engine's client
				t.Error(met, err)
			}
		})
	}
	for i := range n {
		insert(func(r *driver.Record) {
			switch {
			case i < due:
				r.State, r.Encoding, r.Result, r.Expires, r.Due = driver.StateUnknown, "", nil, time.Time{}, at.Add(-time.Duration(i)*time.Second)
			case i < due+exhausted:
				r.State, r.Encoding, r.Result, r.Expires, r.Due, r.Exhausted = driver.StateUnknown, "", nil, time.Time{}, at, true
			case i < due+exhausted+50: // later
				r.State, r.Encoding, r.Result, r.Expires, r.Due = driver.StateUnknown, "", nil, time.Time{}, at.Add(time.Hour)
			}
		})
	}
	writes.Wait()
}

// In a table of 2,500 records of which 100 are due, the index finds them with at
// most two items read for each, and a scan reports its cost.
func TestDue(t *testing.T) {
	t.Parallel()
	const records, due, exhausted = 2_500, 100, 7
	var counting sync.Mutex
	queries, entries, gets := 0, 0, 0
	s := local.created(t).storeOver(t, dynamotest.Intercept(local.client(), func(ctx context.Context, c *dynamotest.Call) {
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
	fill(t, s, records, due, exhausted, at)

	found := 0
	var last time.Time
	for e, err := range s.Due(t.Context()) {
		if err != nil || e.State != driver.StateUnknown || e.Since.IsZero() || e.LeaseEnd.IsZero() || e.Due.Before(last) {
			t.Fatal(e, err)
		}
		if last = e.Due; !e.Due.After(at) {
			found++
		}
	}
	const waiting = due + 50 // 50 are due later
	t.Logf("%d due of %d: %d queries read %d entries, and %d records", found, records, queries, entries, gets)
	if found != due || entries != waiting || gets > 0 {
		t.Errorf("%d records were listed as due, %d entries and %d records were read; want %d, %d and none", found, entries, gets, due, waiting)
	}
	n := 0
	for e, err := range s.Exhausted(t.Context()) {
		if err != nil || e.State != driver.StateUnknown {
			t.Fatal(e, err)
		}
		n++
	}
	if n != exhausted {
		t.Errorf("%d exhausted records were listed, want %d", n, exhausted)
	}
	var progress dynamostore.ScanProgress
	pages := 0
	scanning := s.WithoutIndex(func(o *dynamostore.ScanOptions) {
		o.Progress = func(p dynamostore.ScanProgress) { progress = p; pages++ }
	})
	n = 0
	for e, err := range scanning.Due(t.Context()) {
		if err != nil {
			t.Fatal(e, err)
		}
		n++
	}
	t.Logf("by a scan: %d waiting, %d items and %.1f read units in %d pages", n, progress.Items, progress.ReadUnits, pages)
	if n != waiting || progress.Items != records || progress.ReadUnits == 0 || pages < 4 {
		t.Errorf("the scan found %d records, read %d items for %v units in %d pages", n, progress.Items, progress.ReadUnits, pages)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, list := range map[string]driver.DueLister{"index": s, "scan": scanning} {
		for _, err := range list.Due(ended) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a cancelled list yields %v", name, err)
			}
		}
	}
	n = 0
	for _, err := range scanning.Exhausted(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != exhausted {
		t.Errorf("the scan found %d exhausted records, want %d", n, exhausted)
	}
}

// Without the index, the error says what to do.
func TestDueWithoutIndex(t *testing.T) {
	t.Parallel()
	db := local.ownTable(t)
	db.createKeyed(t, "pk")
	s := db.store(t)
	for _, err := range s.Due(t.Context()) {
		if err == nil || !strings.Contains(fmt.Sprint(err), "WithoutIndex") {
			t.Errorf("got error %v, want one that says what to do", err)
		}
	}
	for _, err := range s.WithoutIndex().Due(t.Context()) {
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

// worldwide simulates a global table with eventual consistency: one table for each
// of two regions, and the test replicates between them.
type worldwide struct {
	t       *testing.T
	regions []*database
	guards  []*idempotent.Guard
	effects map[string]int // by key
}

func newWorldwide(t *testing.T, db *database) *worldwide {
	t.Helper()
	w := &worldwide{t: t, effects: map[string]int{}}
	for range 2 {
		region := db.created(t)
		w.regions, w.guards = append(w.regions, region), append(w.guards, guardOver(t, region.store(t)))
	}
	return w
}

// request sends a request for a key to a region. Its handler returns the effect
// that it had.
func (w *worldwide) request(region int, k idempotent.Key) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return idempotent.Do(ctx, w.guards[region], k, func(context.Context) (string, error) {
		w.effects[k.ID]++
		return fmt.Sprintf("effect %d, region %d", w.effects[k.ID], region), nil
	})
}

// replicate copies what was written in a region to another. Of two writes of a
// record the last one wins, which here is the one of the source region.
func (w *worldwide) replicate(from, to int) {
	w.t.Helper()
	page, err := w.regions[to].client().Scan(w.t.Context(), &dynamodb.ScanInput{TableName: &w.regions[from].table})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(page.Items) == 0 || page.LastEvaluatedKey != nil {
		w.t.Fatalf("%d records to replicate, and more: %v", len(page.Items), page.LastEvaluatedKey != nil)
	}
	for _, item := range page.Items {
		if _, err := w.regions[to].client().PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.regions[to].table, Item: item}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// FM49: if two regions get the same key before replication, both run it, and one of the
// two outcomes is lost.
func TestTwoRegionsWinOneKey(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		w, k := newWorldwide(t, db), newKey()
		first, err1 := w.request(0, k)
		second, err2 := w.request(1, k)
		if err1 != nil || err2 != nil || w.effects[k.ID] != 2 || first == second {
			t.Fatalf("%q (%v) and %q (%v) after %d effects, want two effects", first, err1, second, err2, w.effects[k.ID])
		}
		w.replicate(1, 0)
		again, err := w.request(0, k)
		if err != nil || again != second || w.effects[k.ID] != 2 {
			t.Errorf("the first region's client gets %q (%v), want the outcome of the second region: %q", again, err, second)
		}
	})
}

// FM49: after the record was replicated, the other region replays its outcome, and
// refuses while it is in progress.
func TestTheOtherRegionKnowsLater(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		w, k := newWorldwide(t, db), newKey()
		_, err := idempotent.Do(t.Context(), w.guards[0], k, func(context.Context) (string, error) {
			w.replicate(0, 1)
			if _, err := w.request(1, k); !errors.As(err, new(*idempotent.InProgressError)) {
				t.Errorf("while the first region runs it, the second one returns %v", err)
			}
			w.effects[k.ID]++
			return "the effect", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.replicate(0, 1)
		if got, err := w.request(1, k); err != nil || got != "the effect" || w.effects[k.ID] != 1 {
			t.Errorf("the second region returns %q (%v) after %d effects, want the replay", got, err, w.effects[k.ID])
		}
	})
}

// FM49: after a failover, the other region has no copy of the record yet and runs the
// request again. The provider gets the same downstream key.
func TestFailoverKeepsTheDownstreamKey(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		w, k := newWorldwide(t, db), newKey()
		calls, charges := 0, map[string]string{} // at the provider, by downstream key
		for region, guard := range w.guards {
			got, err := idempotent.Do(t.Context(), guard, k, func(ctx context.Context) (string, error) {
				calls++
				key := idempotent.DownstreamKey(ctx)
				if charges[key] == "" {
					charges[key] = fmt.Sprintf("charged in region %d", region)
				}
				return charges[key], nil
			})
			if err != nil || got != "charged in region 0" {
				t.Errorf("region %d: got %q, %v", region, got, err)
			}
		}
		if calls != 2 || len(charges) != 1 {
			t.Errorf("%d calls at the provider and charges %v, want two calls and one charge", calls, charges)
		}
	})
}
