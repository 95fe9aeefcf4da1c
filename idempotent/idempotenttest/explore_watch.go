// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"runtime"
	"runtime/pprof"
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
	seen   int64        // steps at the last look
	same   int          // looks since then, at all of which each goroutine waited
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
	for {
		select {
		case p := <-ended:
			if p != nil {
				panic(p)
			}
			return ""
		case <-ticks.C:
		}
		if found := w.look(w.stacks); found != "" {
			return found
		}
	}
}

// look looks once, and returns what stands still, and has done so for long enough.
func (w *watch) look(stacks func() (found string, limit int)) string {
	if now := w.steps.Load(); now == 0 || now != w.seen {
		w.seen, w.same = now, 0
		return ""
	}
	found, limit := stacks()
	if limit == 0 {
		w.same = 0
		return ""
	}
	if w.same++; w.same < limit {
		return ""
	}
	return found
}

// begin notes the bubble, in which it is called.
func (w *watch) begin() {
	header := make([]byte, 100)
	_, name, _ := strings.Cut(string(header[:runtime.Stack(header, false)]), "synctest bubble ")
	name, _, _ = strings.Cut(name, "]")
	w.bubble = "synctest bubble " + name + "]:"
	w.steps.Add(1)
}

// stacks returns what blocked does, of the goroutines of the bubble.
func (w *watch) stacks() (found string, limit int) {
	// A pool of database/sql that a handler does not close leaves a goroutine behind in each
	// schedule, so there can be tens of thousands. A profile has room for 64 MB of stacks.
	var dump strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&dump, 2)
	return blocked(dump.String(), w.bubble)
}

// blocked returns the stacks of the goroutines of a bubble that wait for a mutex, for
// something outside, or at a point, and after how many ticks they are stuck; 0: one of them
// goes on.
func blocked(dump, bubble string) (found string, limit int) {
	for stack := range strings.SplitSeq(dump, "\n\n") {
		header, _, _ := strings.Cut(stack, "\n")
		_, state, _ := strings.Cut(header, "[")
		switch {
		case !strings.HasSuffix(header, bubble):
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
