// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"strings"
	"testing"
)

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
