// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/tabledef"
)

// leftRunning inserts n records of runs that were abandoned and are due at noon.
func leftRunning(t *testing.T, s *dynamostore.Store, n int) []idempotent.RecordID {
	t.Helper()
	return waiting(t, s, n, func(_ int, r *driver.Record) { r.State, r.LeaseEnd = driver.StateInProgress, noon })
}

// passed collects what a scan passes.
type passed struct {
	ids             []idempotent.RecordID
	pages           int
	limit           int // pages; 0: no limit
	empty, refusals int
}

func (p *passed) handle(page []driver.Listed) bool {
	if len(page) == 0 {
		p.empty++
	}
	if p.limit > 0 && p.pages == p.limit {
		p.refusals++
		return false
	}
	p.pages++
	for _, e := range page {
		p.ids = append(p.ids, e.ID)
	}
	return true
}

func (p *passed) want(t *testing.T, what string, want ...idempotent.RecordID) {
	t.Helper()
	slices.Sort(p.ids)
	slices.Sort(want)
	if !slices.Equal(p.ids, want) {
		t.Errorf("%s: %d records were passed, want %d", what, len(p.ids), len(want))
	}
	if p.empty > 0 {
		t.Errorf("%s: %d empty pages were passed", what, p.empty)
	}
}

// abandoned makes a call that must succeed.
func abandoned(t *testing.T, s *dynamostore.Store, now time.Time, p *passed) driver.Scanned {
	t.Helper()
	scanned, err := s.Abandoned(t.Context(), now, p.handle)
	if err != nil {
		t.Fatal(err)
	}
	return scanned
}

