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
	"github.com/once-lambda/once/internal/logs"
)

// Lookup returns the outcome that is stored for key, as [Do] would return it to a
// retry, without claiming the key and without running anything. It reads the
// record once, consistently and past the cache of [Options.CacheEntries]; it never
// writes. Pass the options that Do gets for the operation, because they decode the
// result. If key has no fingerprint, Lookup does not compare it.
//
// If there is no outcome, the error says what Do would have met:
//   - [ErrNoRecord]: Do would run, or store the answer of [Operation.Predecessor], which
//     Lookup does not ask. The key is new, or its record has expired. If Outcome.State is
//     [driver.StateRetryable], an earlier request ended without an outcome; under Resume
//     and Rerun it may have had effects.
//   - [*InProgressError]: another request is running.
//   - [*UnresolvedError]: an earlier request may have had its effect.
//
// Any other error is as that of Do: [*FinalError] if that is the outcome,
// [*MismatchError], [*ReplayUnavailableError], [*StoreError] or
// [*InvalidKeyError]. A record can change as soon as it was read: to decide whether
// work may run, call Do.
func Lookup[T any](ctx context.Context, g *Guard, key Key, optFns ...func(*Operation)) (out Outcome[T], err error) {
	o, err := g.options(optFns)
	if err != nil {
		return out, err
	}
	if err := key.validate(); err != nil {
		return out, err
	}
	id := key.RecordID()
	out.RecordID = id
	r, err := g.store.Get(ctx, id)
	if err != nil {
		return out, g.storeFailed(ctx, id, driver.OpGet, err)
	}
	fp := r.Fingerprint
	if key.Fingerprint != (Fingerprint{}) {
		fp = key.storedFingerprint()
	}
	now := o.now()
	v := decide(r, fp, now)
	if v == verdictReinsert {
		return out, fmt.Errorf("%w: %s has expired", ErrNoRecord, short(id))
	}
	out.State = r.State
	switch v {
	case verdictReplay:
	case verdictTakeOver:
		out.Ref = r.Ref
		return out, fmt.Errorf("%w with an outcome: %s ended without one, and the next request with its key runs", ErrNoRecord, short(id))
	case verdictMarkUnknown:
		return out, o.unresolved(r, now, nil)
	default:
		_, err := o.refusal(v, r, fp, now)
		return out, err
	}
	if r, err = g.withChunks(ctx, r); err == nil {
		err = decodeResult(ctx, o, r, &out.Value)
	}
	if err != nil && !errors.As(err, new(*FinalError)) {
		return Outcome[T]{RecordID: id, State: r.State}, err
	}
	out.Replayed = true
	out.takeFrom(r)
	return out, err
}

