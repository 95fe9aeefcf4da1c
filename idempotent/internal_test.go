// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Each pause is twice the one before, up to the longest.
func TestReconcilePause(t *testing.T) {
	r := &reconciler{opts: ReconcileOptions{Backoff: time.Minute, MaxBackoff: 5 * time.Minute}}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		if got := r.pause(i + 1); got != want {
			t.Errorf("after %d calls: %s, want %s", i+1, got, want)
		}
	}
}

// A step or a downstream key outside a guarded handler is logged once per process.
// The test is not parallel, because it replaces the output of the default logger.
func TestStepWithoutExecutionIsLogged(t *testing.T) {
	defer log.SetOutput(log.Writer())
	for name, use := range map[string]func(context.Context){
		"Step": func(ctx context.Context) {
			if _, err := Step(ctx, "a", func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Error(err)
			}
		},
		"DownstreamKey": func(ctx context.Context) { DownstreamKey(ctx) },
	} {
		var logged strings.Builder
		log.SetOutput(&logged)
		warnedOutside.Store(false)
		use(withExecution(t.Context(), nil)) // as in a handler that a guard runs unguarded
		if logged.Len() != 0 {
			t.Errorf("%s in an unguarded handler: logged %q", name, &logged)
		}
		for range 2 {
			if use(t.Context()); strings.Count(logged.String(), name+" was called") != 1 {
				t.Errorf("%s: logged %q", name, &logged)
			}
		}
	}
}

// Records store times in UTC and in whole milliseconds. The logger is the default one.
func TestNow(t *testing.T) {
	t.Parallel()
	given := time.Date(2026, 11, 22, 10, 30, 0, 123_456_789, time.FixedZone("", 3600))
	o := Options{Now: func() time.Time { return given }}
	if got, want := o.now(), time.Date(2026, 11, 22, 9, 30, 0, 123_000_000, time.UTC); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if o.logger() != slog.Default() {
		t.Error("the logger is another one")
	}
}

// A key takes memory only while requests wait for it.
func TestWaitingForgetsKeys(t *testing.T) {
	t.Parallel()
	g := new(Guard)
	first, second := g.join("a"), g.join("a")
	first()
	if waits := g.waiting.count; len(waits) != 1 || waits["a"] != 1 {
		t.Errorf("one of two requests has left: %v", waits)
	}
	second()
	if waits := g.waiting.count; len(waits) != 0 {
		t.Errorf("both have left: %v", waits)
	}
}

func completedRecord(id string, v byte, bytes int) *driver.Record {
	return &driver.Record{ID: RecordID(id), State: driver.StateCompleted, Version: driver.Version{v}, Result: make([]byte, bytes), Expires: at.Add(time.Minute)}
}

func cacheOf(entries, bytes int) *cache {
	return newCache(&Options{CacheEntries: entries, CacheBytes: bytes, CacheAge: time.Hour})
}

// FM38: a record that expired is dropped, to the millisecond, and frees its
// space.
func TestCacheDropsWhatHasExpired(t *testing.T) {
	t.Parallel()
	c := cacheOf(8, 1<<20)
	c.put(completedRecord("a", 1, 1), at)
	if c.get("a", at.Add(time.Minute-ms)) == nil {
		t.Error("the record was dropped too early")
	}
	if c.get("a", at.Add(time.Minute)) != nil || len(c.records) != 0 || c.held != 0 {
		t.Errorf("the record is still there: %d records, %d bytes", len(c.records), c.held)
	}
}

// The cache holds exactly as many bytes as its limit.
func TestCacheIsFilledToTheByte(t *testing.T) {
	t.Parallel()
	one := size(completedRecord("", 0, 100))
	c := cacheOf(8, 2*one)
	c.put(completedRecord("a", 1, 100), at)
	c.put(completedRecord("b", 1, 100), at)
	if c.get("a", at) == nil || c.get("b", at) == nil {
		t.Error("two records that exactly fill the cache were not both stored")
	}
	c.put(completedRecord("c", 1, 101), at)
	if c.get("c", at) == nil || c.held > 2*one {
		t.Errorf("%d bytes of %d are held", c.held, 2*one)
	}
	whole := cacheOf(8, one)
	whole.put(completedRecord("a", 1, 100), at)
	if whole.get("a", at) == nil {
		t.Error("a record as large as the cache was not stored")
	}
	whole.put(completedRecord("b", 1, 101), at)
	if whole.get("b", at) != nil || whole.get("a", at) == nil {
		t.Error("a record larger than the cache was stored, or evicted another")
	}
}

