package idempotent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
)

// Execution is one run of a handler under a claim. It travels in the handler's
// context and is safe for concurrent use.
type Execution struct {
	id      RecordID
	attempt *attempt

	// writing is held by the goroutine that writes the record: one write follows
	// the other. It is taken before mu, and never by seal's caller twice.
	writing sync.Mutex
	// mu guards what follows. No store and no observer is called under it.
	mu     sync.Mutex
	sealed bool
	work   work
	runs   map[string]*stepRun // the steps of this run, by name
}

// work is what a run knows of its record and of its own doings.
type work struct {
	// seen is the record as the store is known to have it: what this run wrote or
	// met last.
	seen *driver.Record
	// steps and ref are what this run knows, whether the store has it yet or not.
	// They go into the next write.
	steps []driver.StepRecord
	ref   string
	// doubts are the transactions of this run that were sent and not answered.
	doubts []doubt
	// forgotten is set if a step was refused because the provider may have
	// forgotten its downstream key. The outcome is unknown then.
	forgotten error
	// committed is the record that a transaction of this run has completed, with
	// its result.
	committed *driver.Record
}

// doubt is one transaction that may have been applied.
type doubt struct {
	step    string // the step that it records; empty: the outcome
	version driver.Version
	err     error
}

// next returns the record that stands, with what this run knows.
func (w *work) next() driver.Record {
	next := *w.seen
	next.Steps, next.Ref = w.steps, w.ref
	return next
}

// doubted returns why the outcome cannot be stored as if all had gone well: a
// transaction of this run may not have been applied. Nil: there is no doubt.
func (w *work) doubted() error {
	if w.forgotten != nil {
		return w.forgotten
	}
	for _, d := range w.doubts {
		if d.step == "" {
			return d.err
		}
	}
	return w.doubtedStep()
}

// doubtedStep is doubted for the steps alone. A doubt ends when the record is
// met and holds the step.
func (w *work) doubtedStep() error {
	for _, d := range w.doubts {
		if d.step != "" && !finished(w.steps, d.step) {
			return d.err
		}
	}
	return nil
}

// wrote reports whether v is the write id of a doubted transaction that stores
// the outcome.
func (w *work) wrote(v driver.Version) bool {
	return slices.ContainsFunc(w.doubts, func(d doubt) bool { return d.step == "" && d.version == v })
}

// began reports whether an effect of a step, or of a transaction, may have
// happened.
func (w *work) began() bool { return len(w.steps) > 0 || w.doubted() != nil }

// meet goes on from the record r, which is still this run's and was written by
// evidence, by a sweeper, or by a write of this run whose reply was lost. A step
// that is finished in r is finished: the first recorded value stands.
func (w *work) meet(r *driver.Record) {
	w.seen = r
	for _, s := range r.Steps {
		if s.Finished {
			w.steps = withStep(w.steps, s)
		}
	}
	if w.ref == "" {
		w.ref = r.Ref
	}
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
func (e *Execution) Attempt() int { return e.attempt.mine.Attempt }

// Token names this run in evidence that it was not executed: see
// [ProvenNotExecuted]. Log it or keep it on your side; it must not be part of the
// request to a provider, whose parameters are equal for every attempt.
func (e *Execution) Token() string { return e.attempt.mine.Token() }

// Store returns the store of the guard: for a package that offers transactions
// on it, see [Execution.Commit].
func (e *Execution) Store() driver.Store { return e.attempt.guard.store }

// SetRef names the resource this run is about, in the caller's own terms and
// without secrets: an order number, a URL path. It is stored with the outcome,
// or with a step before, and shown to requests that are refused and to the
// resolver of an unknown outcome. It returns [ErrExecutionEnded] once the outcome is
// decided, and an error for more than 1,024 bytes and for text that is not
// UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: a resource reference is at most %d bytes of UTF-8; this one has %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return ErrExecutionEnded
	}
	e.work.ref = ref
	return nil
}

// seal ends the execution: a goroutine that the handler left behind can change
// nothing any more. It waits for a write that is under way, and returns what was
// done until then; a step that is still running counts as begun.
func (e *Execution) seal() *work {
	e.writing.Lock()
	defer e.writing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	return &e.work
}