// Wrap returns a guarded version of h: for each key h runs once, and a retry gets
// the stored result. The returned function has an unnamed type, as
// lambda.StartHandlerFunc requires, and is safe for concurrent use.
//
// Unless key sets a fingerprint, Wrap computes it from the whole request. See
// [Do] for errors, context and panics.
//
// Wrap panics if an argument is nil, an option is invalid, or Req or Resp is not
// supported. Such programming errors then show at start-up, not after a payment.
//
// A Resp must decode from JSON to the value that was encoded, unless
// [Operation.Codec] stores it in another form. Two different Req values must have
// two different encodings. The following rules apply to both types:
//   - Every field must be encoded under its own name. A field that is not
//     exported, or that encoding/json drops because another field has its name,
//     is refused unless it is tagged `json:"-"`. A tagged field is zero in a
//     replay and is not part of the fingerprint.
//   - A type whose encoding method has a pointer receiver, such as big.Int, is
//     encoded through a pointer. It is refused as the value type of a map, where
//     that is not possible. A struct whose encoding method is promoted from an
//     embedded field and omits other fields is refused.
//   - An interface type with methods is refused. The type any is allowed, and its
//     content is not checked; it is replayed as map[string]any, []any, string,
//     bool, [json.Number] or nil.
//   - The tag ",string" is refused on strings and on types that encode
//     themselves. A tag that Go releases take in different ways, such as a name
//     with a quote, is refused.
//
// Two more rules apply to Resp: a type that encodes itself must also decode
// itself, and an embedded pointer must not point to an unexported struct. A
// result that decodes and then encodes to other bytes, or that contains text that
// is not Unicode, is not stored: the caller gets it, and a retry gets
// [*ReplayUnavailableError].
//
// To find how a struct with embedded fields encodes itself, Wrap calls its methods
// with values that it makes up.
//
// A nil and an empty slice or map are the same value under omitempty. Under
// omitzero, so are all values for which IsZero returns true.
//
// Wrap refuses the events of a durable execution: it panics for a type with their
// members, and otherwise returns an error and calls neither key nor h. The result
// of a durable handler can be a suspension, which must not be stored as the
// outcome.
func Wrap[Req, Resp any](
	g *Guard, key KeyFunc[Req], h func(context.Context, Req) (Resp, error), optFns ...func(*Operation),
) func(context.Context, Req) (Resp, error) {
	if g == nil || key == nil || h == nil {
		panic("idempotent: Wrap: the guard, the KeyFunc and the handler must not be nil")
	}
	o, err := g.options(optFns)
	if err != nil {
		panic(err)
	}
	if _, standard := o.Codec.(*jsonCodec); standard {
		if err := infoOf(reflect.TypeFor[Resp]()).Result; err != nil {
			panic(fmt.Errorf("idempotent: Wrap: unsupported result type: %w; or set Operation.Codec", err))
		}
	}
	if err := infoOf(reflect.TypeFor[Req]()).Request; err != nil {
		panic(fmt.Errorf("idempotent: Wrap: unsupported request type: %w; or call Do with a fingerprint", err))
	}
	inspected, err := suspendable(reflect.TypeFor[Req]())
	if err != nil {
		panic(err)
	}
	return func(ctx context.Context, req Req) (Resp, error) {
		work := func(ctx context.Context) (Resp, error) { return h(ctx, req) }
		if o.Shadow {
			k, err := shadowKey(ctx, o, func() (Key, error) { return wrapKey(ctx, o, key, req, inspected) })
			return shadowed(ctx, g, o, k, err, work)
		}
		k, err := wrapKey(ctx, o, key, req, inspected)
		if err != nil {
			var none Resp
			return none, outward(ctx, err)
		}
		out, err := do(ctx, g, o, k, work)
		return out.Value, err
	}
}

// wrapKey returns the key of req with its fingerprint. It leaves other errors in
// the key for do to report. inspected reports whether req can belong to a durable execution.
func wrapKey[Req any](ctx context.Context, o *Options, key KeyFunc[Req], req Req, inspected bool) (Key, error) {
	if inspected && suspends(req) {
		return Key{}, errSuspendable
	}
	if o.Disabled {
		return Key{}, nil
	}
	k, err := key(ctx, req)
	if err != nil || k.Fingerprint != (Fingerprint{}) || k.validate() != nil {
		return k, err
	}
	k.Fingerprint, err = FingerprintOf(req)
	return k, err
}

// Outcome is the result of [DoOutcome]: the value, and where it came from.
type Outcome[T any] struct {
	Value T
	// RecordID is the id of the key's record; empty if the request ran unguarded.
	RecordID RecordID
	// Replayed reports whether the value, or the Final error, is a stored one: the
	// function was not called, or the outcome of another run was stored first.
	Replayed bool
	// Stored reports whether a retry within the retention gets this outcome. It is
	// false after an error that was not stored, and if the function succeeded but
	// its result could not be stored.
	Stored bool
	// Expires is when the stored outcome expires. Zero if the outcome is not stored.
	Expires time.Time
	// Ref is the resource reference that the handler set, if the outcome is stored.
	// See [Execution.SetRef].
	Ref string
	// State is the state of the record, for [Lookup] only. Zero if there is no record.
	State driver.State
}

// Do runs fn once for key and returns its result; later calls with an equal key
// within the retention return the stored result. It returns fn's own error
// unchanged, and otherwise one of this package's error types, such as
// [*InProgressError]. The key must have a fingerprint: see [FingerprintOf].
//
// The context passed to fn ends [Operation.DeadlineReserve] before the deadline of
// ctx and carries the [Execution]. If fn has not returned soon after that, a killed
// process is likely: Do writes the record once more, so that a reconciler finds it
// when its lease ends. If fn panics, Do records that and panics again with the same
// value.
func Do[T any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (T, error), optFns ...func(*Operation)) (T, error) {
	out, err := DoOutcome(ctx, g, key, fn, optFns...)
	return out.Value, err
}

