package idempotent

import (
	"context"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
)

// Execution is one run of a handler under a claim. It travels in the handler's
// context and is safe for concurrent use.
type Execution struct {
	id      RecordID
	attempt *attempt

	mu     sync.Mutex
	sealed bool
	work   work
	runs   map[string]*stepRun // the steps of this run, by name
}

// work is what an execution has done so far.
type work struct {
	// held is our claim as we last know to have written it, but for its Ref and
	// Steps: those are what we know, and go into the next write.
	held *driver.Record
	// doubts are the transactions of ours of which nobody knows whether they were
	// applied: by the step they record, or "" for the outcome.
	doubts map[string]doubt
	// committed is the record that a transaction of ours has completed, with its
	// result.
	committed *driver.Record
}

// doubt is about one transaction.
type doubt struct {
	err     error
	version driver.Version // the write id that it would have left
}

func (w *work) doubtOf(step string, d doubt) {
	if w.doubts == nil {
		w.doubts = map[string]doubt{}
	}
	w.doubts[step] = d
}

// doubted returns why the outcome may not be stored as if all had gone well: a
// transaction of ours may not have been applied. Nil if there is no such doubt.
func (w *work) doubted() error {
	if d, found := w.doubts[""]; found {
		return d.err
	}
	return w.doubtedStep()
}

// doubtedStep is doubted for the steps alone. A doubt is over once the record
// was met and holds the step.
func (w *work) doubtedStep() error {
	for step, d := range w.doubts {
		if s, _ := w.held.Step(step); step != "" && !s.Finished {
			return d.err
		}
	}
	return nil
}

// began reports whether an effect of a step, or of a transaction, may have
// happened.
func (w *work) began() bool { return len(w.held.Steps) > 0 || w.doubted() != nil }

// change replaces the claim by a copy that f has changed: the record it was
// read from may be in other hands.
func (w *work) change(f func(*driver.Record)) {
	next := *w.held
	f(&next)
	w.held = &next
}

// meet goes on from the record r, which is still ours and was written by
// somebody else, or by a write of ours whose reply was lost. What a
// transaction of ours may have left in it counts as done.
func (w *work) meet(r *driver.Record) {
	mine := w.held
	next := *r
	next.Steps = mine.Steps
	for _, s := range finishedSteps(r.Steps) {
		next.Steps = withStep(next.Steps, s)
	}
	if mine.Ref != "" {
		next.Ref = mine.Ref
	}
	w.held = &next
}

// maxRef bounds a resource reference, in bytes.
const maxRef = 1024

type executionKey struct{}

// FromContext returns the execution that ctx belongs to. There is none outside
// a guarded handler, and none where the guard lets a request run unguarded.
func FromContext(ctx context.Context) (*Execution, bool) {
	switch at := ctx.Value(executionKey{}).(type) {
	case *Execution:
		return at, at != nil
	case *stepRun:
		return at.execution, true
	}
	return nil, false
}

func withExecution(ctx context.Context, e *Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, e)
}

// RecordID returns the id of the record that this run belongs to. Hand it to a
// provider as metadata, so that its webhook can name the record to
// [Guard.Resolve].
func (e *Execution) RecordID() RecordID { return e.id }

// Attempt counts the runs of this record from 1. It grows with every takeover
// and so can serve as a fencing number until the key expires.
func (e *Execution) Attempt() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.work.held.Attempt
}

// Store returns the store of the guard: for a package that offers transactions
// on it, see [Execution.Commit].
func (e *Execution) Store() driver.Store { return e.attempt.guard.store }

// SetRef names the resource this run is about, in the caller's own terms and
// without secrets: an order number, a URL path. It is stored with the outcome,
// or with a step before, and shown to those who are refused and to whoever
// resolves an unknown outcome. It returns [ErrSealed] once the outcome is
// decided, and an error for more than 1,024 bytes and for text that is not
// UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: a resource reference is at most %d bytes of UTF-8; this one has %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return ErrSealed
	}
	e.work.change(func(r *driver.Record) { r.Ref = ref })
	return nil
}

// seal ends the execution: a goroutine that the handler left behind can change
// nothing any more. It returns what was done until then; a step that is still
// running counts as begun.
func (e *Execution) seal() *work {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	return &e.work
}
