// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// Commit completes the record with result in one transaction with other writes:
// either both happen or neither. The record stays completed, and every caller gets
// result, whatever the handler returns. Later calls of Step, Commit and SetRef
// return [ErrExecutionEnded].
//
// result is a value of the handler's result type, or a pointer to one. A value of
// another type is committed only if it decodes into that type and encodes to the same
// again; otherwise the error matches [ErrNotApplied] and names both types.
//
// An error that matches [ErrNotApplied] means that the writes of this call were not
// made and never will be, and that no earlier transaction of this run is in doubt.
// It says nothing about what the handler did before the transaction, so it declares
// nothing: the record follows the operation's [Recovery]. [*SettledError] means
// that the record is completed with another outcome, by evidence or by an earlier
// Commit of this run, and every caller gets that outcome. [*LeaseLostError] means
// that another request owns the record. In these cases the writes of this call were
// not made. A [*StoreError] means that this transaction, or an earlier one of this
// run, may or may not have been applied.
//
// After a StoreError the handler can call Commit again or return. Call Commit again
// with the same result and the same writes: create ids before the first call. If
// the earlier transaction was applied, Commit does not make the writes of this
// call; it returns nil if the result is equal, and a SettledError otherwise. If the
// handler returns a result without a Commit known to be applied, the result is not
// stored and its caller gets the error.
func (e *Execution) Commit(ctx context.Context, result any, write Transaction) error {
	return e.withDoubts(e.commit(ctx, result, write))
}

// withDoubts returns the error of a transaction of this run. If it says that the
// transaction was not applied while another one may have been, it becomes a
// [*StoreError], because a handler undoes its work after [ErrNotApplied].
func (e *Execution) withDoubts(err error) error {
	if !errors.Is(err, ErrNotApplied) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	earlier := cmp.Or(e.work.doubtedCommit(), e.work.doubtedStep())
	if earlier == nil {
		return err
	}
	// The texts of both errors, but neither of the errors: a handler that looks for
	// the reason of a refusal would undo what the earlier transaction needs.
	text := fmt.Sprintf("an earlier transaction of this run may have been applied: %s; this one was not: %s", earlier, err)
	return &StoreError{RecordID: e.id, Op: driver.OpTransact, Entered: true, Err: errors.New(text)}
}

// commit is Commit for a run without doubts: its error matches ErrNotApplied if
// this transaction was not applied.
func (e *Execution) commit(ctx context.Context, result any, write Transaction) error {
	a := e.attempt
	e.beginWrite()
	defer e.endWrite()
	if e.over() {
		return ErrExecutionEnded
	}
	out := outcome{state: driver.StateCompleted, reason: driver.ReasonCommitted}
	var err error
	if out.encoding, out.result, err = encodeResult(a.opts.Codec, result); err == nil {
		err = a.comesBack(result, out)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	ctx, cancel := a.window.TransactionContext(ctx)
	defer cancel()
	if r, own := e.standing(); r != nil {
		return e.agrees(ctx, r, own, out)
	}
	if e.stepDoubted() {
		return fmt.Errorf("%w: the result of a step's transaction is not known: call CommitStep again first", ErrNotApplied)
	}
	by := &commitWriter{e: e, out: out, kind: event.Completed}
	r := a.guard.apply(ctx, e.current(), &change{
		opts: a.opts, by: by, out: out, whole: true, transaction: write, rounds: maxRounds,
	})
	switch r.end {
	case endWritten:
		e.committed(ctx, r.record, r.out, out, by.kind)
		return nil
	case endApplied:
		e.applied(ctx, r.record)
		return e.agrees(ctx, r.record, true, out)
	case endStanding:
		e.stands(r.record)
		a.observeStanding(ctx, r.record, out)
		return &SettledError{RecordID: a.id, State: r.record.State}
	case endLost:
		a.observe(ctx, event.LeaseLost, r.record, r.err)
		return &LeaseLostError{RecordID: a.id}
	case endFailed:
		err = &StoreError{RecordID: a.id, Op: driver.OpTransact, Entered: true, Err: r.err}
		e.doubt(doubt{version: r.record.Version, err: err})
		a.observe(ctx, event.StoreError, r.record, err)
		return err
	default:
		if errors.As(r.err, new(*StoreError)) { // the result was not sealed, or its chunks were not stored
			err = entered(r.err)
			a.observe(ctx, event.StoreError, r.record, err)
			return fmt.Errorf("%w: the result cannot be stored: %w", ErrNotApplied, err)
		}
		if !errors.Is(r.err, ErrNotApplied) { // the record is too large, or other writes came first each time
			return fmt.Errorf("%w: %w", ErrNotApplied, r.err)
		}
		return r.err
	}
}

// comesBack returns an error unless every caller gets v, encoded as out, although the
// result of the handler may be of another type. A value of that type does, as does what a
// pointer to one points to. Another has to decode into it, and to encode to the same
// again; as JSON, the order and the spelling can differ.
func (a *attempt) comesBack(v any, out outcome) error {
	if t := reflect.TypeOf(v); t == a.result || t == reflect.PointerTo(a.result) && !reflect.ValueOf(v).IsNil() {
		return nil
	}
	if err := a.survives(out); err != nil {
		why := fmt.Sprintf("Commit got a %T, and the handler's result is a %s, which a retry would get instead; pass a %s, and return NotExecuted if nothing else happened", v, a.result, a.result)
		return fmt.Errorf("%w: %w", logs.Error(why), err)
	}
	return nil
}

// survives returns an error unless out decodes into the result of the handler, and that
// encodes to the same again.
func (a *attempt) survives(out outcome) error {
	c, back := a.opts.Codec, reflect.New(a.result)
	data, _ := unpack(out.encoding, c.Name(), out.result) // it has just been packed
	if err := decode(c, data, back.Interface()); err != nil {
		return err
	}
	encoding, again, _ := encodeResult(c, back.Elem().Interface()) // an error: nothing
	if bytes.Equal(again, out.result) {
		return nil
	}
	_, isJSON := c.(*jsonCodec)
	if again, _ = unpack(encoding, c.Name(), again); !isJSON || !sameJSON(again, data) {
		return errors.New("the value does not encode to the same again")
	}
	return nil
}

// over reports whether no later call of this run can change its record.
func (e *Execution) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended || e.work.committed != nil && !e.work.standing
}