// A run that was killed right after its claim is found by the next run of the
// reconciler after its lease, and by the next request at once.
func TestReconciler_FindsAbandonedRuns(t *testing.T) {
	t.Parallel()
	for _, recovery := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume} {
		t.Run(recovery.String(), func(t *testing.T) {
			t.Parallel()
			db := dynamotest.New(tableName)
			clock := &idempotenttest.Clock{}
			asked := map[idempotent.RecordID]bool{}
			guard := func(client dynamostore.Client) *idempotent.Guard {
				g, err := idempotent.New(newStore(t, client), func(o *idempotent.Options) {
					o.Now, o.Logger, o.Recovery, o.Steps = clock.Now, slog.New(slog.DiscardHandler), recovery, []string{"charge"}
				})
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			key := func(id string) idempotent.Key {
				return idempotent.Key{Operation: "charge", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
			}
			claim := func(k idempotent.Key) {
				_, err := idempotent.Do(clock.Invocation(t.Context(), 10*time.Second), guard(claimOnly(db)), k, func(context.Context) (string, error) { return "ch_1", nil })
				if err != nil {
					t.Fatal(err) // the handler succeeded, and its outcome was not stored
				}
			}
			reconcile := idempotent.Reconciler(guard(db), map[string]idempotent.ResolveFunc{
				"charge": func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
					asked[r.ID] = true
					return idempotent.Later(time.Hour), nil
				},
			}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
			run := func() idempotent.Report {
				t.Helper()
				report, err := reconcile(clock.Invocation(t.Context(), time.Minute))
				if err != nil {
					t.Fatal(report, err)
				}
				return report
			}
			run() // a pass that finds nothing
			claim(key("one"))
			claim(key("two"))
			clock.Advance(24*time.Hour - time.Minute)
			if r := run(); r.Due != 0 || r.Pending != 0 {
				t.Errorf("before the next pass: %s", r)
			}
			clock.Advance(time.Minute)
			report := run()
			if found := report.MarkedUnknown + report.Released; found != 2 || report.Due != 2 || report.Pending+report.PendingReleased != 2 {
				t.Errorf("%s, %d and %d wait", report, report.Pending, report.PendingReleased)
			}
			clock.Advance(time.Minute)
			if report = run(); report.Due != 2 || len(asked) != 2 || report.Scan.Items != 0 {
				t.Errorf("a minute later: %s, %d asked, %d items read", report, len(asked), report.Scan.Items)
			}

			third := key("three")
			claim(third)
			clock.Advance(time.Minute)
			got, err := idempotent.Do(clock.Invocation(t.Context(), 10*time.Second), guard(db), third, func(context.Context) (string, error) { return "ch_2", nil })
			if again := recovery == idempotent.Resume; again != (got == "ch_2") || again == errors.As(err, new(*idempotent.UnresolvedError)) {
				t.Errorf("the next request got %q, %v", got, err)
			}
		})
	}
}

// A request that ends well never touches the index, whatever its recovery. Only an
// announced run is in it before its lease ends.
func TestRunning_IsNotInTheIndex(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	running := leftRunning(t, s, 2)
	announced := waiting(t, s, 2, func(_ int, r *driver.Record) {
		r.State, r.LeaseEnd, r.Announced = driver.StateInProgress, noon, true
	})
	unknown := waiting(t, s, 2, asTheyAre)
	wantIDs(t, "Due", s.Due(t.Context(), time.Time{}), slices.Concat(unknown, announced)...)
	wantIDs(t, "Running", s.Running(t.Context()), running...)
	whole := newStore(t, fake, noIndex)
	wantIDs(t, "without the index", whole.Due(t.Context(), time.Time{}), slices.Concat(unknown, announced, running)...)
	wantIDs(t, "Running without the index", whole.Running(t.Context()))
	if scanned, err := whole.Abandoned(t.Context(), noon, (&passed{}).handle); scanned != (driver.Scanned{}) || err != nil {
		t.Errorf("Abandoned without the index: %+v, %v; want no scan", scanned, err)
	}
	for _, id := range slices.Concat(running, announced) {
		listed := slices.Contains(announced, id)
		if _, inIndex := fake.item(string(id))[tabledef.IndexPartitionKey]; inIndex != listed {
			t.Errorf("a running record is announced: %t, and in the index: %t", listed, inIndex)
		}
		r, err := s.Get(t.Context(), id)
		if err != nil || !r.Due.Equal(noon) || r.Exhausted || r.Announced != listed {
			t.Errorf("got %+v, %v", r, err)
		}
	}
	// A transaction writes the record in the same way.
	guard, err := idempotent.New(s, func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"order"} })
	if err != nil {
		t.Fatal(err)
	}
	key := idempotent.Key{Operation: "order", Scope: "acme", ID: "1", Fingerprint: idempotent.FingerprintBytes(nil)}
	if _, err := idempotent.Do(t.Context(), guard, key, func(ctx context.Context) (string, error) {
		return dynamostore.CommitStep(ctx, "order", "done", types.TransactWriteItem{Put: &types.Put{TableName: aws.String("orders"), Item: item{"pk": text("o-1")}}})
	}); err != nil {
		t.Fatal(err)
	}
	puts := sent[dynamodb.PutItemInput](fake)
	for i, it := range []item{puts[len(puts)-2].Item, sent[dynamodb.TransactWriteItemsInput](fake)[0].TransactItems[0].Put.Item, puts[len(puts)-1].Item} {
		running := i < 2 // the claim and the step; then the outcome
		if it[tabledef.IndexPartitionKey] != nil || running != (it[tabledef.IndexSortKey] != nil) {
			t.Errorf("write %d of the run: %s", i, show(it))
		}
	}
}

