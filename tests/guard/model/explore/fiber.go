// SPDX-License-Identifier: Apache-2.0

package explore

import "iter"

// fiber is a coroutine that runs one job after another. There are millions of
// jobs, and a reused coroutine has a stack that has already grown. It is used
// by one goroutine.
type fiber struct {
	job   func() // nil: idle between two jobs
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
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

// resume lets the job continue until it rests or ends.
func (f *fiber) resume() { f.next() }

// rest ends the job's turn.
func (f *fiber) rest() { f.yield(struct{}{}) }

// fibers are the coroutines without a job.
type fibers struct{ idle []*fiber }

func (p *fibers) take(job func()) *fiber {
	var f *fiber
	if n := len(p.idle); n > 0 {
		f, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		f = newFiber()
	}
	f.job = job
	return f
}

func (p *fibers) free(f *fiber) { p.idle = append(p.idle, f) }

// end ends the coroutines.
func (p *fibers) end() {
	for _, f := range p.idle {
		f.stop()
	}
}
