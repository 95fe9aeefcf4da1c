// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
)

func strong(o *dynamostore.Options) { o.Consistency = dynamostore.Strong }

func inRegions(replicas []string, witness string) func(*dynamostore.CreateOptions) {
	return func(o *dynamostore.CreateOptions) { o.Replicas, o.Witness = replicas, witness }
}

// The two tables of a store have one consistency.
func TestCheck_ConsistencyOfTheChunkTable(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, db dynamostore.Client, optFns ...func(*dynamostore.Options)) {
		t.Helper()
		s := newStore(t, db, optFns...)
		o := func(*dynamostore.CreateOptions) {}
		if slices.ContainsFunc(optFns, func(f func(*dynamostore.Options)) bool { o := dynamostore.Options{}; f(&o); return o.Consistency != "" }) {
			o = inRegions([]string{"eu-west-1"}, "eu-west-2")
		}
		if err := s.CreateTable(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("one region", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.New("once-chunks")
		create(t, db, strong)
		wantProblems(t, newStore(t, db, strong, inChunkTable).Check(t.Context()), []string{"table in one region, so other regions cannot read its large results"})
	})
	t.Run("MRSC", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.New()
		create(t, db, strong, inChunkTable)
		one := dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
			if c.Do(ctx); c.Op == "DescribeTable" && *c.In.(*dynamodb.DescribeTableInput).TableName == tableName {
				c.Out.(*dynamodb.DescribeTableOutput).Table.MultiRegionConsistency = ""
				c.Out.(*dynamodb.DescribeTableOutput).Table.Replicas = nil
			}
			if out, ok := c.Out.(*dynamodb.DescribeTimeToLiveOutput); ok {
				out.TimeToLiveDescription = &types.TimeToLiveDescription{TimeToLiveStatus: "ENABLED", AttributeName: aws.String("ttl")}
			}
		})
		wantProblems(t, newStore(t, one, inChunkTable).Check(t.Context()), []string{"MRSC…large results…in one region, like the table of the records"})
	})
	// described returns db, with a change of what DynamoDB says of a table.
	described := func(db dynamostore.Client, table string, change func(*types.TableDescription)) dynamostore.Client {
		return dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
			if c.Do(ctx); c.Op == "DescribeTable" && *c.In.(*dynamodb.DescribeTableInput).TableName == table {
				change(c.Out.(*dynamodb.DescribeTableOutput).Table)
			}
		})
	}
	t.Run("MREC", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.New()
		create(t, db, inChunkTable)
		many := described(db, "once-chunks", func(d *types.TableDescription) { d.Replicas = []types.ReplicaDescription{replica("ap-south-1")} })
		wantProblems(t, newStore(t, many, inChunkTable).Check(t.Context()), []string{"ap-south-1: a region can find a record before its large result"})
	})
	t.Run("scans off", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.New()
		create(t, db, strong, inChunkTable)
		err := newStore(t, db, strong, inChunkTable, func(o *dynamostore.Options) { o.ScanEvery = -1 }).Check(t.Context())
		if err == nil || strings.Count(err.Error(), "scans are off") != 1 {
			t.Errorf("got %v, want the problem once", err)
		}
	})
	t.Run("no scan reads the large results", func(t *testing.T) {
		t.Parallel()
		db := dynamotest.New()
		create(t, db, inChunkTable)
		large := described(db, tableName, func(d *types.TableDescription) { d.TableSizeBytes, d.ItemCount = aws.Int64(100<<30), aws.Int64(1) })
		if err := newStore(t, large, inChunkTable, func(o *dynamostore.Options) { o.ScanEvery = time.Hour }).Check(t.Context()); err != nil {
			t.Error(err)
		}
		out, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("once-chunks")})
		if err != nil || len(out.Table.GlobalSecondaryIndexes) > 0 {
			t.Errorf("the table of large results has the indexes %v, %v", out.Table.GlobalSecondaryIndexes, err)
		}
	})
}