// After a pass that found nothing the next one begins after the longest pause. After
// one that found a record it begins after an hour, and the pause doubles until then.
// Until a pass begins, a call only reads the bookmark. If the option changes, a pause
// that has begun gets shorter, but not longer.
func TestAbandoned_Pauses(t *testing.T) {
	t.Parallel()
	asItIs := func(*dynamostore.Options) {}
	for name, row := range map[string]struct {
		found  []bool // by each pass
		pauses []time.Duration
		option func(*dynamostore.Options)
	}{
		"nothing":            {[]bool{false, false}, []time.Duration{24 * time.Hour, 24 * time.Hour}, asItIs},
		"always something":   {[]bool{true, true}, []time.Duration{time.Hour, time.Hour}, asItIs},
		"something at once":  {[]bool{true, false, false, true, false}, []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, time.Hour, 2 * time.Hour}, asItIs},
		"up to the longest":  {[]bool{true, false, false, false, false, false, false}, []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour}, asItIs},
		"often":              {[]bool{false, true, false}, []time.Duration{time.Minute, time.Minute, time.Minute}, func(o *dynamostore.Options) { o.ScanEvery = time.Minute }},
		"beside other items": {[]bool{true, false}, []time.Duration{24 * time.Hour, 24 * time.Hour}, func(o *dynamostore.Options) { o.Prefix = "ONCE#" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake, prefix := newFake(), ""
			s := newStore(t, fake, row.option, func(o *dynamostore.Options) { prefix = o.Prefix })
			now := noon
			for i, found := range row.found {
				var left []idempotent.RecordID
				if found {
					left = leftRunning(t, s, 1)
				}
				p := &passed{}
				if scanned := abandoned(t, s, now, p); !scanned.Began.Equal(now) || !scanned.Ended.Equal(now) {
					t.Errorf("pass %d at %s: %+v", i, now, scanned)
				}
				p.want(t, "pass "+strconv.Itoa(i), left...)
				for _, id := range left {
					fake.remove(prefix + string(id))
				}
				scans, puts := fake.count("Scan"), fake.count("PutItem")
				if scanned := abandoned(t, s, now.Add(row.pauses[i]-time.Millisecond), p); scanned.Items != 0 || !scanned.Ended.Equal(now) ||
					fake.count("Scan") != scans || fake.count("PutItem") != puts {
					t.Errorf("before pass %d: %+v", i+1, scanned)
				}
				now = now.Add(row.pauses[i])
			}
			last := row.pauses[len(row.pauses)-1]
			bookmark := fake.item(prefix + tabledef.ScanKey)
			for every, begins := range map[time.Duration]time.Time{time.Second: now.Add(time.Second - last), 100 * time.Hour: now} {
				fake.store(bookmark)
				other := newStore(t, fake, row.option, func(o *dynamostore.Options) { o.ScanEvery = every })
				if scanned := abandoned(t, other, begins, &passed{}); !scanned.Began.Equal(begins) {
					t.Errorf("with another option, %s: %+v, want a pass that begins at %s", every, scanned, begins)
				}
			}
		})
	}
}

// A pass that found something in an earlier call is one that found something.
func TestAbandoned_PausesAfterSeveralCalls(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake, func(o *dynamostore.Options) { o.ScanSegments = 5 })
	ids := leftRunning(t, s, 20)
	p := &passed{limit: 1}
	abandoned(t, s, noon, p)
	for _, id := range ids {
		fake.remove(string(id))
	}
	if p.limit = 0; len(p.ids) == 0 || abandoned(t, s, noon, p).Ended.IsZero() || len(p.ids) == len(ids) {
		t.Errorf("%d of %d records were passed", len(p.ids), len(ids))
	}
	next := noon.Add(time.Hour)
	if scanned := abandoned(t, s, next, p); !scanned.Began.Equal(next) {
		t.Errorf("the next pass began at %s, want %s", scanned.Began, next)
	}
}