// A record that was written again replaces the earlier version.
func TestCacheKeepsTheLatestVersion(t *testing.T) {
	t.Parallel()
	c := cacheOf(2, 1<<20)
	for v := range byte(5) {
		c.put(completedRecord("a", v, int(v)), at)
		if got := c.get("a", at); got == nil || got.Version != (driver.Version{v}) {
			t.Fatalf("got %+v, want version %d", got, v)
		}
		if len(c.records) != 1 || c.recent.Len() != 1 || c.held != size(completedRecord("a", v, int(v))) {
			t.Errorf("%d records, %d in order, %d bytes for one", len(c.records), c.recent.Len(), c.held)
		}
	}
	for i := range 10 {
		c.put(completedRecord(fmt.Sprint(i), 1, 1), at)
	}
	if len(c.records) != 2 || c.recent.Len() != 2 {
		t.Errorf("%d records, %d in order, want 2", len(c.records), c.recent.Len())
	}
}

// The counts of a run are those of its first entries, and what this and earlier runs
// have read behind them.
func TestProgressCounts(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	waits := func(pending, released, since int) Report {
		return Report{Pending: pending, PendingReleased: released, Oldest: at(since), OldestReleased: at(since), Operations: map[string]Waiting{"charge": {Pending: pending, Oldest: at(since)}}}
	}
	p := &progress{first: 10}
	for _, run := range []struct {
		name   string
		extent extent
		behind int // as the report counts
		since  int // the oldest
		listed bool
		next   time.Time
	}{
		{"the first run reads on", extent{entries: 15, behind: readsOn, passed: waits(5, 2, 30), last: at(1)}, 5, 30, true, at(1)},
		{"the first entries take its time", extent{entries: 10, behind: readsOn}, 5, 30, true, at(1)},
		{"another has no time for them", extent{entries: 9}, 5, 30, false, at(1)},
		{"the next one continues", extent{entries: 14, behind: readsContinue, passed: waits(4, 2, 20), last: at(2)}, 9, 20, true, at(2)},
		{"and comes to the end", extent{entries: 11, behind: readsContinue, passed: waits(1, 2, 30), last: at(3), toEnd: true}, 10, 20, true, time.Time{}},
		{"a new list begins", extent{entries: 12, behind: readsOn, passed: waits(2, 2, 30), last: at(1)}, 10, 20, true, at(1)},
		{"it is cut off", extent{entries: 9}, 10, 20, false, at(1)},
		{"it has become short", extent{entries: 9, toEnd: true}, 0, 40, true, time.Time{}},
		{"it has become long", extent{entries: 13, behind: readsOn, passed: waits(3, 2, 30), last: at(1)}, 3, 30, true, at(1)},
		{"the whole list is read", extent{entries: 12, behind: readsOn, passed: waits(2, 2, 30), last: at(2), toEnd: true}, 2, 30, true, time.Time{}},
		{"the first entries take its time again", extent{entries: 10, behind: readsOn}, 2, 30, true, time.Time{}},
		{"the run works on all that are behind", extent{entries: 12, behind: readsOn, toEnd: true}, 0, 40, true, time.Time{}},
		{"it does not come to the end", extent{entries: 11, behind: readsOn, passed: waits(1, 2, 30), last: at(1)}, 1, 30, true, at(1)},
	} {
		released := map[int]int{0: 0, 5: 2, 9: 4, 10: 6, 3: 2, 2: 2, 1: 2}[run.behind]
		got, want := waits(7, 1, 40), waits(7+run.behind, 1+released, run.since)
		p.count(&got, &run.extent)
		if got.Pending != want.Pending || got.PendingReleased != want.PendingReleased || !got.Oldest.Equal(want.Oldest) ||
			!got.OldestReleased.Equal(want.OldestReleased) || !maps.Equal(got.Operations, want.Operations) {
			t.Errorf("%s: counted %+v, want %+v", run.name, got, want)
		}
		if got.Listed != run.listed || !p.after().Equal(run.next) {
			t.Errorf("%s: listed %t, the next run continues after %s, want %t and %s", run.name, got.Listed, p.after(), run.listed, run.next)
		}
	}
	var empty Report
	if empty.add(&Report{}); !empty.Oldest.IsZero() || !empty.OldestReleased.IsZero() || empty.Operations != nil {
		t.Errorf("nothing and nothing is %+v", empty)
	}
}

