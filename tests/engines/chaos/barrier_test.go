// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
)

// barrier is where a client process stops until it is killed: before, during or after a
// write or its effect. During a write means that the write is in transit: it may or may
// not arrive before the process dies. An empty one stops nothing.
type barrier string

// In a client process, writes counts those of the record after its claim, and leftOut
// reports that there was no time to write the pieces of the result.
var (
	writes  atomic.Int32
	leftOut atomic.Bool
)

func nextWrite() string { return fmt.Sprintf("write %d", writes.Add(1)) }

// reach reports the barrier of the process and stops there.
func (b barrier) reach(at string) {
	if string(b) == at {
		_ = json.NewEncoder(os.Stdout).Encode(answer{Class: classBarrier, LeftOut: leftOut.Load()}) // the harness kills the process anyway
		hang()
	}
}

// effect makes an effect happen.
func (b barrier) effect(act func() error) error {
	b.reach("before the effect")
	defer b.reach("after the effect")
	return act()
}

// around is one write.
func (b barrier) around(what string, write func()) {
	b.reach("before " + what)
	done := make(chan struct{})
	go func() {
		defer close(done)
		write()
	}()
	b.reach("during " + what)
	<-done
	b.reach("after " + what)
}

// stops returns s with the barrier around its writes, except transactions.
func (b barrier) stops(s driver.Store) driver.Store {
	if b == "" {
		return s
	}
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		switch c.Op {
		case driver.OpInsert:
			b.around("the claim", func() { c.Do(ctx) })
		case driver.OpReplace:
			b.around(nextWrite(), func() { c.Do(ctx) })
		case driver.OpPutChunks:
			b.around("the pieces", func() {
				c.Do(ctx)
				leftOut.Store(c.Err != nil)
			})
		default:
			c.Do(ctx)
		}
	})
}

// stopsClient returns c with the barrier around its transactions.
func (b barrier) stopsClient(c dynamostore.Client) dynamostore.Client {
	return dynamotest.Intercept(c, func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "TransactWriteItems" {
			b.around(nextWrite(), func() { c.Do(ctx) })
		} else {
			c.Do(ctx)
		}
	})
}

// kill is the death of a process at a barrier.
type kill struct {
	promise promise
	large   bool // its result is stored beside the record
	barrier barrier
}

// kills returns every barrier of every promise. A kill during a write comes more often:
// where the write then is, varies.
func kills() (all []kill) {
	for _, p := range []struct {
		promise promise
		large   bool
		writes  int // of the record, after the claim
	}{
		{reconcile, false, 1}, {resume, false, 3}, {atMostOnce, false, 3}, {rerun, false, 1}, {rerun, true, 1},
		{commit, false, 1}, {commit, true, 1}, {commitStep, false, 2},
	} {
		parts := []string{"the claim", "the effect"}
		if p.large {
			parts = append(parts, "the pieces")
		}
		for n := range p.writes {
			parts = append(parts, fmt.Sprintf("write %d", n+1))
		}
		for _, part := range parts {
			for when, times := range map[string]int{"before ": 2, "during ": 4, "after ": 2} {
				for range times {
					if part != "the effect" || when != "during " {
						all = append(all, kill{p.promise, p.large, barrier(when + part)})
					}
				}
			}
		}
	}
	return all
}

// F90, FM57: a process is killed at every barrier of a request, with real SIGKILL.
// Whatever state it leaves, the client's retries and the reconciler lead every key to
// exactly one effect, and to a stored result that each later retry gets.
func TestKillAtEveryBarrier(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, v := newStorm(t, func(uint64) faults.Plan { return faults.On("", faults.NoFault) }, 0, false)
	var mu sync.Mutex
	var works []*work
	var killers sync.WaitGroup
	queue := make(chan kill)
	for range 8 {
		killers.Go(func() {
			for k := range queue {
				tried, err := s.killAt(k)
				mu.Lock()
				works = append(works, tried...)
				mu.Unlock()
				if err != nil {
					t.Error(err)
					continue
				}
				r, err := v.store.Get(ctx, tried[len(tried)-1].record)
				switch {
				case err == nil:
					s.seen.Add(r.State.String(), 1)
				case errors.Is(err, idempotent.ErrNoRecord):
					s.seen.Add("no record", 1)
				default:
					t.Error(err)
				}
			}
		})
	}
	for _, k := range kills() {
		queue <- k
	}
	close(queue)
	killers.Wait()
	s.seen.Least(t, 10, "no record", "in_progress", "completed")
	for range 2 {
		must(t, v.run(ctx, works, kit.Patience))
		for _, w := range works {
			w.answers = append(w.answers, w.final)
		}
	}
	s.proxy.drain()
	left, _, _, err := v.leftover(ctx)
	must(t, err)
	violations, _, err := v.verdict(ctx, works, s.provider)
	must(t, err)
	for _, w := range works {
		if w.final.Class != classReplayed && !(w.final.Class == classUnavailable && w.hurried) {
			t.Errorf("%s: its last retry got %q", w.key, w.final.Class)
		}
	}
	if violations = append(violations, left...); len(violations) > 0 {
		t.Error(strings.Join(violations, "\n"))
	}
	t.Logf("what the kills left of %d records%s", len(works), &s.seen)
}

// killAt starts a process for a new key and kills it at the barrier. If its time is up
// before, or too short for the result, another process with twice the time takes its
// place: a busy machine is slow. It returns the works of all.
func (s *storm) killAt(k kill) (tried []*work, err error) {
	var a answer
	for limit := 3 * time.Second; limit < kit.Patience; limit *= 2 {
		name := fmt.Sprintf("c%d", s.started.Add(1))
		w := newWork(k.promise, name)
		for i := 0; (blobSize(w.record) >= 6_000) != k.large; i++ {
			w = newWork(k.promise, fmt.Sprint(name, "-", i))
		}
		settings := s.settings
		settings.Barrier = k.barrier
		c, err := start(name, settings, s.provider.died)
		if err != nil {
			return tried, err
		}
		tried = append(tried, w)
		a, _, _ = c.send(request{Name: name + "/0", Promise: k.promise, Key: w.key, Deadline: time.Now().Add(limit)})
		c.kill()
		if a.Class == classBarrier && !a.LeftOut {
			return tried, nil
		}
		w.hurried = true
	}
	return tried, fmt.Errorf("%s, large %t: no process stops %s; the last one answers %+v", k.promise, k.large, k.barrier, a)
}
