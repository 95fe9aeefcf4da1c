// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watch finds out that nothing goes on in a bubble. A goroutine that waits for a mutex
// stops the clock of its bubble, and package synctest waits for it without a limit.
type watch struct {
	steps  atomic.Int64 // of the driver
	bubble string       // the end of a header in stacks; known after the first step
	dump   []byte       // for stacks
}

const (
	// tick is how often a schedule is looked at, in real time. Few need as long.
	tick = 100 * time.Millisecond
	// forMutex is how many ticks all goroutines have to wait, one of them for a mutex, and
	// forOthers if one waits for something outside the bubble. A goroutine that runs, or is
	// ready to run on a busy machine, has no limit.
	forMutex, forOthers = 5, 600
)

// watch runs f, which begins in a bubble. If f does not go on, watch leaves it behind, and
// returns the stacks of those who wait.
func (w *watch) watch(f func()) (stacks string) {
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		f()
	}()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var steps int64
	same := 0
	for {
		select {
		case p := <-ended:
			if p != nil {
				panic(p)
			}
			return ""
		case <-ticks.C:
		}
		now := w.steps.Load()
		if now == 0 || now != steps {
			steps, same = now, 0
			continue
		}
		found, limit := w.stacks()
		if same++; limit == 0 {
			same = 0
		}
		if limit > 0 && same >= limit {
			return found
		}
	}
}

// begin notes the bubble, in which it is called.
func (w *watch) begin() {
	header := make([]byte, 100)
	_, name, _ := strings.Cut(string(header[:runtime.Stack(header, false)]), "synctest bubble ")
	name, _, _ = strings.Cut(name, "]")
	w.bubble = "synctest bubble " + name + "]:"
	w.steps.Add(1)
}

// stacks returns the stacks of the goroutines that wait for a mutex, for something outside,
// or at a point, and after how many ticks they are stuck; 0: one of them goes on.
func (w *watch) stacks() (found string, limit int) {
	// A pool of database/sql that a handler does not close leaves a goroutine behind in each
	// schedule, so there can be tens of thousands.
	size := runtime.Stack(w.dump, true)
	for size == len(w.dump) {
		w.dump = make([]byte, 2*size+1<<20)
		size = runtime.Stack(w.dump, true)
	}
	for stack := range strings.SplitSeq(string(w.dump[:size]), "\n\n") {
		header, _, _ := strings.Cut(stack, "\n")
		_, state, _ := strings.Cut(header, "[")
		switch {
		case !strings.HasSuffix(header, w.bubble):
			continue
		case strings.HasPrefix(state, "runn"): // running, runnable
			return "", 0
		case strings.HasPrefix(state, "sync.Mutex.Lock"), strings.HasPrefix(state, "sync.RWMutex."):
			limit = max(limit, forMutex)
		case !strings.Contains(state, "(durable)"):
			limit = forOthers
		case !strings.Contains(stack, ".(*World).await("):
			continue
		}
		found += "\n\n" + stack
	}
	return found, limit
}

// single counts the explorations that want one goroutine at a time.
var single struct {
	sync.Mutex
	explorations int
	processors   int // before the first of them
}

// oneAtATime makes the goroutines of this process run one at a time, so that those of a
// handler run in the same order, unless the machine is busy. Tests explore side by side:
// the last exploration that calls undo brings the processors back.
func oneAtATime() (undo func()) {
	single.Lock()
	defer single.Unlock()
	if single.explorations++; single.explorations == 1 {
		single.processors = runtime.GOMAXPROCS(1)
	}
	return func() {
		single.Lock()
		defer single.Unlock()
		if single.explorations--; single.explorations == 0 {
			runtime.GOMAXPROCS(single.processors)
		}
	}
}