// DoOutcome is [Do] for adapters: it also returns where the result came from.
func DoOutcome[T any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (T, error), optFns ...func(*Operation)) (out Outcome[T], err error) {
	o, err := g.options(optFns)
	if err != nil {
		return out, err
	}
	if o.Shadow {
		out.Value, err = shadowed(ctx, g, o, key, nil, fn)
		return out, err
	}
	return do(ctx, g, o, key, fn)
}

func do[T any](ctx context.Context, g *Guard, o *Options, key Key, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	if out, err = doBare(ctx, g, o, key, fn); err != nil {
		err = outward(ctx, err)
	}
	return out, err
}

// outward returns the error err of a guarded call for the caller with ctx. A
// declaration in an inner call's error does not apply to the operation around it.
// The outermost caller gets the original error.
func outward(ctx context.Context, err error) error {
	if _, inside := FromContext(ctx); inside {
		return &errtype.InnerError{Err: err}
	}
	return bare(err)
}

func doBare[T any](ctx context.Context, g *Guard, o *Options, key Key, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	if o.Disabled {
		g.warnDisabled(ctx, o)
		return unguarded(ctx, fn)
	}
	if err := key.validate(); err != nil {
		if err.Field != keyID {
			return out, err
		}
		o.observe(ctx, event.KeyMissing, RecordID(key.Operation+"#"), nil, err)
		if o.AllowMissingKey {
			return unguarded(ctx, fn)
		}
		return out, err
	}
	if err := storable(o.Codec, key.Operation, reflect.TypeFor[T]()); err != nil {
		return out, err
	}
	if key.Fingerprint == (Fingerprint{}) {
		return out, errNoFingerprint
	}

	now := o.now()
	a := g.begin(ctx, o, key, reflect.TypeFor[T](), now)
	out.RecordID = a.id
	a.enter(phaseClaim)
	defer a.ended(ctx, &err) // also when the handler panics
	claiming, claimed := a.window.ClaimContext(ctx)
	defer claimed()
	held, replay, err := a.claim(claiming, now)
	if err != nil {
		return out, err
	}
	if replay != nil {
		return recall(claiming, &a, replay, out)
	}

	if o.Predecessor != nil && !held.PredecessorAnswered {
		earlier, stored, err := a.consult(ctx, key, held)
		if err != nil {
			return out, err
		}
		if earlier != nil {
			out, err = recallLate(ctx, &a, earlier, out)
			out.Stored = out.Stored && stored
			return out, err
		}
	}

	// The claim took time: check whether enough is left for the handler.
	if left := a.window.HandlerEnd.Sub(o.now()); left < a.window.TimeToEnter(a.lastCall) || ctx.Err() != nil {
		err := noTime(ctx, left)
		a.release(ctx, driver.ReasonNoTime, err)
		return out, err
	}
	return run(ctx, &a, held, fn, out)
}

// unguarded runs fn without a record. It hides an outer execution from fn,
// because the outer downstream key belongs to the outer effect.
func unguarded[T any](ctx context.Context, fn func(context.Context) (T, error)) (out Outcome[T], err error) {
	out.Value, err = fn(withExecution(ctx, nil))
	return out, err
}

// run calls fn under the claim held and settles its outcome.
func run[T any](ctx context.Context, a *attempt, held *driver.Record, fn func(context.Context) (T, error), out Outcome[T]) (Outcome[T], error) {
	a.entered = true
	execution := newExecution(a, held)
	handlerCtx, cancel := context.WithDeadline(withExecution(ctx, execution), a.window.HandlerEnd)
	defer cancel()
	defer execution.announceLater(handlerCtx).Stop()

	returned := false
	defer func() {
		if returned {
			return
		}
		// A panic, or runtime.Goexit, for which recover returns nil.
		p := recover()
		a.enter(phaseNone)
		err, isError := p.(error)
		if !isError {
			err = logs.Error("idempotent: the handler panicked")
		}
		if w := execution.end(); w.committed != nil {
			a.observe(ctx, event.Contradicted, w.committed, err)
		} else {
			a.settle(ctx, w, outcomeOf(err, w, true))
		}
		if p != nil {
			panic(p)
		}
	}()
	a.enter(phaseHandler)
	value, err := fn(handlerCtx)
	returned = true
	a.enter(phaseNone)

	w := execution.end()
	switch {
	case w.committed != nil && (err != nil || w.standing):
		// The committed outcome is final, even if the handler then returns an error, or
		// the result of a later Commit.
		if !w.standing {
			a.observe(ctx, event.Contradicted, w.committed, err)
		}
		return recallLate(ctx, a, w.committed, out)
	case w.committed != nil:
		// Every retry gets the committed result, so the first caller gets it too,
		// whatever the handler returned.
		_ = asStored(a.opts.Codec, w.result.encoding, w.result.result, &value)
		out.Value = value
		out.takeFrom(w.committed)
		return out, nil
	case err == nil || IsNotExecuted(err) || isFinal(err):
		// Do not store a result or a declaration while it is open whether a transaction
		// of the handler was applied. The caller gets the transaction's error instead.
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
		return recallLate(ctx, a, s.standing, out)
	case s.lost:
		return out, &LeaseLostError{RecordID: a.id}
	}
	if s.stored {
		// The first caller gets the same value as every replay. A result that does not
		// decode was not stored.
		_ = asReplayed(a.opts.Codec, result.encoding, result.result, &value)
		out.takeFrom(s.record)
	}
	out.Value = value
	return out, nil
}