// stepDoubted reports whether the transaction of a step may have been applied.
func (e *Execution) stepDoubted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.work.doubtedStep() != nil
}

// commitWriter writes the outcome of a handler that is still running.
type commitWriter struct {
	e    *Execution
	out  outcome
	kind event.Kind // event to report after the write
}

func (c *commitWriter) meet(current *driver.Record) bool {
	if current.State != driver.StateInProgress {
		c.kind = event.LateCompletion
	}
	return c.e.meet(current)
}

// judge returns how the transaction changes current. The handler is still
// running, so the record must not expire before its lease ends.
func (c *commitWriter) judge(ctx context.Context, current *driver.Record, now time.Time) judgement {
	e, out := c.e, c.out
	e.mu.Lock()
	defer e.mu.Unlock()
	a, w := e.attempt, &e.work
	next := *current
	next.Ref = w.ref
	next = a.opts.transition(&next, out.state, out.reason, now)
	keepUntilLeaseEnd(&next)
	switch decideLate(current, a.owner, a.fp, &next, now) {
	case lateContradict:
		return judgement{next: next, contradicts: true}
	case lateWrite:
		return judgement{next: next}
	case lateStanding:
		return judgement{end: endStanding}
	default:
		return judgement{end: endLost}
	}
}

// standing returns the completed record that a write of this run has found, unless a
// Commit has agreed with it since, and whether a transaction of this run stored it.
func (e *Execution) standing() (r *driver.Record, own bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.work.standing {
		return nil, false
	}
	return e.work.committed, e.work.wrote(e.work.committed.Version)
}

// agrees returns nil if out is the outcome of the completed record r, and a
// transaction of this run stored it.
func (e *Execution) agrees(ctx context.Context, r *driver.Record, own bool, out outcome) error {
	a := e.attempt
	same, err := a.guard.holds(ctx, a.opts, r, out)
	switch {
	case err != nil:
		return entered(err)
	case !same || !own:
		return &SettledError{RecordID: a.id, State: r.State}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.work.standing, e.work.result = false, out
	return nil
}

// CommitStep records result as the result of the named step, in one transaction
// with other writes. On a later attempt of the record it returns the recorded
// result and writes nothing. For names and results see [Step], for errors see
// [Execution.Commit]. ctx must belong to an execution, because without a record
// there is nothing to write result to.
func CommitStep[T any](ctx context.Context, name string, result T, write Transaction) (T, error) {
	e, ok := FromContext(ctx)
	if !ok {
		return result, &StepError{Step: name, Problem: "no execution in the context; call CommitStep in a guarded handler, with its context, and not in shadow mode"}
	}
	encoded, err := e.commitStep(ctx, name, &result, write)
	err = e.withDoubts(err)
	_ = asReplayed(stepCodec, encoded.Encoding, encoded.Result, &result) // a recorded result decodes
	return result, err
}

// commitStep records what v points to as the result of a step, and returns it
// encoded, or decodes the recorded result into it.
func (e *Execution) commitStep(ctx context.Context, name string, v any, write Transaction) (encoded driver.StepRecord, err error) {
	value := reflect.ValueOf(v).Elem()
	s, recorded, err := e.beginStep(ctx, name, StepOptions{}, false, value.Type())
	switch {
	case err != nil:
		return encoded, err
	case recorded != nil:
		value.SetZero()
		return encoded, e.replayStep(ctx, *recorded, v)
	}
	ctx, cancel := e.attempt.window.TransactionContext(ctx)
	defer cancel()
	encoded, done, err := e.encodeStep(ctx, s, value.Interface(), driver.StepByTransaction)
	if err == nil {
		recorded, err = e.record(ctx, done, write)
	}
	if errors.As(err, new(*StepError)) { // the result cannot be stored
		err = fmt.Errorf("%w: %w", ErrNotApplied, err)
	}
	switch {
	case err == nil && recorded == nil:
		e.observeStep(ctx, event.StepDone, name)
		return encoded, nil
	case err == nil && recorded.By != driver.StepByTransaction:
		// The name stays used, so that this run does not continue with the evidence.
		return encoded, fmt.Errorf("%w: %w", ErrNotApplied, &StepError{Step: name, Problem: "evidence finished it meanwhile, without the writes of this transaction"})
	case err == nil:
		// An earlier try of this step, which was not answered, was applied. The
		// recorded result is the result.
		value.SetZero()
		e.observeStep(ctx, event.StepDone, name)
		return driver.StepRecord{}, entered(decodeStep(ctx, e.attempt.opts.Seal, e.id, *recorded, v))
	case !errors.As(err, new(*StoreError)):
		e.dropStep(s)
		return encoded, err
	}
	// The step, with its transaction's writes, may have been recorded, or may still
	// be. This run finds out when it reads the record. Until then the step is not
	// done, and it may be tried again.
	e.again(s)
	e.attempt.observe(ctx, event.StoreError, e.current(), err)
	return encoded, err
}

// again lets this run use the name of a step once more.
func (e *Execution) again(s *stepRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, s.name)
}
