// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// consult asks Operation.Predecessor about the key of the claim held. It returns the
// completed record if the other system has done the work, and whether that is
// stored. It returns no record if the handler may run.
func (a *attempt) consult(ctx context.Context, key Key, held *driver.Record) (earlier *driver.Record, stored bool, err error) {
	result, found, err := a.opts.callPredecessor(ctx, key, a.window.HandlerEnd)
	w := &work{seen: held, steps: held.Steps, ref: held.Ref}
	out := outcome{state: driver.StateCompleted, reason: driver.ReasonPredecessor}
	final, stated := AsFinal(err)
	switch {
	case err == nil && !found:
		return nil, false, nil
	case err == nil:
		w.answered = true
		if out.encoding, out.result, err = encodeResult(a.opts.Codec, result); err != nil {
			return nil, false, a.undo(ctx, err)
		}
	case stated:
		w.answered = true
		out.encoding, out.result = driver.EncodingFinal, encodeFinal(final)
	case IsUnknown(err):
		out.state, out.err = driver.StateUnknown, err
		r := a.opts.transition(held, out.state, out.reason, a.opts.now())
		a.settle(ctx, w, out)
		return nil, false, a.opts.unresolved(&r, r.Since, nil)
	default:
		return nil, false, a.undo(ctx, err)
	}
	s := a.settle(ctx, w, out)
	switch {
	case s.lost:
		return nil, false, &LeaseLostError{RecordID: a.id}
	case s.standing != nil:
		return s.standing, true, nil
	case s.stored:
		return s.record, true, nil
	}
	r := *held // the work is done, so the caller gets the result although it is not stored
	setOutcome(&r, out)
	return &r, false, nil
}

// undo ends a claim that the predecessor refused with err, or could not be asked
// about, and returns the error for the caller. The record of a new key then counts
// as absent: it may be the predecessor's, for another request with this key.
func (a *attempt) undo(ctx context.Context, err error) error {
	switch {
	case errors.As(err, new(*InProgressError)):
		a.observe(ctx, event.InProgress, &a.mine, err)
	case errors.As(err, new(*MismatchError)):
		a.observe(ctx, event.Mismatch, &a.mine, err)
	default:
		err = &StoreError{RecordID: a.id, Op: driver.OpPredecessor, Err: err}
		a.observe(ctx, event.StoreError, &a.mine, err)
	}
	a.letGo(ctx, driver.ReasonPredecessor, err, a.undone)
	return err
}

// callPredecessor calls Operation.Predecessor with a context that ends at end. It
// returns a panic as an error: no handler runs, so the claim must not age until its
// outcome counts as unknown. The panic's value is left out, because it may contain a
// result.
func (o *Options) callPredecessor(ctx context.Context, key Key, end time.Time) (result any, found bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked with a %T", p)
		}
	}()
	return o.Predecessor(ctx, key)
}
