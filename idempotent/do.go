package idempotent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Outcome is what [DoOutcome] returns: the value, and how it came about.
type Outcome[T any] struct {
	Value T
	// RecordID is the id of the key's record; empty where the request ran
	// unguarded.
	RecordID RecordID
	// Replayed: the value, or the Final error, is a stored one. The function
	// was not called, or another run's outcome stands.
	Replayed bool
	// Stored: a retry within the retention gets this outcome. It is false after
	// an error that was not stored, and when the function succeeded but its
	// result could not be kept.
	Stored bool
	// Expires is when a stored outcome stops being replayed. Zero if it is not
	// stored.
	Expires time.Time
	// Ref is what the handler set as resource reference, if the outcome is
	// stored. See [Execution.SetRef].
	Ref string
}

// Do runs fn once for key and returns its result; every later Do with an equal
// key within the retention returns the stored one. It returns fn's own error
// as it is, and otherwise one of the errors that begin with Err. A key needs a
// fingerprint here: see [FingerprintOf].
//
// The context handed to fn ends [Options.DeadlineReserve] before the deadline
// of ctx and carries the [Execution]. If fn panics, that is recorded and the
// panic goes on.
func Do[T any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (T, error), optFns ...func(*Options)) (T, error) {
	out, err := DoOutcome(ctx, g, key, fn, optFns...)
	return out.Value, err
}

// DoOutcome is [Do] for adapters: it also tells how the result came about.
func DoOutcome[T any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (T, error), optFns ...func(*Options)) (Outcome[T], error) {
	o, err := g.options(optFns)
	if err != nil {
		return Outcome[T]{}, err
	}
	return do(ctx, g, o, key, fn)
}

func do[T any](ctx context.Context, g *Guard, o *Options, key Key, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	out, err = doBare(ctx, g, o, key, fn)
	if err == nil {
		return out, nil
	}
	// What an inner call returns declares nothing for the operation around it; the
	// outermost caller gets the error that it was.
	if _, inside := FromContext(ctx); inside {
		return out, &innerError{err}
	}
	return out, bare(err)
}

func doBare[T any](ctx context.Context, g *Guard, o *Options, key Key, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	if o.Disabled {
		g.warnDisabled(ctx, o)
		return unguarded(ctx, fn)
	}
	if err := key.validate(); err != nil {
		if !errors.As(err, new(*NoKeyError)) {
			return out, err
		}
		o.observe(ctx, event.KeyMissing, key.Operation, nil, err)
		if o.AllowMissingKey {
			return unguarded(ctx, fn)
		}
		return out, err
	}
	if _, standard := o.Codec.(*jsonCodec); standard {
		if err := checkResult(reflect.TypeFor[T]()); err != nil {
			return out, fmt.Errorf("idempotent: %s: the result cannot be stored: %w; change the type or set Options.Codec", key.Operation, err)
		}
	}
	if key.Fingerprint == (Fingerprint{}) {
		return out, &InvalidKeyError{Field: "Fingerprint", Problem: "is not set; use FingerprintOf on the request, or what of it matters"}
	}

	now := o.now()
	a := g.begin(ctx, o, key, now)
	out.RecordID = a.id
	held, replay, err := a.claim(ctx, now)
	if err != nil {
		return out, err
	}
	if replay != nil {
		return recall(ctx, &a, replay, out)
	}

	// The claim took time: is there enough left for the handler?
	if left := a.window.handlerEnd.Sub(o.now()); left < a.window.timeToEnter(a.lastCall) || ctx.Err() != nil {
		err := noTime(ctx, left)
		a.release(ctx, driver.ReasonNoTime, err)
		return out, err
	}
	return run(ctx, &a, held, fn, out)
}

// unguarded runs fn without a record. An outer execution does not reach in:
// its downstream key belongs to its own effect.
func unguarded[T any](ctx context.Context, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	out.Value, err = fn(withExecution(ctx, nil))
	return out, err
}

