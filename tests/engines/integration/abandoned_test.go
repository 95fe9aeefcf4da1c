// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"flag"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

var others = flag.Int("records", 5_000, "how many other records the table has in which abandoned runs are found")

// A run that ends without a warning after its claim, and whose request never comes
// again, is found within its lease, the interval of the scan, and two runs of the
// reconciler, among many other records. One that announced itself is found without a
// scan.
func TestAbandonedRunsAreFound(t *testing.T) {
	t.Parallel()
	t.Run("OwnTable", func(t *testing.T) {
		t.Parallel()
		db := local.created(t)
		db.segments = 1 + *others/10_000 // for each page, DynamoDB Local reads the rest of a segment
		abandonedRunsAreFound(t, db, *others)
	})
	t.Run("SharedTable", func(t *testing.T) {
		t.Parallel()
		abandonedRunsAreFound(t, local.between(t, 3000), 500)
	})
}

func abandonedRunsAreFound(t *testing.T, db *database, others int) {
	clock := &idempotenttest.Clock{}
	const lease, interval, run = patience + 3*time.Second, time.Hour, time.Minute
	withKey := func(r idempotent.Recovery) *customer {
		return &customer{t: t, db: db, recovery: r, key: newKey(), clock: clock, meter: newMeter(db.client())}
	}
	within := map[*customer]time.Duration{} // how long it may take until a run is found
	for _, recovery := range unless {
		within[withKey(recovery)] = lease + interval + 2*run
	}
	announced := withKey(idempotent.Reconcile)
	within[announced] = 2 * run // its lease ends after some seconds
	sample := withKey(idempotent.Reconcile)
	sample.options = func(o *dynamostore.Options) { o.ScanEvery = interval }
	if sample.send(returns(small)); !ran(sample) {
		t.Fatal(sample.err)
	}
	began := time.Now()
	db.fill(t, sample.key.RecordID(), others)
	t.Logf("%d records written in %s", others, time.Since(began).Round(time.Second))

	// DynamoDB Local also reads for one Scan at a time, and while others wait there,
	// their time-out runs.
	var scan sync.Mutex
	meter := newMeter(dynamotest.Intercept(db.client(), func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "Scan" {
			scan.Lock()
			defer scan.Unlock()
		}
		c.Do(ctx)
	}))
	reconcile := idempotent.Reconciler(sample.guard(meter), map[string]idempotent.ResolveFunc{
		sample.key.Operation: func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.Later(time.Hour), nil
		},
	})
	read, units := 0, 0.0
	var longest time.Duration
	everyMinute := func() idempotent.Report {
		t.Helper()
		began := time.Now()
		report, err := reconcile(clock.Invocation(t.Context(), run))
		if err != nil {
			t.Fatal(report, err)
		}
		longest = max(longest, time.Since(began))
		read, units = read+report.Scan.Items, units+report.Scan.ReadUnits
		clock.Advance(run)
		return report
	}
	everyMinute() // a pass begins just before the runs end: the longest wait
	killed := clock.Now()
	for c := range within {
		if c == announced {
			c.announces(db.client(), true)
		} else {
			c.die()
		}
	}
	found := map[*customer]time.Duration{}
	for len(found) < len(within) {
		report := everyMinute()
		for c := range within {
			r, err := db.store(t).Get(t.Context(), c.key.RecordID())
			if err != nil {
				t.Fatal(err)
			}
			if found[c] == 0 && r.State != driver.StateInProgress {
				found[c] = clock.Now().Sub(killed)
			}
		}
		if clock.Now().Sub(killed) > 2*interval {
			t.Fatalf("after two intervals only %v are found; the last run: %+v", found, report)
		}
	}
	for c, after := range found {
		if after > within[c] {
			t.Errorf("%s, announced: %t: found after %s, want at most %s", c.recovery, c == announced, after, within[c])
		}
	}
	t.Logf("found after %v; %d items read for %v read units; the longest run took %s; all calls: %+v",
		slices.Collect(maps.Values(found)), read, units, longest.Round(time.Millisecond), meter.total())
	if read < others {
		t.Errorf("%d items were read, want at least one pass of %d", read, others)
	}

	// The next request finds an abandoned run at once.
	for c := range within {
		c.key = newKey()
		c.crash()
		c.send(returns(small))
		if marked := endsWith(new(idempotent.UnresolvedError))(c); marked != (c.recovery == idempotent.Reconcile) || !marked && !ran(c) {
			t.Errorf("%s: the next request ended with %v", c.recovery, c.err)
		}
	}
}

// fill writes n copies of a record under other keys.
func (db *database) fill(t *testing.T, like idempotent.RecordID, n int) {
	t.Helper()
	client := db.client()
	got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &db.table, Key: db.key(like)})
	if err != nil {
		t.Fatal(err)
	}
	const batch, writers = 25, 4
	var work sync.WaitGroup
	numbers := make(chan int, n)
	for i := 0; i < n; i += batch {
		numbers <- min(batch, n-i)
	}
	close(numbers)
	for range writers {
		work.Go(func() {
			for size := range numbers {
				writes := make([]types.WriteRequest, size)
				for i := range writes {
					it := maps.Clone(got.Item)
					key := idempotent.Key{Operation: like.Operation(), Scope: "acme", ID: rand.Text()}
					maps.Copy(it, db.key(key.RecordID()))
					writes[i].PutRequest = &types.PutRequest{Item: it}
				}
				for len(writes) > 0 {
					out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{db.table: writes}})
					if err != nil {
						t.Error(err)
						return
					}
					writes = slices.Clone(out.UnprocessedItems[db.table])
				}
			}
		})
	}
	work.Wait()
}