// An outcome equals the stored one only if all of its parts are equal.
func TestOutcomeEquals(t *testing.T) {
	t.Parallel()
	result, other := []byte("ch_1"), []byte("ch_2")
	out := outcome{state: driver.StateCompleted, encoding: "json", result: result}
	stands := driver.Record{State: driver.StateCompleted, Encoding: "json", Result: result}
	beside := func(data []byte) func(*driver.Record) {
		return func(r *driver.Record) {
			r.Result, r.Chunks = nil, driver.Chunks{Count: 1, Length: len(data), Sum: sha256.Sum256(data)}
		}
	}
	for _, row := range []struct {
		name   string
		change func(*driver.Record)
		want   bool
	}{
		{"as it is", func(*driver.Record) {}, true},
		{"another reason", func(r *driver.Record) { r.Reason = driver.ReasonResolved }, true},
		{"another state", func(r *driver.Record) { r.State = driver.StateUnknown }, false},
		{"another encoding", func(r *driver.Record) { r.Encoding = "final" }, false},
		{"another result", func(r *driver.Record) { r.Result = other }, false},
		{"beside the record", beside(result), true},
		{"another one beside the record", beside(other), false},
		{"another encoding beside the record", func(r *driver.Record) { beside(result)(r); r.Encoding = "final" }, false},
	} {
		r := stands
		row.change(&r)
		if got := out.equals(&r); got != row.want {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
	}
}

// Chunks match data only if its length and its sum are equal.
func TestChunksMatch(t *testing.T) {
	t.Parallel()
	data := []byte("result")
	c := driver.Chunks{Count: 1, Length: len(data), Sum: sha256.Sum256(data)}
	if !matches(c, data) {
		t.Error("the data does not match itself")
	}
	if matches(c, []byte("Result")) || matches(c, data[:5]) || matches(c, nil) {
		t.Error("other data matches")
	}
	c.Length++
	if matches(c, data) {
		t.Error("data whose length differs from the record matches")
	}
}

type noChunks struct{ driver.ChunkStore }

// Only large results go beside the record, once, and if the store supports it.
func TestKeepsBeside(t *testing.T) {
	t.Parallel()
	room, none := &Guard{chunks: noChunks{}}, &Guard{}
	for _, row := range []struct {
		name string
		g    *Guard
		out  outcome
		want bool
	}{
		{"4 KB", room, outcome{result: make([]byte, 4<<10)}, false},
		{"a byte more", room, outcome{result: make([]byte, 4<<10+1)}, true},
		{"no room", none, outcome{result: make([]byte, 5<<10)}, false},
		{"nothing", room, outcome{}, false},
		{"already there", room, outcome{result: make([]byte, 5<<10), chunks: driver.Chunks{Count: 1}}, false},
	} {
		if got := row.g.keepsBeside(row.out); got != row.want {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
	}
}

// A large result may use two thirds of the time; the rest is for the record.
func TestLargeResultHasItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		var store timedChunks
		g := &Guard{chunks: &store}
		if _, err := g.putChunks(ctx, &driver.Record{}, outcome{result: make([]byte, 5<<10)}); err != nil || store.left != 6*time.Second {
			t.Errorf("%s of 9s, want 6s (%v)", store.left, err)
		}
		// Evidence may have a context that never ends.
		if _, err := g.putChunks(t.Context(), &driver.Record{}, outcome{result: make([]byte, 5<<10)}); err != nil {
			t.Errorf("without a deadline: %v", err)
		}
	})
}

// timedChunks records how much time a call has.
type timedChunks struct {
	driver.ChunkStore
	left time.Duration
}

func (c *timedChunks) PutChunks(ctx context.Context, _ RecordID, _ driver.Version, _ []byte, _ time.Time) (int, error) {
	if deadline, ok := ctx.Deadline(); ok {
		c.left = time.Until(deadline)
	}
	return 1, ctx.Err()
}

// Reading is how many entries a run of the following function reads before it works.
type Reading int

// Reconciler is the function of that name.
func (n Reading) Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	return reconcilerOf(&progress{first: int(n)}, g, resolvers, optFns)
}
