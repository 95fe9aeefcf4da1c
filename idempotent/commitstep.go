package idempotent

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// commitStep records what v points to as the result of a step, or decodes the
// recorded result into it. It returns the recorded step.
func (e *Execution) commitStep(ctx context.Context, name string, v any, write Transaction) (done driver.StepRecord, err error) {
	value := reflect.ValueOf(v).Elem()
	s, recorded, err := e.beginStep(ctx, name, StepOptions{}, false, value.Type())
	switch {
	case err != nil:
		return done, err
	case recorded != nil:
		value.SetZero()
		return *recorded, e.replayStep(ctx, *recorded, v)
	}
	done, err = e.encodeStep(s, value.Interface())
	if err != nil {
		e.leave(s)
		return done, err
	}
	done.By = driver.StepByTransaction
	ctx, cancel := e.attempt.opts.stepContext(ctx, e.attempt.window)
	defer cancel()
	recorded, err = e.record(ctx, done, write)
	switch {
	case err == nil && recorded == nil:
		e.observeStep(ctx, event.StepDone, name)
		return done, nil
	case err == nil && recorded.By != driver.StepByTransaction:
		// The name stays used, so that this run does not continue with the evidence.
		return done, fmt.Errorf("%w: %w", ErrNotApplied, &StepError{Step: name, Problem: "evidence finished it meanwhile, without the writes of this transaction"})
	case err == nil:
		// An earlier try of this step, which was not answered, was applied. The
		// recorded result is the result.
		value.SetZero()
		e.observeStep(ctx, event.StepDone, name)
		return *recorded, decodeStep(*recorded, v)
	case !errors.As(err, new(*StoreError)):
		e.leave(s)
		return done, err
	}
	// The step, with its transaction's writes, may have been recorded, or may still
	// be. This run finds out when it reads the record. Until then the step is not
	// done, and it may be tried again.
	e.again(s)
	e.attempt.observe(ctx, event.StoreError, e.claim(), err)
	return done, err
}

// again lets this run use the name of a step once more.
func (e *Execution) again(s *stepRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, s.name)
}
