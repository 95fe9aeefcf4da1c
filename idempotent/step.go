// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
)

// StepOptions configure a [Step]. The zero value of each field selects its
// documented default.
type StepOptions struct {
	// AtMostOnce runs the step at most once: if a run of it is interrupted, or ends
	// with an error other than [NotExecuted], the record becomes unknown. The store
	// is written once before the effect and once after it. Default: false. An
	// interrupted step then runs again with the same downstream key, and the store
	// is written once, after the effect.
	AtMostOnce bool
}

// mode returns the mode as stored in a record.
func (o *StepOptions) mode() driver.StepMode {
	if o.AtMostOnce {
		return driver.AtMostOnce
	}
	return driver.AtLeastOnce
}

// Step runs one external effect of a guarded handler and records its result. A
// later attempt of the same record gets that result and does not run fn again.
// Put each effect in its own step, and have no effects between steps.
//
// The name identifies the step in the record. It must be unique within the
// handler and must not change while records are in flight. It has 1 to 64 of the
// characters a-z, A-Z, 0-9, '-', '_', '.' and '/'. Steps of one handler may run
// concurrently; they cannot be nested. T must survive a JSON round trip. Its
// encoding, compressed if that makes it smaller, may have up to 64 KB. All steps of
// a record together may have up to 256 KB, counted as name, encoding and 128 bytes
// for each: the rest of the largest record is for its outcome. Return a reference
// rather than a document.
//
// Pass the [DownstreamKey] of fn's context to the provider. It makes it safe to
// run a step again after a crash between the effect and its recording.
//
// Step returns an error of fn and does not record it. [Final] and [Unknown] in
// that error also count for the handler; [NotExecuted] means only that the step
// had no effect. Step itself returns
//   - [*StepError] for an invalid name or type, for a recorded result of another
//     type, or for a result that is too large, and before it calls fn if another
//     step does not fit into the record;
//   - [*LeaseLostError] if another request owns the record;
//   - [ErrExecutionEnded] after the handler has returned, or once a Commit of this
//     run has found the record completed;
//   - [*StoreError] if an at-most-once step could not be marked as begun, in
//     which case fn was not called.
//
// Under [Resume], Step refuses to run a step that an earlier run may have begun
// longer than Operation.DownstreamRetention ago, and the record becomes unknown. If
// the result of a step cannot be written, the handler continues, and the next
// write includes the result. If evidence finished the step meanwhile (see
// [ResolvedStep]), Step returns the recorded result.
//
// Every write of the record contains the results of all steps before it, so the cost
// of many steps grows with the square of their number: docs/cost.md has figures. For
// dozens of steps, or results of several KB, use a durable function, which stores
// each result once. A warning is logged, once per guard, when the steps of a record
// pass 32 KB.
//
// A goroutine that the handler leaves behind can still be inside fn when the outcome
// is stored: an AtMostOnce step then counts as begun. Wait for such goroutines.
//
// Outside a guarded handler fn runs without a record, and a warning is logged
// once per process.
func Step[T any](ctx context.Context, name string, fn func(context.Context) (T, error), optFns ...func(*StepOptions)) (T, error) {
	var v T
	e, ok := FromContext(ctx)
	if !ok {
		warnOutside(ctx, "Step")
		return fn(ctx)
	}
	var o StepOptions
	for _, f := range optFns {
		f(&o)
	}
	s, recorded, err := e.beginStep(ctx, name, o, true, reflect.TypeFor[T]())
	switch {
	case err != nil:
		return v, err
	case recorded != nil:
		return v, e.replayStep(ctx, *recorded, &v)
	}
	v, err = fn(context.WithValue(ctx, executionKey{}, s)) // if it panics, the step counts as begun
	if err != nil {
		return v, e.failStep(s, err)
	}
	encoded, err := e.finishStep(ctx, s, &v)
	_ = asReplayed(stepCodec, encoded.Encoding, encoded.Result, &v) // a recorded result decodes
	return v, err
}

// beginStep prepares a step. It returns either the recorded step, or the step to
// run. The latter counts as begun from then on and, if it may run only once, is
// marked as begun in the store.
func (e *Execution) beginStep(
	ctx context.Context, name string, o StepOptions, foreign bool, result reflect.Type,
) (s *stepRun, recorded *driver.StepRecord, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := e.checkStep(ctx, name, result); err != nil {
		return nil, nil, err
	}
	s = &stepRun{execution: e, name: name, mode: o.mode(), shape: infoOf(result).Shape, foreign: foreign}
	if o.AtMostOnce {
		// Taken before the step counts as begun, because the outcome may be settled from
		// then on.
		e.beginWrite()
		defer e.endWrite()
	}
	if recorded, err = e.enterStep(s); err != nil || recorded != nil {
		return nil, recorded, err
	}
	if o.AtMostOnce {
		ctx, cancel := e.attempt.window.StepContext(ctx)
		defer cancel()
		recorded, err = e.writeSteps(ctx, name, nil)
		if err != nil {
			e.dropStep(s) // the step does not run
		}
	}
	return s, recorded, err
}

