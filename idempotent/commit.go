package idempotent

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Commit completes the record with result in one transaction with other
// writes: then both happened, or neither did. The result is what the handler
// returns afterwards; the record is completed whatever it does, and Step, Commit
// and SetRef are refused from then on.
//
// An error that matches [ErrNotApplied] is the transaction's own: the record is
// as it was, and the handler decides what that means. [ErrSettled] says that
// somebody else has settled the record meanwhile, for example a webhook, and
// [ErrLeaseLost] that another request owns it; nothing was written. Any other
// error is a [*StoreError] and leaves open whether the transaction was applied.
// The handler may call Commit again or return; a result that it returns without
// a Commit known to be applied is not stored, and its caller gets the error.
func (e *Execution) Commit(ctx context.Context, result any, write Transaction) error {
	a := e.attempt
	out := outcome{state: driver.StateCompleted, reason: driver.ReasonCommitted, version: a.opts.ResultVersion}
	var err error
	if out.encoding, out.result, err = encodeResult(a.opts.Codec, result); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := a.opts.outcomeContext(ctx, a.window)
	defer cancel()
	c := &commit{execution: e, out: out, write: write, kind: EventCompleted}
	err = c.run(ctx)
	for _, f := range c.facts { // outside the lock: an observer may look at the execution
		a.observe(ctx, f.kind, f.record, f.err)
	}
	return err
}

// commit is one call of Commit.
type commit struct {
	execution *Execution
	out       outcome
	write     Transaction
	kind      EventKind
	facts     []fact
}

// fact is an event that is still to be told.
type fact struct {
	kind   EventKind
	record *driver.Record
	err    error
}

func (c *commit) tell(kind EventKind, r *driver.Record, err error) {
	c.facts = append(c.facts, fact{kind, r, err})
}

// run repeats the transaction while the record is this run's own: never the
// completion without the writes that belong to it.
func (c *commit) run(ctx context.Context) error {
	e := c.execution
	a, w := e.attempt, &e.work
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed || w.committed != nil {
		return ErrSealed
	}
	earlier := w.doubts[""].version
	if err := w.doubtedStep(); err != nil {
		return fmt.Errorf("%w: a step's transaction is in doubt: %w", ErrNotApplied, err)
	}
	for range maxSettleRounds {
		// A write id of its own for each round: it names the request to the store,
		// and this one is another request.
		next := a.opts.transition(w.held, c.out.state, c.out.reason, a.random.draw(), a.opts.now())
		out := c.out
		if a.guard.keepsBeside(out) {
			var err error
			if out, err = a.putCommitted(ctx, &next, out); err != nil {
				c.tell(EventStoreError, &next, err)
				return fmt.Errorf("%w: its result cannot be kept: %w", ErrNotApplied, err)
			}
		}
		setOutcome(&next, out)
		current, err := c.write(ctx, next, w.held.Version)
		switch {
		case errors.Is(err, ErrNotApplied) || errors.Is(err, ErrTooLarge):
			return err
		case errors.Is(err, ErrNoRecord):
			c.tell(EventLeaseLost, &next, err)
			return &LeaseLostError{RecordID: a.id}
		case err != nil:
			err = storeError(a.id, "commit", err)
			w.doubtOf("", doubt{err, next.Version})
			c.tell(EventStoreError, &next, err)
			return err
		case current == nil || current.Version == next.Version:
			c.applied(&next)
			return nil
		case current.Version == earlier:
			c.applied(current) // the one that nobody had answered for
			return nil
		}
		if err := c.met(current); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the record changed %d times meanwhile", ErrNotApplied, maxSettleRounds)
}

// applied notes that r, completed, is in the store.
func (c *commit) applied(r *driver.Record) {
	e := c.execution
	whole := *r
	whole.Result = c.out.result
	e.work.committed = &whole
	e.attempt.guard.cache.put(&whole, e.attempt.opts.now())
	c.tell(c.kind, &whole, nil)
}

// met judges the record that stands in the transaction's way, and prepares the
// next round if it is still this run's own.
func (c *commit) met(current *driver.Record) error {
	e := c.execution
	a := e.attempt
	switch decideLate(current, a.owner, a.fp, driver.StateCompleted, a.opts.now()) {
	case lateContradict:
		c.tell(EventContradicted, current, nil)
		c.kind = EventLateCompletion
	case lateWrite:
		if current.State != driver.StateInProgress {
			c.kind = EventLateCompletion
		}
	case lateStanding:
		c.tell(EventContradicted, current, nil)
		return &SettledError{RecordID: a.id, State: current.State}
	default:
		c.tell(EventLeaseLost, current, nil)
		return &LeaseLostError{RecordID: a.id}
	}
	e.work.meet(current)
	return nil
}

// putCommitted keeps a large result beside the record next.
func (a *attempt) putCommitted(ctx context.Context, next *driver.Record, out outcome) (outcome, error) {
	ctx, cancel := withinTwoThirds(ctx)
	defer cancel()
	return a.guard.putChunks(ctx, a.id, next.Version, out, next.Expires)
}

// CommitStep records result as that of the step of this name, in one
// transaction with other writes. On a later attempt of the record it returns
// the recorded result and writes nothing. What is said of [Step] about names and
// results holds here, and what is said of [Execution.Commit] about errors. ctx
// has to belong to an execution: without a record there is nothing to write it
// with.
func CommitStep[T any](ctx context.Context, name string, result T, write Transaction) (T, error) {
	e, ok := FromContext(ctx)
	if !ok {
		return result, &StepError{Step: name, Problem: "has no execution to be recorded in; call it in a guarded handler, with its context"}
	}
	err := e.commitStep(ctx, name, &result, write)
	return result, err
}
