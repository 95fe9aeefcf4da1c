// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"encoding/json"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// The error names each field that differs, and shortens what is long.
func TestSameRecord(t *testing.T) {
	t.Parallel()
	want := fullRecord()
	want.Result = []byte(strings.Repeat("a", 40))
	long, exact := `"`+strings.Repeat("a", 32)+`"… (40 bytes)`, `"`+strings.Repeat("a", 32)+`"`
	for _, row := range []struct {
		change func(*driver.Record)
		error  string // its begin; empty: no error
	}{
		{func(*driver.Record) {}, ""},
		{func(r *driver.Record) { r.Ref = "" }, "Ref is , want " + want.Ref},
		{func(r *driver.Record) { r.Result = nil }, "Result is absent, want " + long},
		{func(r *driver.Record) { r.Result = r.Result[:32] }, "Result is " + exact + ", want " + long},
		{func(r *driver.Record) { r.Result[39] = 'b' }, "Result is " + long + ", want " + long},
		{func(r *driver.Record) { r.Codec, r.Encoding = "", "" }, "Codec is , want " + want.Codec + "; Encoding is , want " + want.Encoding},
		{func(r *driver.Record) {
			r.SetExtra(map[string]map[string]json.RawMessage{"": {"later": []byte("1")}})
		}, `Extra is {"":{"later":1}}, want null`},
	} {
		got := want.Clone()
		row.change(got)
		const begin = "Get returned a record with wrong fields: "
		if err := sameRecord("Get returned", got, want); err == nil != (row.error == "") || err != nil && !strings.HasPrefix(err.Error(), begin+row.error) {
			t.Errorf("got error %v, want %s", err, row.error)
		}
	}
	if err := sameRecord("Get returned", nil, want); err == nil || !strings.HasPrefix(err.Error(), "Get returned no record, want a record (") {
		t.Errorf("no record: got error %v", err)
	}
}

// A full record has every precision of a store, and two of them differ.
func TestFullRecord(t *testing.T) {
	t.Parallel()
	seconds := map[int64]bool{}
	for range 100 {
		r := fullRecord()
		seconds[r.Since.Unix()] = true
		last := time.Now().Add(-time.Hour)
		for _, at := range []time.Time{r.OpenSince, r.Steps[0].At, r.Steps[1].At, r.Created, r.Since, r.LeaseEnd, r.Due, r.Expires} {
			if !at.After(last) || at.Equal(at.Truncate(time.Second)) || !at.Equal(at.Truncate(time.Millisecond)) || at.Location() != time.UTC {
				t.Errorf("%s follows %s", at, last)
			}
			last = at
		}
		if !last.After(time.Now().Add(time.Hour)) || r.Retention%time.Millisecond != 0 || r.UnresolvedRetention%time.Millisecond != 0 {
			t.Errorf("it expires at %s, and is kept for %s and %s", last, r.Retention, r.UnresolvedRetention)
		}
	}
	if len(seconds) < 10 {
		t.Errorf("100 records in %d seconds", len(seconds))
	}
}

// What a Recorder returns is a copy, which a test can sort or change.
func TestRecorder(t *testing.T) {
	t.Parallel()
	var r Recorder
	for _, kind := range []event.Kind{event.Reserved, event.Completed, event.Replayed, event.Replayed} {
		r.Observe(t.Context(), event.Event{Kind: kind})
	}
	r.Events()[0].Kind = event.Replayed
	if got, want := r.Kinds(), []event.Kind{event.Reserved, event.Completed, event.Replayed, event.Replayed}; !slices.Equal(got, want) || r.Count(event.Replayed) != 2 {
		t.Errorf("got %v and %d replays, want %v", got, r.Count(event.Replayed), want)
	}
}