// BeginScan ends the pause, but does not interrupt a pass. LastScan shows both times.
func TestBeginScan(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	if begins, err := s.BeginScan(t.Context(), noon); !begins || err != nil || fake.count("PutItem") > 0 {
		t.Errorf("before the first pass: begins: %t, %v, %d writes", begins, err, fake.count("PutItem"))
	}
	p := &passed{}
	abandoned(t, s, noon, p)
	ids := leftRunning(t, s, 9)
	begin := func(want bool) {
		t.Helper()
		if begins, err := s.BeginScan(t.Context(), noon.Add(time.Minute)); begins != want || err != nil {
			t.Errorf("begins: %t, %v, want %t", begins, err, want)
		}
	}
	last := func(began, ended time.Time) {
		t.Helper()
		if got, err := s.LastScan(t.Context()); err != nil || !got.Began.Equal(began) || !got.Ended.Equal(ended) {
			t.Errorf("the last scan is %+v, %v, want one from %s to %s", got, err, began, ended)
		}
	}
	last(noon, noon)
	begin(true)
	begin(true)
	last(noon, noon)
	if p.limit = 1; !abandoned(t, s, noon.Add(time.Minute), p).Ended.Equal(noon) {
		t.Error("the end of the last pass is lost")
	}
	last(noon.Add(time.Minute), noon)
	begin(false)
	p.limit = 0
	abandoned(t, s, noon.Add(time.Minute), p)
	p.want(t, "both calls", ids...)
	for _, id := range ids {
		fake.remove(string(id))
	}
	fake.change("#scan", func(it item) { it["next"] = number(1) })
	begin(true)
	last(noon.Add(time.Minute), time.Time{})
	if scanned := abandoned(t, s, noon.Add(time.Hour), p); scanned.Replaced == "" { // finds nothing, so the pause is the longest
		t.Errorf("a damaged position is not reported: %+v", scanned)
	}
	abandoned(t, s, noon.Add(20*time.Hour), p)
	last(noon.Add(time.Hour), noon.Add(time.Hour))
	fake.refuse = refusing("GetItem", errDenied)
	if begins, err := s.BeginScan(t.Context(), noon); begins || err == nil {
		t.Errorf("begins: %t, %v", begins, err)
	}
	if got, err := s.LastScan(t.Context()); got != (driver.Scanned{}) || err == nil {
		t.Errorf("the last scan is %+v, %v", got, err)
	}
	if begins, err := newStore(t, newFake()).BeginScan(t.Context(), noon); !begins || err != nil {
		t.Errorf("in a new table it begins: %t, %v", begins, err)
	}
}

// Only one call reads at a time. After a call that was killed, the next one
// continues where the killed one began.
func TestAbandoned_OneAtATime(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	ids := leftRunning(t, s, 10)
	others := &passed{}
	// The reservation lasts until the time of the call ends, and 5 s more. A call reads
	// for 15 minutes at most.
	for given, reserved := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Hour: 15 * time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		p := &passed{}
		if scanned, err := s.Abandoned(ctx, noon, func(page []driver.Listed) bool {
			until := time.UnixMilli(int64(floatOf(fake.item("#scan")["until"]))).Sub(noon)
			if until < reserved || until > reserved+5*time.Second {
				t.Errorf("a call with %s has reserved the pass for %s", given, until)
			}
			if scanned := abandoned(t, newStore(t, fake), noon.Add(time.Second), others); scanned.Replaced != "" {
				t.Errorf("another call meanwhile has replaced the position: %s", scanned.Replaced)
			}
			return p.handle(page)
		}); err != nil || scanned.Replaced != "" {
			t.Fatal(scanned, err)
		}
		p.want(t, "the first call", ids...)
		others.want(t, "another call meanwhile")
		fake.remove("#scan") // the next pass begins at once
	}

	// A process that was killed in its first page leaves the reservation.
	fake.refuse = refusing("Scan", validation("no"))
	if _, err := s.Abandoned(t.Context(), noon, others.handle); err == nil || !strings.Contains(err.Error(), "Scan on table") {
		t.Errorf("a refused scan: %v", err)
	}
	fake.refuse = nil
	fake.change("#scan", func(it item) { it["until"] = number(noon.Add(time.Minute).UnixMilli()) })
	abandoned(t, s, noon.Add(time.Minute-time.Millisecond), others)
	others.want(t, "while another call has reserved the pass")
	abandoned(t, s, noon.Add(time.Minute), others)
	others.want(t, "after the reservation", ids...)
}

// Full pages, of 1 MB each, are spread evenly, whichever segments they are from. A call without
// the time to wait for the next page ends at once, and so does a call whose read is
// throttled while other segments wait.
func TestAbandoned_PaceOfFullPages(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		segments int
		every    time.Duration
	}{
		{1, 128 * time.Millisecond}, {2, 64 * time.Millisecond}, {4, 32 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			s := newStore(t, billing(fake, &types.ConsumedCapacity{CapacityUnits: aws.Float64(128)}), func(o *dynamostore.Options) { o.ScanSegments = row.segments })
			leftRunning(t, s, 30)
			// call makes a call that begins a pass, and returns its pages and its time.
			now := noon
			call := func(ctx context.Context) (pages int, took time.Duration) {
				before, began := fake.count("Scan"), time.Now()
				if _, err := s.Abandoned(ctx, now, (&passed{}).handle); err != nil {
					t.Error(err)
				}
				now = now.Add(time.Hour)
				return fake.count("Scan") - before, time.Since(began)
			}
			if pages, took := call(t.Context()); pages < 10 || took != time.Duration(pages-1)*row.every {
				t.Errorf("%+v: %d pages took %s", row, pages, took)
			}

			ctx, cancel := context.WithTimeout(t.Context(), row.every)
			defer cancel()
			if pages, took := call(ctx); pages != 1 || took != 0 {
				t.Errorf("%+v: with time for one page, %d pages took %s", row, pages, took)
			}

			fake.remove("#scan")
			fake.refuse = refusing("Scan", &types.ProvisionedThroughputExceededException{})
			if pages, took := call(t.Context()); pages != 1 || took != 0 {
				t.Errorf("%+v: a throttled call read %d pages in %s", row, pages, took)
			}
		})
	}
}