func TestCreateTable_Consistency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, witness := range []string{"", "eu-west-3"} {
			replicas := []string{"eu-west-1", "eu-west-2"}
			if witness != "" {
				replicas = replicas[:1]
			}
			db := withoutTables()
			var global time.Time
			client := dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
				c.Do(ctx)
				switch out := c.Out.(type) {
				case *dynamodb.UpdateTableOutput:
					global = time.Now()
				case *dynamodb.DescribeTableOutput:
					if !global.IsZero() && time.Since(global) < 8*time.Minute {
						out.Table.Replicas = []types.ReplicaDescription{{RegionName: aws.String("eu-west-1"), ReplicaStatus: "CREATING"}, replica("eu-west-2")}
					}
				}
			})
			s := newStore(t, client, strong)
			if err := s.CreateTable(t.Context(), inRegions(replicas, witness)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(global); took < 8*time.Minute || took > 9*time.Minute {
				t.Errorf("it returned %s after the replicas were requested, want soon after 8m", took)
			}
			if err := newStore(t, db, strong).Check(t.Context()); err != nil {
				t.Error(err)
			}
			in := sent[dynamodb.UpdateTableInput](db)
			if len(in) != 1 || in[0].MultiRegionConsistency != "STRONG" || len(in[0].ReplicaUpdates) != len(replicas) || (len(in[0].GlobalTableWitnessUpdates) == 1) != (witness != "") {
				t.Errorf("the requests are %+v", in)
			}
			if db.count("UpdateTimeToLive") != 0 {
				t.Error("time to live was switched on")
			}
		}
	})
}

// A table whose replicas DynamoDB refuses stays in one region, and the error says so.
func TestCreateTable_RefusedRegions(t *testing.T) {
	t.Parallel()
	for code, advice := range map[string]bool{"ValidationException": true, "LimitExceededException": false} {
		synctest.Test(t, func(t *testing.T) { // in which a wait for the replicas takes no time
			client := dynamotest.Intercept(withoutTables(), func(ctx context.Context, c *dynamotest.Call) {
				if c.Op == "UpdateTable" {
					c.Err = &smithy.GenericAPIError{Code: code, Message: "the regions are of two sets"}
					return
				}
				c.Do(ctx)
			})
			began := time.Now()
			err := newStore(t, client, strong).CreateTable(t.Context(), inRegions([]string{"eu-west-1", "us-east-1"}, ""))
			if err == nil || strings.Contains(err.Error(), "the table is now in one region: delete it") != advice || strings.Contains(err.Error(), "keys") {
				t.Errorf("%s: got %v", code, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it waited %s for replicas that no one creates", code, took)
			}
		})
	}
}

func TestCreateTable_InvalidRegions(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]struct {
		opts     func(*dynamostore.Options)
		replicas []string
		witness  string
	}{
		`are for Options.Consistency "strong"`:    {func(*dynamostore.Options) {}, []string{"eu-west-1", "eu-west-2"}, ""},
		`got 0 other replicas and witness ""`:     {strong, nil, ""},
		`got 1 other replicas and witness ""`:     {strong, []string{"a"}, ""},
		`got 3 other replicas and witness ""`:     {strong, []string{"a", "b", "c"}, ""},
		`got 2 other replicas and witness "west"`: {strong, []string{"a", "b"}, "west"},
		`got 0 other replicas and witness "west"`: {strong, nil, "west"},
	} {
		fake := withoutTables()
		if err := newStore(t, fake, row.opts).CreateTable(t.Context(), inRegions(row.replicas, row.witness)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(fake.sent) != 0 {
			t.Errorf("%q: %d calls", want, len(fake.sent))
		}
	}
	fake := newFake() // in one region, and not changed
	err := newStore(t, fake, strong).CreateTable(t.Context(), inRegions([]string{"eu-west-1"}, "eu-west-2"))
	wantProblems(t, err, []string{"table in one region"})
	if fake.count("UpdateTable") != 0 {
		t.Error("an existing table was changed")
	}
}

// A transaction is refused before any call.
func TestCommit_Consistency(t *testing.T) {
	t.Parallel()
	fake := newFake()
	g, err := idempotent.New(newStore(t, fake, strong), func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"order"} })
	if err != nil {
		t.Fatal(err)
	}
	_, err = idempotent.Do(t.Context(), g, aKey(), func(ctx context.Context) (string, error) {
		_, stepErr := dynamostore.CommitStep(ctx, "order", "o-1", order("o-1"))
		for _, err := range []error{dynamostore.Commit(ctx, "done", order("o-1")), stepErr} {
			if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "idempotent.Step under Resume") {
				t.Errorf("got %v", err)
			}
		}
		return "done", nil
	})
	if err != nil || fake.count("TransactWriteItems") != 0 {
		t.Errorf("%v, %d transactions", err, fake.count("TransactWriteItems"))
	}
}

