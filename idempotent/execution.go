package idempotent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
)

// Execution is one run of a handler under a claim. The handler's context carries
// it. It is safe for concurrent use.
type Execution struct {
	id      RecordID
	attempt *attempt

	// writing is held by the goroutine that writes the record, so that writes do not
	// overlap. It is taken before mu, and never twice by the caller of seal.
	writing sync.Mutex
	// mu guards the fields below. No store or observer is called while it is held.
	mu     sync.Mutex
	sealed bool
	work   work
	runs   map[string]*stepRun // the steps of this run, by name
}

// work is what a run knows about its record and its own actions.
type work struct {
	// seen is the record as last written or read by this run.
	seen *driver.Record
	// steps and ref are what this run knows, stored or not. The next write includes
	// them.
	steps []driver.StepRecord
	ref   string
	// doubts are the transactions of this run that were sent without a known result.
	doubts []doubt
	// forgotten is set if a step was refused because the provider may have forgotten
	// its downstream key. The outcome is then unknown.
	forgotten error
	// committed is the record, with its result, that a transaction of this run has
	// completed.
	committed *driver.Record
}

// doubt is one transaction that may have been applied.
type doubt struct {
	step    string         // the step that it records; empty for the outcome
	version driver.Version // its write id if it stores the outcome
	err     error
}

// next returns the current record with the steps that this run knows.
func (w *work) next() driver.Record {
	next := *w.seen
	next.Steps = w.steps
	return next
}

// doubted returns an error if a transaction of this run may not have been
// applied, so that the outcome cannot be stored as a success. Otherwise it
// returns nil.
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

// doubtedStep is doubted for step transactions only. A doubt ends when a record
// that contains the finished step is read.
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
	return slices.ContainsFunc(w.doubts, func(d doubt) bool { return d.version == v })
}

// began reports whether a step or a transaction may have had an effect.
func (w *work) began() bool { return len(w.steps) > 0 || w.doubted() != nil }

// meet continues from the record r. This run still owns r, but evidence, a
// sweeper, or a write of this run whose reply was lost has changed it. A step
// that is finished in r is finished: the first recorded result stays.
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

// maxRef is the maximum length of a resource reference, in bytes.
const maxRef = 1024

type executionKey struct{}

// FromContext returns the execution of the guarded handler that ctx belongs to.
// It returns false outside a guarded handler, and for a request that the guard
// runs unguarded.
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

// RecordID returns the id of the record that this run belongs to. Pass it to a
// provider as metadata, so that the provider's webhook can name the record to
// [Guard.Resolve].
func (e *Execution) RecordID() RecordID { return e.id }

// Attempt returns the number of this run of the record, from 1. It grows with
// every takeover, so it can serve as a fencing number until the key expires.
func (e *Execution) Attempt() int { return e.attempt.mine.Attempt }

// Token identifies this run in evidence that it was not executed: see
// [ProvenNotExecuted]. Log it or store it on your side. Do not send it to a
// provider: the parameters of a request must be equal for every attempt.
func (e *Execution) Token() string { return e.attempt.mine.Token() }

// Store returns the store of the guard. It is for packages that offer
// transactions on a store, see [Execution.Commit].
func (e *Execution) Store() driver.Store { return e.attempt.guard.store }

// SetRef sets the resource that this run is about, in the caller's own terms and
// without secrets, such as an order number or a URL path. It is stored with the
// outcome, or earlier with a step. Refused requests and the resolver of an
// unknown outcome receive it. SetRef returns [ErrExecutionEnded] after the
// outcome is decided, and an error if ref is longer than 1,024 bytes or not valid
// UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: invalid resource reference: want at most %d bytes of valid UTF-8, got %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return ErrExecutionEnded
	}
	e.work.ref = ref
	return nil
}

// seal ends the execution: goroutines that the handler left behind can no longer
// change anything. It waits for a write in progress and returns what was done
// until then. A step that is still running counts as begun.
func (e *Execution) seal() *work {
	e.writing.Lock()
	defer e.writing.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	return &e.work
}