// After handle returned false, it gets no page that another segment had read
// already.
func TestAbandoned_RefusedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake, replies := newFake(), sync.WaitGroup{}
		replies.Add(2)
		s := newStore(t, dynamotest.Intercept(fake, func(ctx context.Context, c *dynamotest.Call) {
			if c.Do(ctx); c.Op == "Scan" { // the replies of both scans arrive at the same moment
				replies.Done()
				replies.Wait()
			}
		}), func(o *dynamostore.Options) { o.ScanSegments = 2 })
		leftRunning(t, s, 30)
		handled := 0
		if _, err := s.Abandoned(t.Context(), noon, func([]driver.Listed) bool { handled++; return false }); err != nil {
			t.Fatal(err)
		}
		if handled != 1 || fake.count("Scan") != 2 {
			t.Errorf("%d of %d pages were passed", handled, fake.count("Scan"))
		}
	})
}

// Of two calls that read the bookmark at the same moment, one reads the table.
func TestAbandoned_Race(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	leftRunning(t, s, 2)
	abandoned(t, s, noon, &passed{})
	fake.refuse = func(operation string, _ int) error {
		if operation == "PutItem" {
			fake.change("#scan", func(it item) { it["wid"] = &types.AttributeValueMemberB{Value: make([]byte, 16)} })
		}
		return nil
	}
	p, scans := &passed{}, fake.count("Scan")
	abandoned(t, s, noon.Add(time.Hour), p)
	if p.want(t, "the slower call"); fake.count("Scan") != scans {
		t.Error("the slower call read the table")
	}
}

// A call whose bookmark was written by a request whose reply was lost knows it for its
// own: it reads, and the next call does not read the same pages again.
func TestAbandoned_LostReply(t *testing.T) {
	t.Parallel()
	fake := newFake()
	ids := leftRunning(t, newStore(t, fake), 2)
	s := newStore(t, dynamotest.Intercept(fake, func(ctx context.Context, c *dynamotest.Call) {
		if c.Do(ctx); c.Op == "PutItem" && c.Err == nil { // the reply is lost, and the SDK sends the request again
			c.Do(ctx)
		}
	}))
	p := &passed{}
	abandoned(t, s, noon, p)
	p.want(t, "the call", ids...)
	scans := fake.count("Scan")
	if abandoned(t, s, noon.Add(time.Minute), p); fake.count("Scan") != scans {
		t.Error("the next call read the table again")
	}
	// An endpoint that does not return the item leaves it open whose write it was.
	fake.forgetful = true
	if abandoned(t, s, noon.Add(time.Hour), p); fake.count("Scan") != scans {
		t.Error("a call whose bookmark may be another's read the table")
	}
}

// A call whose context ends in one of its requests ends without an error, and the
// next one reads the page. Replies need not report read units.
func TestAbandoned_ContextEnds(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GetItem", "PutItem", "Scan"} {
		fake := newFake()
		s := newStore(t, billing(fake, nil))
		ids := leftRunning(t, s, 2)
		ctx, cancel := context.WithCancel(t.Context())
		fake.refuse = func(operation string, _ int) error {
			if operation == request {
				cancel()
				return context.Canceled
			}
			return nil
		}
		p := &passed{}
		if _, err := s.Abandoned(ctx, noon, p.handle); err != nil {
			t.Errorf("%s: the call ended with %v", request, err)
		}
		fake.refuse = nil
		if scanned := abandoned(t, s, noon, p); scanned.ReadUnits != 0 || scanned.Items < 2 {
			t.Errorf("%s: the next call: %+v", request, scanned)
		}
		p.want(t, request, ids...)
	}
}

