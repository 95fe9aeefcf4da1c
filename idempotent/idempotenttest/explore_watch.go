// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// watch finds out that nothing goes on in a bubble. A goroutine that waits for a mutex
// stops the clock of its bubble, and package synctest waits for it without a limit.
type watch struct {
	steps  atomic.Int64 // of the driver
	bubble string       // the end of a header in stacks; known after the first step
}

const (
	// tick is how often a schedule is looked at, in real time. Few need as long.
	tick = 100 * time.Millisecond
	// still is how many ticks all goroutines have to wait, one of them for a mutex.
	still = 5
	// silent is how many ticks the driver may take for a step, whatever happens.
	silent = 600
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
	same, waiting := 0, 0
	for {
		select {
		case p := <-ended:
			if p != nil {
				panic(p)
			}
			return ""
		case <-ticks.C:
		}
		if now := w.steps.Load(); now == 0 || now != steps {
			steps, same, waiting = now, 0, 0
			continue
		}
		found, onlyWait := w.stacks()
		if same++; onlyWait {
			waiting++
		} else {
			waiting = 0
		}
		if waiting >= still || same >= silent {
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

// stacks returns the stacks of the goroutines that wait for a mutex or at a point. It
// reports whether no goroutine of the bubble can go on, because of a mutex.
func (w *watch) stacks() (found string, onlyWait bool) {
	all := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		header, _, _ := strings.Cut(stack, "\n")
		if !strings.HasSuffix(header, w.bubble) {
			continue
		}
		waits := strings.Contains(header, "[sync.Mutex.Lock") || strings.Contains(header, "[sync.RWMutex.")
		if waits || strings.Contains(stack, ".(*World).await(") {
			found += "\n\n" + stack
		}
		switch {
		case waits:
			onlyWait = true
		case !strings.Contains(header, "(durable)"):
			return found + "\n\n" + stack, false
		}
	}
	return found, onlyWait
}