// expiredRecords inserts completed records that expire at the times, after noon.
func expiredRecords(t *testing.T, s *dynamostore.Store, after ...time.Duration) []idempotent.RecordID {
	t.Helper()
	return waiting(t, s, len(after), func(i int, r *driver.Record) {
		r.State, r.Due, r.LeaseEnd, r.Expires = driver.StateCompleted, time.Time{}, time.Time{}, noon.Add(after[i])
	})
}

// A record goes an hour after its expiry, a chunk another hour later. An abandoned run
// expires only if its operation limits how long it waits; until then it is passed. What
// did not expire, and other items of the table, stay.
func TestAbandoned_DeletesExpired(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		others int
		open   func(t *testing.T) (*dynamotest.DB, *dynamostore.Store)
	}{
		"one table": {1, func(t *testing.T) (*dynamotest.DB, *dynamostore.Store) {
			db := dynamotest.New(tableName)
			others(t, db, item{"pk": text("another"), "ttl": number(1)})
			return db, newStore(t, db, strong)
		}},
		"two tables": {0, func(t *testing.T) (*dynamotest.DB, *dynamostore.Store) {
			db := dynamotest.New(tableName, chunkTable)
			return db, newStore(t, db, strong, inChunkTable)
		}},
		"shared table": {2, func(t *testing.T) (*dynamotest.DB, *dynamostore.Store) {
			db := dynamotest.New()
			engine.CreateShared(t, db, tableName)
			for _, name := range []string{"another", "like#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
				others(t, db, item{"PK": text(name), "SK": text(name), "expires_at": number(1), "wid": aVersion()})
			}
			return db, newStore(t, db, strong, engine.SharedLayout)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := row.open(t)
			ids := expiredRecords(t, s, 0, time.Hour)
			running := leftRunning(t, s, 1)
			limited := waiting(t, s, 1, func(_ int, r *driver.Record) {
				r.State, r.LeaseEnd, r.Expires = driver.StateInProgress, noon, noon
			})
			if _, err := s.PutChunks(t.Context(), ids[0], newVersion(), make([]byte, 10), noon); err != nil {
				t.Fatal(err)
			}
			items := func() (n int) {
				for _, table := range []string{tableName, chunkTable} {
					if out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table)}); err == nil {
						n += len(out.Items)
					}
				}
				return n
			}
			bookmarks := 1
			if name == "two tables" {
				bookmarks = 2
			}
			for _, step := range []struct {
				at            time.Duration
				deleted, left int
				passed        []idempotent.RecordID
			}{
				{time.Hour, 0, 5, slices.Concat(running, limited)}, // may be deleted after this second
				{26 * time.Hour, 4, 1, running},
			} {
				p := &passed{}
				scanned := abandoned(t, s, noon.Add(step.at), p)
				if left := items() - row.others - bookmarks; scanned.Deleted != step.deleted || left != step.left {
					t.Errorf("after %s: %d deleted, %d items left; want %d and %d", step.at, scanned.Deleted, left, step.deleted, step.left)
				}
				p.want(t, step.at.String(), step.passed...)
			}
		})
	}
}

// others writes an item that is not the store's.
func others(t *testing.T, db dynamostore.Client, it item) {
	t.Helper()
	if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(tableName), Item: it}); err != nil {
		t.Fatal(err)
	}
}