// A throttled read ends the call without an error, and the next one continues. The pause
// after a pass is short if one of its calls has found a run.
func TestAbandoned_FoundByOneCall(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{true, false} {
		fake := newFake()
		s := newStore(t, fake, func(o *dynamostore.Options) { o.ScanSegments = 1 })
		fake.refuse = refusing("Scan", &types.ProvisionedThroughputExceededException{}, 2)
		var ids []idempotent.RecordID
		if found {
			ids = leftRunning(t, s, 9)
		} else {
			expiredRecords(t, s, make([]time.Duration, 9)...)
		}
		p := &passed{}
		if abandoned(t, s, noon, p); found && len(p.ids) == 0 || len(p.ids) >= 9 {
			t.Errorf("%d records before the throttle", len(p.ids))
		}
		for _, id := range p.ids {
			fake.remove(string(id))
		}
		if scanned := abandoned(t, s, noon.Add(16*time.Minute), p); scanned.Late {
			t.Errorf("at the end of the pass: %+v", scanned)
		}
		p.want(t, "both calls", ids...)
		for _, id := range ids {
			fake.remove(string(id))
		}
		after := noon.Add(16*time.Minute + time.Hour)
		if scanned := abandoned(t, s, after, &passed{}); scanned.Began.Equal(after) != found {
			t.Errorf("found %t: %+v", found, scanned)
		}
	}
}

// A pass that takes longer than the interval is late.
func TestAbandoned_Late(t *testing.T) {
	t.Parallel()
	s := newStore(t, newFake(), func(o *dynamostore.Options) { o.ScanEvery = time.Hour })
	leftRunning(t, s, 9)
	p := &passed{limit: 1}
	if scanned := abandoned(t, s, noon, p); scanned.Late {
		t.Errorf("at its begin: %+v", scanned)
	}
	p.pages = 0
	if scanned := abandoned(t, s, noon.Add(time.Hour), p); scanned.Late {
		t.Errorf("after exactly the interval: %+v", scanned)
	}
	p.pages = 0
	if scanned := abandoned(t, s, noon.Add(time.Hour+time.Millisecond), p); !scanned.Late || !scanned.Began.Equal(noon) {
		t.Errorf("after more than the interval: %+v", scanned)
	}
}

func TestAbandoned_Off(t *testing.T) {
	t.Parallel()
	fake := newFake()
	leftRunning(t, newStore(t, fake), 1)
	p := &passed{}
	abandoned(t, newStore(t, fake, func(o *dynamostore.Options) { o.ScanEvery = -1 }), noon, p)
	if len(p.ids) > 0 || fake.count("GetItem")+fake.count("Scan") > 0 {
		t.Errorf("found %v with %d calls", p.ids, fake.count("GetItem")+fake.count("Scan"))
	}
}

func TestAbandoned_Errors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		refuse func(operation string, n int) error
		change func(item)
		want   string
	}{
		"GetItem":       {refusing("GetItem", errDenied), nil, "GetItem on table"},
		"reserve":       {refusing("PutItem", errDenied, 5), nil, "PutItem on table"},
		"save":          {refusing("PutItem", errDenied, 6), nil, "PutItem on table"},
		"Scan":          {refusing("Scan", errDenied), nil, "allow dynamodb:Scan"},
		"later version": {nil, func(it item) { it["v"] = number(77) }, "bookmark"},
	} {
		fake := newFake()
		s := newStore(t, fake)
		leftRunning(t, s, 2)
		abandoned(t, s, noon, &passed{})
		if fake.refuse = row.refuse; row.change != nil {
			fake.change("#scan", row.change)
		}
		if _, err := s.Abandoned(t.Context(), noon.Add(time.Hour), (&passed{}).handle); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %q", name, err, row.want)
		}
	}
}

