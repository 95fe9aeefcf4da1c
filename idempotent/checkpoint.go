package idempotent

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/once-lambda/once/idempotent/driver"
)

// stepRun is one step of this run. It takes the execution's place in the
// context of the step's function.
type stepRun struct {
	execution *Execution
	name      string
	mode      StepMode
	before    *driver.StepRecord // what an earlier run left
}

// beginStep prepares to run a step: it returns what is recorded of it, or the
// step, which counts as begun from then on and, if it may run only once, is
// marked so in the store.
func (e *Execution) beginStep(ctx context.Context, name string, o StepOptions, result reflect.Type) (s *stepRun, recorded *driver.StepRecord, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := e.checkStep(ctx, name, o, result); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.sealed || e.work.committed != nil:
		return nil, nil, ErrSealed
	case e.runs[name] != nil:
		return nil, nil, &StepError{Step: name, Problem: "was used twice in one run; give every effect a name of its own, for example with a number behind a slash"}
	}
	s = &stepRun{execution: e, name: name, mode: o.Mode}
	if r, found := e.work.held.Step(name); found {
		if r.Finished {
			e.use(s)
			return nil, &r, nil
		}
		s.before = &r
	}
	e.note(driver.StepRecord{Name: name, Mode: o.Mode})
	if o.Mode == AtMostOnce {
		if err := e.checkpoint(ctx, "", e.attempt.guard.replace); err != nil {
			e.forget(s) // it does not run
			return nil, nil, err
		}
	}
	e.use(s)
	return s, nil, nil
}

// checkStep reports what is wrong with how the code asks for a step.
func (e *Execution) checkStep(ctx context.Context, name string, o StepOptions, result reflect.Type) error {
	if err := checkStepName(name); err != nil {
		return err
	}
	if outer, nested := ctx.Value(executionKey{}).(*stepRun); nested {
		return &StepError{Step: name, Problem: fmt.Sprintf("is inside the step %q; steps do not nest", outer.name)}
	}
	if !e.attempt.opts.declares(name) {
		return &StepError{Step: name, Problem: "is not declared in Options.Steps"}
	}
	if o.Mode > driver.AtMostOnce {
		return &StepError{Step: name, Problem: "has a mode that is neither AtLeastOnce nor AtMostOnce"}
	}
	if err := checkEncodable(result); err != nil {
		return &StepError{Step: name, Problem: fmt.Sprintf("has a result that cannot be recorded: %v", err)}
	}
	return nil
}

// replayStep reads the recorded result of a step into the value v points to.
func (e *Execution) replayStep(ctx context.Context, recorded driver.StepRecord, v any) error {
	if err := DecodeStep(recorded, v); err != nil {
		return err
	}
	e.observeStep(ctx, EventStepReplayed, recorded.Name)
	return nil
}