// A pass goes through both tables at a time, and its result is that of both. What
// another store keeps in the table of the chunks is not passed.
func TestAbandoned_BothTables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := dynamotest.New(tableName, chunkTable)
		var denied bool
		client := dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
			in, ok := c.In.(*dynamodb.ScanInput)
			if !ok {
				c.Do(ctx)
				return
			}
			time.Sleep(time.Second)
			if *in.TableName == tableName {
				c.Do(ctx)
				c.Out.(*dynamodb.ScanOutput).ConsumedCapacity.CapacityUnits = aws.Float64(3)
				return
			}
			if time.Sleep(time.Second); denied {
				c.Err = operationError("Scan", errDenied)
				return
			}
			c.Do(ctx)
			c.Out.(*dynamodb.ScanOutput).ConsumedCapacity.CapacityUnits = aws.Float64(40)
		})
		s := newStore(t, client, strong, inChunkTable)
		other := newStore(t, dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
			c.In.(*dynamodb.PutItemInput).TableName = aws.String(chunkTable)
			c.Do(ctx)
		}))
		mine := leftRunning(t, s, 2)
		leftRunning(t, other, 1)
		if _, err := s.PutChunks(t.Context(), mine[0], newVersion(), make([]byte, 10), noon); err != nil {
			t.Fatal(err)
		}
		broken := item{"pk": text("#scan"), "v": number(1)}
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(chunkTable), Item: broken}); err != nil {
			t.Fatal(err)
		}

		p, began := &passed{}, time.Now()
		scanned := abandoned(t, s, noon.Add(26*time.Hour), p)
		if p.want(t, "the pass", mine...); time.Since(began) != 2*time.Second {
			t.Errorf("it took %s, want the time of the slower table", time.Since(began))
		}
		if scanned.Items != 3+3 || scanned.ReadUnits != 43 || scanned.Deleted != 1 || scanned.Replaced == "" || scanned.Late {
			t.Errorf("got %+v", scanned)
		}

		denied = true
		for _, at := range []time.Duration{60 * time.Hour, 90 * time.Hour} {
			scanned, err := s.Abandoned(t.Context(), noon.Add(at), (&passed{}).handle)
			if err == nil || !strings.Contains(err.Error(), chunkTable) || scanned.Late != (at == 90*time.Hour) || scanned.Replaced != "" {
				t.Errorf("at %s: %+v, %v; want an error that names the table", at, scanned, err)
			}
		}
	})
}

// In a table in one region, DynamoDB deletes the items.
func TestAbandoned_LeavesExpiredToDynamoDB(t *testing.T) {
	t.Parallel()
	fake := newFake() // without a chunk table, which no pass reads
	s := newStore(t, fake, inChunkTable)
	expiredRecords(t, s, 0)
	if scanned := abandoned(t, s, noon.Add(100*time.Hour), &passed{}); scanned.Deleted != 0 || fake.count("DeleteItem") != 0 {
		t.Errorf("%d deleted", scanned.Deleted)
	}
}

// An item that is renewed between the scan and its deletion stays: under another
// version, and under the same one with an expiry that is not before now.
func TestAbandoned_KeepsTheRenewed(t *testing.T) {
	t.Parallel()
	expires := func(it item) { it["ttl"] = number(noon.Add(2 * time.Hour).Unix()) }
	for name, renew := range map[string]func(item){
		"version": func(it item) { it["wid"] = aVersion() },
		"expiry":  expires,
		"a chunk": expires,
	} {
		fake := newFake()
		id := expiredRecords(t, newStore(t, fake), 0)[0]
		if name == "a chunk" {
			fake.remove(string(id))
			if _, err := newStore(t, fake).PutChunks(t.Context(), id, newVersion(), make([]byte, 10), noon.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			for key := range fake.all() {
				id = idempotent.RecordID(key)
			}
		}
		client := dynamotest.Intercept(fake, func(ctx context.Context, c *dynamotest.Call) {
			if c.Op == "DeleteItem" {
				fake.change(string(id), renew)
			}
			c.Do(ctx)
		})
		scanned := abandoned(t, newStore(t, client, strong), noon.Add(2*time.Hour), &passed{})
		if fake.item(string(id)) == nil || scanned.Deleted != 0 || fake.count("DeleteItem") != 1 || scanned.Ended.IsZero() {
			t.Errorf("%s: the record is gone, or the pass did not end: %+v", name, scanned)
		}
	}
}

// A throttled deletion ends the call without an error, and the next call goes on
// with the same page. Another failure is an error, reported once, and does not stop the
// search for abandoned runs. A conflict with another region that stays leaves the item.
func TestAbandoned_DeletionFails(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		failure error
		reports int
		calls   int // at most; 0: any number
		ended   bool
	}{
		{"throttled", &types.ProvisionedThroughputExceededException{}, 0, 1, false},
		{"denied", errDenied, 1, 10, true}, // ten begin at the same time
		{"another region writes it", replicatedConflict, 0, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			s := newStore(t, fake, strong)
			expiredRecords(t, s, make([]time.Duration, 20)...)
			runs := leftRunning(t, s, 5)
			fake.refuse = refusing("DeleteItem", row.failure)
			p := &passed{}
			scanned, err := s.Abandoned(t.Context(), noon.Add(2*time.Hour), p.handle)
			if scanned.Ended.IsZero() == row.ended || strings.Count(fmt.Sprint(err), "allow dynamodb:DeleteItem") != row.reports || row.reports == 0 && err != nil {
				t.Errorf("%s: %+v, %v", row.name, scanned, err)
			}
			if row.ended {
				p.want(t, row.name, runs...)
			}
			if calls := fake.count("DeleteItem"); calls == 0 || row.calls > 0 && calls > row.calls {
				t.Errorf("%s: %d deletions", row.name, calls)
			}
			if reads := fake.count("GetItem"); reads != 1 { // of where the pass is, in its only table
				t.Errorf("%s: %d reads", row.name, reads)
			}
			fake.refuse = nil
			if next := abandoned(t, s, noon.Add(27*time.Hour), &passed{}); next.Deleted != 20 || next.Ended.IsZero() {
				t.Errorf("%s: then %+v", row.name, next)
			}
		})
	}
}

