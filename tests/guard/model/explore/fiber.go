// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"iter"
	"testing/synctest"
)

// fiber is a coroutine that runs one job after another. There are millions of
// jobs, and a reused coroutine has a stack that has already grown. It is used
// by one goroutine.
type fiber struct {
	job   func() // nil: idle between two jobs
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool

	turns   chan struct{} // of a thread: it rests until it receives
	resting bool          // of a thread
}

func newFiber() *fiber {
	f := &fiber{}
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		for f.job != nil {
			f.job()
			f.job = nil
			yield(struct{}{})
		}
	})
	return f
}

// newThread returns a fiber that is a goroutine of a synctest bubble. Unlike a
// coroutine it can wait for another thread, which holds the lock of their run.
func newThread() *fiber {
	f := &fiber{turns: make(chan struct{})}
	go func() {
		for range f.turns {
			f.job()
			f.job = nil
		}
	}()
	return f
}

// resume lets the job continue until it rests or ends, or waits for another thread.
func (f *fiber) resume() {
	if f.turns == nil {
		f.next()
		return
	}
	f.turns <- struct{}{}
	synctest.Wait()
}

// rest ends the job's turn.
func (f *fiber) rest() {
	if f.turns == nil {
		f.yield(struct{}{})
		return
	}
	f.resting = true
	<-f.turns
	f.resting = false
}

// fibers are the coroutines without a job.
type fibers struct {
	idle    []*fiber
	threads bool // they are threads
}

func (p *fibers) take(job func()) *fiber {
	var f *fiber
	switch n := len(p.idle); {
	case n > 0:
		f, p.idle = p.idle[n-1], p.idle[:n-1]
	case p.threads:
		f = newThread()
	default:
		f = newFiber()
	}
	f.job = job
	return f
}

func (p *fibers) free(f *fiber) { p.idle = append(p.idle, f) }

// end ends the coroutines.
func (p *fibers) end() {
	for _, f := range p.idle {
		if f.turns != nil {
			close(f.turns)
		} else {
			f.stop()
		}
	}
}