// leaveStep ends a step that failed. An error that proves that nothing happened
// undoes its beginning; the next write takes that along.
func (e *Execution) leaveStep(s *stepRun, err error) {
	if _, nothing := err.(*NotExecutedError); !nothing {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.sealed {
		e.forget(s)
	}
}

// finishStep records the result v of a step.
func (e *Execution) finishStep(ctx context.Context, s *stepRun, v any) error {
	done, err := e.encodeStep(s, v)
	if err != nil {
		return err
	}
	ctx, cancel := e.attempt.opts.outcomeContext(ctx, e.attempt.window)
	defer cancel()
	if err := e.record(ctx, done, "", e.attempt.guard.replace); err != nil {
		var failed *StoreError
		if !errors.As(err, &failed) {
			return err
		}
		// The effect has happened and its result is known. Stopping here would only
		// bring the moment nearer in which both are lost.
		e.attempt.observe(ctx, EventStoreError, e.claim(), err)
		return nil
	}
	e.observeStep(ctx, EventStepDone, s.name)
	return nil
}

// encodeStep returns the record of a step that returned v.
func (e *Execution) encodeStep(s *stepRun, v any) (driver.StepRecord, error) {
	done := driver.StepRecord{Name: s.name, Finished: true, Mode: s.mode}
	var err error
	if done.Encoding, done.Result, err = encodeResult(stepCodec, v); err != nil {
		return done, &StepError{Step: s.name, Problem: fmt.Sprintf("has a result that cannot be recorded: %v", err)}
	}
	if n := len(done.Result); n > maxStepResult {
		return done, &StepError{Step: s.name, Problem: fmt.Sprintf("has a result of %d bytes; a step may keep %d: return a reference to it", n, maxStepResult)}
	}
	return done, nil
}

// record writes that a step has finished.
func (e *Execution) record(ctx context.Context, done driver.StepRecord, once string, write Transaction) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed || e.work.committed != nil {
		return ErrSealed
	}
	kept := len(done.Result)
	for _, s := range e.work.held.Steps {
		kept += len(s.Result)
	}
	if kept > maxSteps {
		return &StepError{Step: done.Name, Problem: fmt.Sprintf("brings the results of all steps to %d bytes; a record may keep %d: return references", kept, maxSteps)}
	}
	e.note(done)
	err := e.checkpoint(ctx, once, write)
	if errors.Is(err, ErrTooLarge) {
		e.note(driver.StepRecord{Name: done.Name, Mode: done.Mode}) // or no later write would fit either
		return &StepError{Step: done.Name, Problem: "brings the record to more than the store can hold: return references"}
	}
	return err
}

// The functions below are called with e.mu held.

// use notes that this run has used the name of a step.
func (e *Execution) use(s *stepRun) {
	if e.runs == nil {
		e.runs = map[string]*stepRun{}
	}
	e.runs[s.name] = s
}

// note keeps what is known of a step for the next write.
func (e *Execution) note(s driver.StepRecord) {
	e.work.change(func(r *driver.Record) {
		s.Attempt, s.At = r.Attempt, e.attempt.opts.now()
		r.Steps = withStep(r.Steps, s)
	})
}

// forget undoes the beginning of a step.
func (e *Execution) forget(s *stepRun) {
	e.work.change(func(r *driver.Record) {
		if s.before != nil {
			r.Steps = withStep(r.Steps, *s.before)
		} else {
			r.Steps = withoutStep(r.Steps, s.name)
		}
	})
}

// checkpoint writes what is known of the steps, if the record is still this
// run's own and in progress. If once names a step, write does more than that,
// and is not repeated on a record in which the step is done. A *StoreError
// leaves open whether it was written.
func (e *Execution) checkpoint(ctx context.Context, once string, write Transaction) error {
	a := e.attempt
	for range maxSettleRounds {
		next := *e.work.held
		next.Version = a.random.draw()
		schedule(&next, a.opts.now(), a.opts)
		current, err := write(ctx, next, e.work.held.Version)
		current = foreign(current, next.Version)
		switch {
		case errors.Is(err, ErrNoRecord):
			return &LeaseLostError{RecordID: e.id}
		case err != nil:
			return err
		case current == nil:
			e.work.held = &next
			return nil
		case !mayCheckpoint(current, a.owner):
			return &LeaseLostError{RecordID: e.id}
		}
		e.work.meet(current) // an earlier write of ours, whose reply was lost
		if s, _ := current.Step(once); s.Finished {
			return nil
		}
	}
	return &StoreError{RecordID: e.id, Op: "replace", Err: fmt.Errorf("the record changed %d times while a step was being written", maxSettleRounds)}
}

// claim returns our claim as it is known.
func (e *Execution) claim() *driver.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.work.held
}

// observeStep tells the observer about a step. It is called without the lock:
// an observer may look at the execution.
func (e *Execution) observeStep(ctx context.Context, kind EventKind, step string) {
	o := e.attempt.opts
	if o.Observer == nil {
		return
	}
	event := o.event(ctx, kind, e.id.Operation(), e.claim(), nil)
	event.Step = step
	o.tell(ctx, event)
}