// Reconcilers of two regions write the position of the scan at the same moment: the
// one that is refused with a conflict tries again.
func TestAbandoned_ConflictOfRegions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		s := newStore(t, fake, strong)
		runs := leftRunning(t, s, 2)
		conflicts := 0
		fake.refuse = func(called string, _ int) error {
			if called == "PutItem" && conflicts < 2 {
				conflicts++
				return replicatedConflict
			}
			return nil
		}
		p := &passed{}
		abandoned(t, s, noon, p)
		if p.want(t, "after two conflicts", runs...); conflicts != 2 {
			t.Errorf("%d conflicts", conflicts)
		}
	})
}

// Deletions are at most 250 write units a second for each segment, and claims are not
// behind them. A reply without its units is taken as a usual one. A call that ends
// before all of a page are deleted reads the page again.
func TestAbandoned_DeletionsArePaced(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		segments int
		capacity *types.ConsumedCapacity
		want     time.Duration
	}{
		{1, &types.ConsumedCapacity{CapacityUnits: aws.Float64(50)}, 20 * time.Second},
		{4, &types.ConsumedCapacity{CapacityUnits: aws.Float64(50)}, 5 * time.Second},
		{1, nil, 400 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			expiredRecords(t, newStore(t, fake), make([]time.Duration, 100)...)
			client := dynamotest.Intercept(fake, func(ctx context.Context, c *dynamotest.Call) {
				switch c.Do(ctx); out := c.Out.(type) {
				case *dynamodb.DeleteItemOutput:
					out.ConsumedCapacity = row.capacity
				case *dynamodb.ScanOutput:
					out.ConsumedCapacity.CapacityUnits = nil // so that only deletions are paced
				}
			})
			s := newStore(t, client, strong, func(o *dynamostore.Options) { o.ScanSegments = row.segments })
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), row.want/2)
			defer cancel()
			half, err := s.Abandoned(ctx, noon.Add(2*time.Hour), (&passed{}).handle)
			if err != nil || half.Deleted < 30 || half.Deleted > 60 || !half.Ended.IsZero() {
				t.Errorf("%d segments: half of the time: %+v, %v", row.segments, half, err)
			}
			scanned := abandoned(t, s, noon.Add(2*time.Hour), &passed{})
			if took := time.Since(began); half.Deleted+scanned.Deleted != 100 || took < row.want*8/10 || took > row.want*11/10 {
				t.Errorf("%d segments: %s for %d and %d deletions, want about %s", row.segments, took, half.Deleted, scanned.Deleted, row.want)
			}
		})
	}
}