// checkStep returns an error if the code uses a step incorrectly.
func (e *Execution) checkStep(ctx context.Context, name string, result reflect.Type) error {
	if err := checkStepName(name); err != nil {
		return err
	}
	if outer, nested := ctx.Value(executionKey{}).(*stepRun); nested {
		return &StepError{Step: name, Problem: fmt.Sprintf("inside step %q; steps cannot be nested", outer.name)}
	}
	if !declares(e.attempt.opts.Steps, name) {
		return &StepError{Step: name, Problem: fmt.Sprintf("not declared in Operation.Steps, which has %q", e.attempt.opts.Steps)}
	}
	if err := infoOf(result).Result; err != nil {
		return &StepError{Step: name, Problem: fmt.Sprintf("the result cannot be recorded: %v", err)}
	}
	return nil
}

// enterStep notes that this run has begun a step, or returns the step if it is
// recorded as finished.
func (e *Execution) enterStep(s *stepRun) (recorded *driver.StepRecord, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := &e.work
	switch {
	case e.ended || w.committed != nil:
		return nil, ErrExecutionEnded
	case e.runs[s.name] != nil:
		return nil, &StepError{Step: s.name, Problem: "used twice in one run; give every effect its own name, for example with a slash and a number"}
	}
	if i, found := findStep(w.steps, s.name); found {
		before := w.steps[i]
		if s.before = &before; before.Finished {
			e.use(s)
			return &before, nil
		}
	}
	begun := driver.StepRecord{Name: s.name, Mode: s.mode}
	if err := checkKept(w.steps, &begun, maxSteps); err != nil {
		return nil, err
	}
	if s.foreign && e.attempt.opts.Recovery == Resume && e.attempt.keysForgotten(e.attempt.opts.now()) {
		w.forgotten = Unknown(&StepError{Step: s.name, Problem: fmt.Sprintf(
			"the step may have begun at %s, and the provider may have forgotten its downstream key since then (Operation.DownstreamRetention); "+
				"ask the provider for the outcome and resolve the record", e.attempt.openBefore.Format(time.RFC3339))})
		if s.before == nil { // evidence about it then releases the record
			e.note(begun)
		}
		return nil, w.forgotten
	}
	e.note(begun)
	e.use(s)
	return nil, nil
}

// replayStep decodes the recorded result of a step into the value that v points
// to.
func (e *Execution) replayStep(ctx context.Context, recorded driver.StepRecord, v any) error {
	t := reflect.TypeOf(v).Elem()
	if shape := infoOf(t).Shape; recorded.Shape != "" && recorded.Shape != shape {
		return &StepError{Step: recorded.Name, Problem: fmt.Sprintf("the recorded result has another shape than %s; give the changed step a new name, or resolve the record", t)}
	}
	if err := decodeStep(ctx, e.attempt.opts.Seal, e.id, recorded, v); err != nil {
		return entered(err)
	}
	e.observeStep(ctx, event.StepReplayed, recorded.Name)
	return nil
}

// failStep ends a step whose function returned err. [NotExecuted] removes the
// mark that the step has begun, with the next write. It does not count for the
// handler.
func (e *Execution) failStep(s *stepRun, err error) error {
	if !IsNotExecuted(err) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.withdraw(s)
	}
	return &errtype.InnerError{Err: err}
}

// finishStep records the result of a step, which v points to, and returns it
// encoded. If evidence has recorded a result meanwhile, it decodes that into *v
// instead.
func (e *Execution) finishStep(ctx context.Context, s *stepRun, v any) (encoded driver.StepRecord, err error) {
	ctx, cancel := e.attempt.window.StepContext(ctx)
	defer cancel()
	encoded, done, err := e.encodeStep(ctx, s, reflect.ValueOf(v).Elem().Interface(), driver.StepByRun)
	if err != nil {
		return encoded, err
	}
	recorded, err := e.record(ctx, done, nil)
	switch {
	case errors.As(err, new(*StoreError)):
		// The effect has happened and its result is known. Stopping here would only
		// make it more likely that both are lost. The next write includes the result.
		e.attempt.observe(ctx, event.StoreError, e.current(), err)
		return encoded, nil
	case err != nil:
		return encoded, err
	case recorded != nil && recorded.By == driver.StepByEvidence:
		reflect.ValueOf(v).Elem().SetZero()
		return driver.StepRecord{}, e.replayStep(ctx, *recorded, v)
	}
	e.observeStep(ctx, event.StepDone, s.name)
	return encoded, nil
}