// A position that cannot be used is replaced by a new pass, which finds every run
// and is not late. Another call that has read the same position does not read.
func TestAbandoned_PositionReplaced(t *testing.T) {
	t.Parallel()
	key := func(names ...string) *types.AttributeValueMemberM {
		m := &types.AttributeValueMemberM{Value: item{}}
		for _, name := range names {
			m.Value[name] = &types.AttributeValueMemberS{Value: "x"}
		}
		return m
	}
	next := func(values ...types.AttributeValue) func(item) {
		return func(it item) { it["next"] = &types.AttributeValueMemberL{Value: values} }
	}
	last := noon.Add(time.Hour)
	ahead := func(name string, by time.Duration) func(item) {
		return func(it item) { it[name] = number(last.Add(by).UnixMilli()) }
	}
	for name, row := range map[string]struct {
		change func(item)
		want   string // part of what is wrong; empty: it is used
	}{
		"no list":                    {func(it item) { it["next"] = number(1) }, "next is not a list"},
		"an entry of another type":   {next(number(1)), "next has an entry"},
		"a key of another table":     {next(key("id")), "next has an entry"},
		"a key and more":             {next(key("pk", "sk")), "next has an entry"},
		"a key":                      {next(key("pk")), ""},
		"no format":                  {func(it item) { delete(it, "v") }, "attribute v"},
		"a format that is no number": {func(it item) { it["v"] = &types.AttributeValueMemberS{Value: "1"} }, "attribute v"},
		"no write id":                {func(it item) { delete(it, "wid") }, "attribute wid"},
		"a write id of another type": {func(it item) { it["wid"] = number(1) }, "attribute wid"},
		"no time":                    {func(it item) { delete(it, "began") }, "attribute began"},
		"a pause that is text":       {func(it item) { it["pause"] = &types.AttributeValueMemberS{Value: "x"} }, "attribute pause"},
		"ended in the future":        {ahead("ended", time.Minute+time.Millisecond), "ended in the future"},
		"ended by a clock ahead":     {ahead("ended", time.Minute), ""},
		"begun in the future":        {ahead("began", time.Minute+time.Millisecond), "in the future"},
		"begun by a clock ahead":     {ahead("began", time.Minute), ""},
		"reserved for too long":      {ahead("until", 16*time.Minute+5*time.Second+time.Millisecond), "reserved"},
		"reserved by a clock ahead":  {ahead("until", 16*time.Minute+5*time.Second), ""},
		"a reservation that is text": {func(it item) { it["until"] = &types.AttributeValueMemberS{Value: "x"} }, "attribute until"},
		"not changed":                {func(item) {}, ""},
		"a write id, and nothing else": {func(it item) {
			for name := range it {
				if name != "pk" && name != "wid" {
					delete(it, name)
				}
			}
		}, "attribute v"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFake()
			s := newStore(t, fake)
			ids := leftRunning(t, s, 2)
			abandoned(t, s, noon, &passed{})
			fake.change(tabledef.ScanKey, row.change)
			if row.want == "" {
				if scanned := abandoned(t, s, last, &passed{}); scanned.Replaced != "" {
					t.Errorf("replaced: %+v", scanned)
				}
				return
			}
			slower, faster := &passed{}, &passed{}
			var first driver.Scanned
			fake.refuse = func(operation string, _ int) error {
				if operation == "PutItem" {
					fake.refuse = nil
					first = abandoned(t, s, last, faster)
				}
				return nil
			}
			if second := abandoned(t, s, last, slower); len(slower.ids) > 0 || second.Replaced != "" || second.Late {
				t.Errorf("the slower call found %v: %+v", slower.ids, second)
			}
			faster.want(t, "the faster call", ids...)
			if !strings.Contains(first.Replaced, row.want) || first.Late || !first.Began.Equal(last) {
				t.Errorf("the faster call: %+v, want %q", first, row.want)
			}
		})
	}
}

// claimOnly returns a client that makes one PutItem, the claim, and no later one.
func claimOnly(db *dynamotest.DB) dynamostore.Client {
	claimed := false
	return dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "PutItem" && claimed {
			c.Err = errors.New("killed")
			return
		}
		claimed = claimed || c.Op == "PutItem"
		c.Do(ctx)
	})
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