// announceAfter is how long after the end of its context a handler may return before
// the run announces itself, at most: a fifth of Operation.DeadlineReserve, if that is
// shorter.
const announceAfter = 100 * time.Millisecond

// announceLater returns a timer that announces the run if the handler does not return
// soon after the end of ctx, its context. The process is then about to be killed, and
// a killed process writes nothing: the announced record is in the list of due records
// when its lease ends. The caller stops the timer when the handler returns.
func (e *Execution) announceLater(ctx context.Context) *time.Timer {
	w, now := &e.attempt.window, e.attempt.opts.now()
	patience := min(announceAfter, w.Deadline.Sub(w.HandlerEnd)/5)
	return time.AfterFunc(w.HandlerEnd.Sub(now)+patience, func() { e.announce(ctx) })
}

// announce writes the record as announced, if the run has not ended and its record
// waits for evidence when its lease ends. It ignores errors: a scan finds what is not
// announced.
func (e *Execution) announce(ctx context.Context) {
	e.beginWrite() // a transaction can have held it until now
	defer e.endWrite()
	ctx, cancel := e.attempt.window.AnnounceContext(ctx)
	defer cancel()
	if e.mayAnnounce() {
		_, _ = e.writeSteps(ctx, announcement, nil)
	}
}

func (e *Execution) mayAnnounce() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended && e.work.committed == nil && !e.work.seen.Due.IsZero()
}

// failed settles the work w of a function that returned err.
func failed[T any](ctx context.Context, a *attempt, w *work, err error, out Outcome[T]) (Outcome[T], error) {
	s := a.settle(ctx, w, outcomeOf(err, w, false))
	a.guard.hint(ctx, a.opts, w.seen, s.as, err)
	switch {
	case s.standing != nil:
		return recallLate(ctx, a, s.standing, out)
	case s.lost:
		return out, &LeaseLostError{RecordID: a.id, Err: err}
	}
	if s.stored && s.as.state == driver.StateCompleted {
		out.takeFrom(s.record)
	}
	return out, err
}

// takeFrom records in out that r stores it.
func (out *Outcome[T]) takeFrom(r *driver.Record) {
	out.Stored, out.Expires, out.Ref = true, r.Expires, r.Ref
}

// recallLate is recall after the claim: it has the time until the answer.
func recallLate[T any](ctx context.Context, a *attempt, r *driver.Record, out Outcome[T]) (Outcome[T], error) {
	ctx, cancel := context.WithTimeout(ctx, a.window.UntilAnswer())
	defer cancel()
	return recall(ctx, a, r, out)
}

// recall returns the stored outcome of r.
func recall[T any](ctx context.Context, a *attempt, r *driver.Record, out Outcome[T]) (Outcome[T], error) {
	var err error
	if r.Chunks.Count > 0 {
		r, err = a.guard.withChunks(ctx, r)
	}
	if err == nil {
		err = decodeResult(ctx, a.opts, r, &out.Value)
	}
	if a.entered {
		err = entered(err)
	}
	if final := (*FinalError)(nil); err != nil && !errors.As(err, &final) {
		a.observe(ctx, event.ReplayFailed, r, err)
		return Outcome[T]{RecordID: out.RecordID}, err
	}
	a.remember(r, r.Result)
	a.observe(ctx, event.Replayed, r, nil)
	out.Replayed, out.Stored, out.Expires, out.Ref = true, true, r.Expires, r.Ref
	return out, err
}
