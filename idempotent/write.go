// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// This file has what a run writes, and finds, while its handler is running.

// beginWrite waits until no other goroutine writes the record. The caller calls
// endWrite. It is no mutex, so that goroutines that wait for a store that does not
// answer do not stop the clock of a testing/synctest bubble.
func (e *Execution) beginWrite() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.writing {
		e.written.Wait()
	}
	e.writing = true
}

func (e *Execution) endWrite() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writing = false
	e.written.Broadcast()
}

// announcement is the name that a run which announces itself passes to writeSteps. No
// step has it.
const announcement = ""

// meet continues from the record current, and reports whether a transaction of
// this run has completed it.
func (e *Execution) meet(current *driver.Record) (applied bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if current.Owner == e.attempt.owner {
		e.work.meet(current)
	}
	return e.work.wrote(current.Version)
}

// applied notes that an earlier transaction of this run has completed the record r.
func (e *Execution) applied(ctx context.Context, r *driver.Record) {
	e.committed(ctx, r, stored(r), outcome{}, event.Completed)
	e.stands(r)
}

// stands notes that the record r is completed, with an outcome that may be another
// one than the handler's.
func (e *Execution) stands(r *driver.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.work.committed, e.work.standing = r, true
}

// committed notes that the record r is completed. Its outcome is in r as kept, and
// out is the outcome, unencrypted.
func (e *Execution) committed(ctx context.Context, r *driver.Record, kept, out outcome, kind event.Kind) {
	whole := *r
	whole.Result = kept.result
	e.mu.Lock()
	e.work.committed, e.work.result = &whole, out
	e.mu.Unlock()
	e.attempt.remember(&whole, whole.Result)
	e.attempt.observe(ctx, kind, &whole, nil)
}

func (e *Execution) doubt(d doubt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.work.doubts = append(e.work.doubts, d)
}