// encodeStep returns the unsealed result v of a step, and the record of the step as
// it is to be stored.
func (e *Execution) encodeStep(ctx context.Context, s *stepRun, v any, by driver.StepSource) (encoded, done driver.StepRecord, err error) {
	done = driver.StepRecord{Name: s.name, Finished: true, Mode: s.mode, Shape: s.shape, By: by}
	encoded, done, err = encodeStepResult(ctx, e.attempt.opts.Seal, e.id, done, v)
	if errors.As(err, new(*StoreError)) {
		err = &StepError{Step: s.name, Problem: fmt.Sprintf("the result cannot be recorded: %v", err)}
	}
	return encoded, done, err
}

// encodeStepResult returns the unsealed result v of the step s of a record, and s
// with that result as it is to be stored. The error is a [*StoreError] if v could
// not be sealed, and otherwise a [*StepError].
func encodeStepResult(ctx context.Context, sealer Sealer, id RecordID, s driver.StepRecord, v any) (encoded, done driver.StepRecord, err error) {
	if encoded.Encoding, encoded.Result, err = encodeResult(stepCodec, v); err != nil {
		return encoded, s, &StepError{Step: s.Name, Problem: "the result cannot be recorded", Err: err}
	}
	done = s
	if done.Encoding, done.Result, err = seal(ctx, sealer, site{id, s.Name}, encoded.Encoding, encoded.Result); err != nil {
		return encoded, s, err
	}
	if n := len(done.Result); n > maxStepResult {
		return encoded, s, &StepError{Step: s.Name, Problem: fmt.Sprintf("the result has %d bytes; the limit is %d: return a reference", n, maxStepResult)}
	}
	return encoded, done, nil
}

// checkKept returns an error if steps, with s added or replaced, have more than
// limit bytes.
func checkKept(steps []driver.StepRecord, s *driver.StepRecord, limit int) error {
	kept := sizeOf(steps) + stepSize(s)
	if i, found := findStep(steps, s.Name); found {
		kept -= stepSize(&steps[i])
	}
	if kept > limit {
		return &StepError{Step: s.Name, Problem: fmt.Sprintf("all steps together would have %d bytes; the limit is %d: return references, or use fewer steps", kept, limit)}
	}
	return nil
}

// record writes that a step has finished, together with the writes of transaction
// if it is not nil. If another write has finished the step first, it returns the
// recorded step. A step whose transaction is not known to be applied counts as
// begun.
func (e *Execution) record(ctx context.Context, done driver.StepRecord, transaction driver.Transaction) (recorded *driver.StepRecord, err error) {
	e.beginWrite()
	defer e.endWrite()
	if err := e.noteDone(done); err != nil {
		return nil, err
	}
	e.warnOfSize(ctx)
	recorded, err = e.writeSteps(ctx, done.Name, transaction)
	tooLarge := errors.Is(err, driver.ErrTooLarge)
	if transaction != nil || tooLarge {
		e.mu.Lock()
		defer e.mu.Unlock()
		// Unless the step is recorded as finished, its result must not reach the store
		// with another write: a transaction's writes would be missing, and a result
		// that is too large would make every later write fail.
		if !finished(e.work.seen.Steps, done.Name) {
			e.note(driver.StepRecord{Name: done.Name, Mode: done.Mode})
		}
	}
	if tooLarge {
		return nil, &StepError{Step: done.Name, Problem: "the record would be larger than the store can hold: return references"}
	}
	return recorded, err
}

// noteDone adds the result of a step to the next write, unless a result is
// already recorded.
func (e *Execution) noteDone(done driver.StepRecord) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || e.work.committed != nil {
		return ErrExecutionEnded
	}
	if finished(e.work.steps, done.Name) {
		return nil
	}
	if err := checkKept(e.work.steps, &done, maxSteps); err != nil {
		return err
	}
	e.note(done)
	return nil
}

