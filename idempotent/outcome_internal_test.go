// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/sha256"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

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

// An outcome can be written until the deadline, or after it for as long as the
// margin, even if the request's own context has ended.
func TestOutcomeContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.with(nil)
		if err != nil {
			t.Fatal(err)
		}
		for left, want := range map[time.Duration]time.Duration{
			10 * time.Second: 10 * time.Second,
			1:                1,
			0:                3 * time.Second,
			-time.Minute:     3 * time.Second,
		} {
			gone, end := context.WithCancel(t.Context())
			end()
			ctx, cancel := o.outcomeContext(gone, window{deadline: time.Now().Add(left)})
			deadline, ok := ctx.Deadline()
			if got := time.Until(deadline); !ok || got != want || ctx.Err() != nil {
				t.Errorf("%s before the deadline: %s left for the write, want %s (%v)", left, got, want, ctx.Err())
			}
			cancel()
		}
	})
}

// A step can be written until the handler's time ends, then for half of the time
// until the deadline, and after it for as long as the margin. The request's own
// context may have ended.
func TestStepContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.with(nil)
		if err != nil {
			t.Fatal(err)
		}
		gone, end := context.WithCancel(t.Context())
		end()
		for _, row := range []struct{ handler, deadline, want time.Duration }{
			{9500 * ms, 10 * time.Second, 9500 * ms},
			{1, 500*ms + 1, 1},
			{0, 500 * ms, 250 * ms},
			{-400 * ms, 100 * ms, 50 * ms},
			{-500 * ms, 0, 3 * time.Second},
			{-time.Minute, -50 * time.Second, 3 * time.Second},
		} {
			now := time.Now()
			ctx, cancel := o.stepContext(gone, window{handlerEnd: now.Add(row.handler), deadline: now.Add(row.deadline)})
			deadline, ok := ctx.Deadline()
			if got := deadline.Sub(now); !ok || got != row.want || ctx.Err() != nil {
				t.Errorf("%s before the handler's end: %s left for the write, want %s (%v)", row.handler, got, row.want, ctx.Err())
			}
			cancel()
		}
	})
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

// A lease ends in UTC, whatever the time zone of the deadline: stores and tests
// compare whole records.
func TestLeaseEndsInUTC(t *testing.T) {
	t.Parallel()
	o, err := Options{}.with(nil)
	if err != nil {
		t.Fatal(err)
	}
	zone := time.FixedZone("elsewhere", 3600)
	w := o.windowOf(deadlineContext{t.Context(), at.Add(time.Second).In(zone)}, at)
	if w.leaseEnd.Location() != time.UTC {
		t.Errorf("the lease ends at %v", w.leaseEnd)
	}
}
