package model_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// jumpingClock moves only when a test moves it, and remembers its earlier
// times.
type jumpingClock struct {
	now atomic.Int64 // milliseconds

	mu    sync.Mutex
	ticks []int64
}

func newJumpingClock() *jumpingClock {
	c := &jumpingClock{ticks: []int64{began.UnixMilli()}}
	c.now.Store(began.UnixMilli())
	return c
}

func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Load() + d.Milliseconds()
	c.ticks = append(c.ticks, now) // recorded before any reader can see it
	c.now.Store(now)
}

// between returns the times that could be read between two that were.
func (c *jumpingClock) between(before, after int64) *[]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, _ := slices.BinarySearch(c.ticks, before)
	to, _ := slices.BinarySearch(c.ticks, after)
	read := slices.Clone(c.ticks[from : to+1])
	return &read
}
