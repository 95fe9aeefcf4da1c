// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"slices"
	"testing"
)

// take hands out all available messages, and returns them with their lanes.
func take(l *lanes) (messages, taken []int) {
	for {
		m, lane, ok := l.next()
		if !ok {
			return messages, taken
		}
		messages, taken = append(messages, m), append(taken, lane)
	}
}

func want(t *testing.T, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("handed out: %v, want %v", got, want)
	}
}

// One message of each lane is handed out at a time, the earliest first.
func TestLanes(t *testing.T) {
	t.Parallel()
	l := newLanes([]string{"a", "b", "a", "c", "b", "a"})
	got, lane := take(l)
	want(t, got, 0, 1, 3)
	if l.left() != 3 {
		t.Errorf("%d messages are left, want 3", l.left())
	}
	l.done(lane[2])
	l.done(lane[1])
	l.done(lane[0])
	got, _ = take(l)
	want(t, got, 2, 4)
	l.done(lane[0])
	l.done(lane[1])
	got, _ = take(l)
	want(t, got, 5)
}

func TestLanes_Drop(t *testing.T) {
	t.Parallel()
	l := newLanes([]string{"a", "b", "a"})
	_, lane := take(l)
	l.drop(lane[0])
	l.done(lane[0])
	l.done(lane[1])
	got, _ := take(l)
	want(t, got)
}
