package idempotent

import (
	"context"
	"errors"
	"reflect"

	"github.com/once-lambda/once/idempotent/driver"
)

// commitStep records what v points to as the result of a step, or reads what is
// recorded into it.
func (e *Execution) commitStep(ctx context.Context, name string, v any, write Transaction) error {
	value := reflect.ValueOf(v).Elem()
	s, recorded, err := e.beginStep(ctx, name, StepOptions{}, value.Type())
	switch {
	case err != nil:
		return err
	case recorded != nil:
		value.SetZero()
		return e.replayStep(ctx, *recorded, v)
	}
	done, err := e.encodeStep(s, value.Interface())
	if err != nil {
		e.undo(s)
		return err
	}
	ctx, cancel := e.attempt.opts.outcomeContext(ctx, e.attempt.window)
	defer cancel()
	err = e.record(ctx, done, name, write)
	var lost *LeaseLostError
	switch {
	case err == nil:
		e.observeStep(ctx, EventStepDone, name)
		// An earlier try that nobody had answered for may have been applied: what
		// stands in the record is the result.
		stands, _ := e.claim().Step(name)
		value.SetZero()
		return DecodeStep(stands, v)
	case errors.Is(err, ErrNotApplied), errors.Is(err, ErrStep), errors.Is(err, ErrSealed), errors.As(err, &lost):
		e.undo(s)
		return err
	}
	// The step may have been recorded, with the writes that belong to it, or may
	// be yet. The record tells when it is met; until then it is not done.
	err = storeError(e.id, "commit a step of", err)
	e.doubt(s, err)
	e.attempt.observe(ctx, EventStoreError, e.claim(), err)
	return err
}

// undo forgets a step whose transaction was not applied: it may be tried again
// in this run.
func (e *Execution) undo(s *stepRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return
	}
	e.forget(s)
	delete(e.runs, s.name)
}

// doubt takes back that a step is done: nobody knows. It may be tried again.
func (e *Execution) doubt(s *stepRun, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return
	}
	e.note(driver.StepRecord{Name: s.name, Mode: s.mode})
	e.work.doubtOf(s.name, doubt{err: err})
	delete(e.runs, s.name)
}