// run enters fn under the claim held and settles what comes of it.
func run[T any](ctx context.Context, a *attempt, held *driver.Record, fn func(context.Context) (T, error), out Outcome[T]) (Outcome[T], error) {
	execution := &Execution{id: a.id, attempt: a, work: work{seen: held, steps: held.Steps, ref: held.Ref}}
	handlerCtx, cancel := context.WithDeadline(withExecution(ctx, execution), a.window.handlerEnd)
	defer cancel()

	returned := false
	defer func() {
		if returned {
			return
		}
		// A panic, or runtime.Goexit, for which recover returns nil.
		p := recover()
		err, isError := p.(error)
		if !isError {
			err = errors.New("idempotent: the handler panicked")
		}
		if w := execution.seal(); w.committed != nil {
			a.observe(ctx, event.Contradicted, w.committed, err)
		} else {
			a.settle(ctx, w, outcomeOf(err, w, true))
		}
		if p != nil {
			panic(p)
		}
	}()
	value, err := fn(handlerCtx)
	returned = true

	w := execution.seal()
	switch {
	case w.committed != nil && err != nil:
		// What was committed stands, whatever the handler made of it.
		a.observe(ctx, event.Contradicted, w.committed, err)
		return recall(ctx, a, w.committed, out)
	case w.committed != nil:
		_ = asReplayed(a.opts.Codec, w.committed.Encoding, w.committed.Result, &value)
		out.Value = value
		out.settled(w.committed)
		return out, nil
	case err == nil || IsNotExecuted(err) || isFinal(err):
		// Neither a result nor a declaration may stand while a transaction of the
		// handler may or may not have been applied: the caller gets the doubt.
		if doubt := w.doubted(); doubt != nil {
			err = doubt
		}
	}
	if err != nil {
		return failed(ctx, a, w, err, out)
	}
	result := a.succeeded(ctx, held, value)
	s := a.settle(ctx, w, result)
	switch {
	case s.standing != nil:
		return recall(ctx, a, s.standing, out)
	case s.lost:
		return out, &LeaseLostError{RecordID: a.id}
	}
	if s.stored {
		// The first caller gets what every replay will be. What does not decode was
		// not stored.
		_ = asReplayed(a.opts.Codec, result.encoding, result.result, &value)
		out.settled(s.record)
	}
	out.Value = value
	return out, nil
}

// failed settles the work w, whose function returned err.
func failed[T any](ctx context.Context, a *attempt, w *work, err error, out Outcome[T]) (Outcome[T], error) {
	result := outcomeOf(err, w, false)
	a.guard.hint(ctx, a.opts, w.seen, result, err)
	s := a.settle(ctx, w, result)
	switch {
	case s.standing != nil:
		return recall(ctx, a, s.standing, out)
	case s.lost:
		return out, &LeaseLostError{RecordID: a.id, Err: err}
	}
	if s.stored && result.state == driver.StateCompleted {
		out.settled(s.record)
	}
	return out, err
}

// settled notes in out that the record r stores it.
func (out *Outcome[T]) settled(r *driver.Record) {
	out.Stored, out.Expires, out.Ref = true, r.Expires, r.Ref
}

// recall returns the stored outcome of r.
func recall[T any](ctx context.Context, a *attempt, r *driver.Record, out Outcome[T]) (Outcome[T], error) {
	r, err := a.guard.withChunks(ctx, r)
	if err == nil {
		err = decodeResult(a.opts, r, &out.Value)
	}
	if final := (*FinalError)(nil); err != nil && !errors.As(err, &final) {
		a.observe(ctx, event.ReplayFailed, r, err)
		return Outcome[T]{RecordID: out.RecordID}, err
	}
	a.guard.cache.put(r, a.opts.now())
	a.observe(ctx, event.Replayed, r, nil)
	out.Replayed, out.Stored, out.Expires, out.Ref = true, true, r.Expires, r.Ref
	return out, err
}

// succeeded returns the outcome of a function that returned value. A result
// that cannot be encoded is left out: the effect has happened and the caller
// gets the value.
func (a *attempt) succeeded(ctx context.Context, held *driver.Record, value any) outcome {
	out := outcome{state: driver.StateCompleted, reason: driver.ReasonResult}
	var err error
	if out.encoding, out.result, err = encodeResult(a.opts.Codec, value); err != nil {
		a.observe(ctx, event.CompletionFailed, held, err)
		return out.omitted(err)
	}
	return out
}