// A Clock stands still while real time passes, which is that of the bubble here. A test
// moves it forward and back.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		begun := time.Now()
		for _, row := range []struct{ pause, advance, want time.Duration }{
			{0, 0, 0}, {time.Hour, 0, 0}, {time.Hour, time.Minute, time.Minute}, {0, -2 * time.Minute, -time.Minute},
		} {
			time.Sleep(row.pause)
			c.Advance(row.advance)
			if got := c.Now().Sub(begun); got != row.want {
				t.Errorf("after %+v the clock has moved by %s", row, got)
			}
		}
		c.advanceTo(begun.Add(-time.Hour)) // it has passed
		if got := c.Now().Sub(begun); got != -time.Minute {
			t.Errorf("after an end that had passed the clock has moved by %s", got)
		}
	})
}

// A mutex stops the clock of a bubble, unless one of its goroutines goes on.
func TestBlocked(t *testing.T) {
	t.Parallel()
	const (
		mutex   = "goroutine 1 [sync.Mutex.Lock, synctest bubble 7]:\nmain.charge()"
		reader  = "goroutine 2 [sync.RWMutex.RLock, 2 minutes, synctest bubble 7]:\nmain.find()"
		outside = "goroutine 3 [chan receive, synctest bubble 7]:\nmain.ask()"
		sleeps  = "goroutine 4 [sleep (durable), synctest bubble 7]:\nmain.wait()"
		atPoint = "goroutine 5 [select (durable), synctest bubble 7]:\nidempotenttest.(*World).await(0x1)"
		runs    = "goroutine 6 [running, synctest bubble 7]:\nmain.compute()"
		ready   = "goroutine 8 [runnable, synctest bubble 7]:\nmain.compute()"
		earlier = "goroutine 9 [sync.Mutex.Lock, synctest bubble 17]:\nmain.charge()"
		test    = "goroutine 10 [running]:\nmain.test()"
	)
	for _, row := range []struct {
		dump, found []string
		limit       int
	}{
		{[]string{test, earlier, sleeps}, nil, 0},
		{[]string{test, mutex, earlier, sleeps, atPoint}, []string{mutex, atPoint}, forMutex},
		{[]string{reader}, []string{reader}, forMutex},
		{[]string{outside, sleeps}, []string{outside}, forOthers},
		{[]string{outside, mutex}, []string{outside, mutex}, forOthers},
		{[]string{mutex, outside}, []string{mutex, outside}, forOthers},
		{[]string{mutex, runs}, nil, 0},
		{[]string{outside, ready, mutex}, nil, 0},
	} {
		want := ""
		for _, stack := range row.found {
			want += "\n\n" + stack
		}
		if found, limit := blocked(strings.Join(row.dump, "\n\n"), "synctest bubble 7]:"); found != want || limit != row.limit {
			t.Errorf("got limit %d and%s\nwant %d and%s", limit, found, row.limit, want)
		}
	}
}

// A watch knows the goroutines of its bubble by the end of their headers.
func TestWatchBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w watch
		w.begin()
		stack := make([]byte, 1<<10)
		header, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), "\n")
		if !regexp.MustCompile(`^synctest bubble \d+\]:$`).MatchString(w.bubble) || !strings.HasSuffix(header, w.bubble) || w.steps.Load() != 1 {
			t.Errorf("%d steps, and got the bubble %q in %q", w.steps.Load(), w.bubble, header)
		}
	})
}

// A bubble stands still after so many looks as its goroutines have, without a step.
func TestLook(t *testing.T) {
	t.Parallel()
	var w watch
	for i, row := range []struct {
		steps int64
		limit int
		still bool
	}{
		{0, 1, false}, {0, 1, false}, // not begun
		{1, 1, false}, {1, 1, true}, // a step, and none
		{2, 2, false}, {2, 2, false}, {3, 2, false}, {3, 2, false}, {3, 2, true},
		{4, 2, false}, {4, 2, false}, {4, 0, false}, {4, 2, false}, {4, 2, true}, // a goroutine runs
	} {
		w.steps.Store(row.steps)
		if found := w.look(func() (string, int) { return "stacks", row.limit }); (found == "stacks") != row.still {
			t.Errorf("look %d: found %q", i, found)
		}
	}
}