// warnOfSize logs, once per guard, that the steps of a record have become large.
func (e *Execution) warnOfSize(ctx context.Context) {
	g := e.attempt.guard
	e.mu.Lock()
	size := sizeOf(e.work.steps)
	e.mu.Unlock()
	if size > largeSteps {
		g.warn(ctx, e.attempt.opts, &g.hinted.steps, e.id, nil,
			"idempotent: the steps of a record have more than 32 KB, and every write of the record contains all of them. "+
				"Return smaller results, or use a durable function for many steps. This is logged once.")
	}
}

// writeSteps writes what this run knows about its steps, because of the named
// step, if this run still owns the record and it is in progress. If the named
// step is already finished, it returns the recorded step. The name announcement
// means that the run announces itself, because of no step. The caller holds
// e.writing.
func (e *Execution) writeSteps(ctx context.Context, name string, transaction driver.Transaction) (recorded *driver.StepRecord, err error) {
	a := e.attempt
	r := a.guard.apply(ctx, e.current(), &change{
		opts: a.opts, by: &stepWriter{e, name}, transaction: transaction, rounds: maxRounds,
	})
	switch r.end {
	case endWritten:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.work.seen = r.record
		return nil, nil
	case endAgreed:
		s, _ := r.record.Step(name)
		return &s, nil
	case endLost:
		return nil, &LeaseLostError{RecordID: e.id}
	case endApplied:
		e.applied(ctx, r.record)
		return nil, ErrExecutionEnded
	case endContended:
		if transaction != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotApplied, r.err)
		}
		return nil, &StoreError{RecordID: e.id, Op: driver.OpReplace, Entered: true, Err: r.err}
	case endFailed:
		op := driver.OpReplace
		if transaction != nil {
			op = driver.OpTransact
			err := &StoreError{RecordID: e.id, Op: op, Entered: true, Err: r.err}
			e.doubt(doubt{step: name, err: err})
			return nil, err
		}
		return nil, &StoreError{RecordID: e.id, Op: op, Entered: true, Err: r.err}
	default:
		return nil, r.err
	}
}

// stepWriter writes what a run knows about its steps, because of one of them.
type stepWriter struct {
	e    *Execution
	name string
}

func (s *stepWriter) meet(current *driver.Record) bool { return s.e.meet(current) }

func (s *stepWriter) judge(ctx context.Context, current *driver.Record, now time.Time) (j judgement) {
	e := s.e
	if !mayCheckpoint(current, e.attempt.owner) {
		return judgement{end: endLost}
	}
	if recorded, _ := current.Step(s.name); recorded.Finished {
		return judgement{end: endAgreed}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j.next = *current
	j.next.Steps, j.next.Ref = e.work.steps, e.work.ref
	j.next.Announced = current.Announced || s.name == announcement
	j.next.Schedule(now, e.attempt.opts.ReconcileAfter)
	return j
}

// dropStep withdraws a step that does not run, or whose transaction was not applied.
// The run may try it again.
func (e *Execution) dropStep(s *stepRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.withdraw(s)
		delete(e.runs, s.name)
	}
}

// The caller of the functions below holds e.mu.

// use notes that this run has used the name of a step.
func (e *Execution) use(s *stepRun) {
	if e.runs == nil {
		e.runs = map[string]*stepRun{}
	}
	e.runs[s.name] = s
}

// note adds the state of a step to the next write.
func (e *Execution) note(s driver.StepRecord) {
	s.Attempt, s.At = e.attempt.mine.Attempt, e.attempt.opts.now()
	e.work.steps = withStep(e.work.steps, s)
}

// withdraw undoes the beginning of a step, unless a result is already recorded.
func (e *Execution) withdraw(s *stepRun) {
	switch {
	case finished(e.work.steps, s.name):
	case s.before != nil:
		e.work.steps = withStep(e.work.steps, *s.before)
	default:
		e.work.steps = withoutStep(e.work.steps, s.name)
	}
}

// current returns the record as this run knows it. It takes e.mu itself.
func (e *Execution) current() *driver.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.work.seen
}

// observeStep reports an event about a step to the observer.
func (e *Execution) observeStep(ctx context.Context, kind event.Kind, step string) {
	o := e.attempt.opts
	event := o.event(ctx, kind, e.id, e.current(), nil)
	event.Step = step
	o.emit(ctx, event)
}

// keysForgotten reports whether the provider may have forgotten the downstream
// keys that earlier runs of this record used. Running one of their steps again
// with such a key would repeat its effect.
func (a *attempt) keysForgotten(now time.Time) bool {
	return !a.openBefore.IsZero() && !now.Before(a.openBefore.Add(a.opts.DownstreamRetention))
}

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
