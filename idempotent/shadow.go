// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// This file has shadow mode: see Options.Shadow. A request runs as if there were no guard.
// Beside its handler a goroutine finds out what the guard would have done, and writes
// records by which it can find out the same about the next request.

// shadowKey returns the key that of returns. Of is code of the user, so a panic in it must
// not become the answer of a request that runs as if there were no guard.
func shadowKey(ctx context.Context, o *Options, of func() (Key, error)) (key Key, err error) {
	err = logs.Error("idempotent: the KeyFunc panicked")
	logs.Shield(ctx, o.logger(), "idempotent: the KeyFunc", func() { key, err = of() })
	return key, err
}

// shadowed calls fn as if there were no guard, and reports what the guard would have done.
// keyErr is why there is no key.
func shadowed[T any](ctx context.Context, g *Guard, o *Options, key Key, keyErr error, fn func(context.Context) (T, error)) (value T, err error) {
	s := g.watch(ctx, o, key, keyErr, reflect.TypeFor[T]())
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit, which goes on after this
			s.end(ctx, func() outcome { return shadowFailure(logs.Error("idempotent: the handler panicked")) })
		}
	}()
	value, err = fn(withExecution(ctx, nil)) // an outer execution belongs to the outer effect
	returned = true
	s.end(ctx, func() outcome { return s.outcomeOf(ctx, value, err) })
	return value, err
}

// shadow is a request that runs as if there were no guard.
type shadow struct {
	id       RecordID
	declared *Options // as the operation declares them
	attempt  attempt  // by the options of shadow mode
	found    <-chan finding
	stop     context.CancelFunc // of the store's calls
}

// finding is what a guard would do with a request, as the key's record shows it.
type finding struct {
	kind   event.Kind
	record *driver.Record // the key's, if it was read or written
	held   bool           // record is this request's claim
	err    error
}

func foundFailure(err error) finding { return finding{kind: event.ShadowFailed, err: err} }

// watch begins to find out what the guard would do with a request.
func (g *Guard) watch(ctx context.Context, o *Options, key Key, keyErr error, result reflect.Type) *shadow {
	own := *o
	own.Observer = event.Observers() // a request has one event, that of its finding
	own.Recovery, own.Steps = Rerun, nil
	s := &shadow{id: RecordID(key.Operation + "#"), declared: o, stop: func() {}}
	if problem := notUsable(o, key, keyErr, result); problem.kind != "" {
		found := make(chan finding, 1)
		found <- problem
		s.found = found
		return s
	}
	s.attempt = g.begin(ctx, &own, key, result, own.now())
	s.id = s.attempt.id
	calls, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.found = s.beside(calls, s.find)
	return s
}

// notUsable returns the finding about a request whose key names no record, or whose result
// could not be stored. Its kind is empty if the key is usable.
func notUsable(o *Options, key Key, keyErr error, result reflect.Type) finding {
	if keyErr != nil {
		return finding{kind: event.ShadowNoKey, err: keyErr}
	}
	if err := key.validate(); err != nil {
		return finding{kind: event.ShadowNoKey, err: err}
	}
	if key.Fingerprint == (Fingerprint{}) {
		return finding{kind: event.ShadowNoKey, err: errNoFingerprint}
	}
	if err := storable(o.Codec, key.Operation, result); err != nil {
		return foundFailure(err)
	}
	return finding{}
}

// beside runs f, which calls the store, in a goroutine, where a panic would end the process.
func (s *shadow) beside(ctx context.Context, f func(context.Context) finding) <-chan finding {
	found := make(chan finding, 1)
	go func() {
		result := foundFailure(logs.Error("idempotent: the store, the Codec or the Sealer panicked"))
		logs.Shield(ctx, s.declared.logger(), "idempotent: the store, the Codec or the Sealer", func() { result = f(ctx) })
		found <- result
	}()
	return found
}

// find claims the key if it is new, or if an earlier request in shadow mode has left it to
// the next one. It changes no other record.
func (s *shadow) find(ctx context.Context) finding {
	a := &s.attempt
	for range maxClaimRounds {
		now := a.opts.now()
		a.mine = a.fresh(ctx, now)
		a.mine.Reason = driver.ReasonShadow
		existing, err := a.insert(ctx, a.mine, now)
		switch {
		case err != nil:
			return foundFailure(err)
		case existing == nil:
			return finding{kind: event.ShadowRun, record: &a.mine, held: true}
		}
		switch v := decide(existing, a.fp, now); {
		case v == verdictReinsert:
		case v == verdictTakeOver && existing.Reason == driver.ReasonShadow:
			a.mine = a.takeover(ctx, existing, now)
			a.mine.Reason = driver.ReasonShadow
			current, err := a.replace(ctx, a.mine, existing.Version)
			switch {
			case errors.Is(err, ErrNoRecord): // the store deleted the expired record first
			case err != nil:
				return foundFailure(err)
			case current == nil:
				return finding{kind: takeoverOf(existing), record: &a.mine, held: true}
			}
		default:
			return a.opts.findingOf(v, existing, a.fp, now)
		}
	}
	return foundFailure(&StoreError{RecordID: a.id, Op: driver.OpReplace, Err: errContended})
}

// findingOf returns what the guard would do with a request that ends with verdict v.
func (o *Options) findingOf(v verdict, r *driver.Record, fp Fingerprint, now time.Time) finding {
	f := finding{record: r}
	switch v {
	case verdictReplay:
		f.kind = event.ShadowReplayed
	case verdictTakeOver, verdictMarkUnknown:
		f.kind = takeoverOf(r)
	case verdictInProgress:
		f.kind = event.ShadowInProgress
	case verdictMismatch:
		f.kind = event.ShadowMismatch
	case verdictIncomparable:
		f.kind = event.ShadowUncompared
	case verdictUnresolved:
		f.kind = event.ShadowUnresolved
	default:
		_, err := o.refusal(v, r, fp, now)
		return foundFailure(err)
	}
	return f
}

// takeoverOf returns the kind of finding about a request whose key has the record r of a run
// that failed, or was killed.
func takeoverOf(r *driver.Record) event.Kind {
	if r.State == driver.StateInProgress {
		return event.ShadowKilled
	}
	return event.ShadowTakenOver
}

// outcomeOf returns what a retry would get if the handler returned value and err.
func (s *shadow) outcomeOf(ctx context.Context, value any, err error) outcome {
	final, isFinal := AsFinal(err)
	switch {
	case isFinal:
		return outcome{state: driver.StateCompleted, reason: driver.ReasonShadow, encoding: driver.EncodingFinal, result: encodeFinal(final)}
	case err != nil:
		return shadowFailure(err)
	}
	out := s.attempt.succeeded(ctx, nil, value)
	out.reason = driver.ReasonShadow
	return out
}

// shadowFailure returns the outcome of a handler without a result. Nothing waits for
// evidence in shadow mode, so the next request is to take over.
func shadowFailure(err error) outcome {
	return outcome{state: driver.StateRetryable, reason: driver.ReasonShadow, err: err}
}

// shadowTime is how much a request in shadow mode can take longer, at most.
const shadowTime = 250 * time.Millisecond

// end reports what the guard would have done with the request, whose handler has ended, and
// stores the outcome of a run. It lasts for shadowTime, or a tenth of the time left, at
// most, whatever the store does.
func (s *shadow) end(ctx context.Context, outcome func() outcome) {
	defer s.stop()
	patience := shadowTime
	if w := &s.attempt.window; w.Bounded {
		patience = min(patience, w.AnswerBy.Sub(s.attempt.opts.Now())/10)
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	f := arrives(limited, s.found)
	if f.held || f.kind == event.ShadowReplayed {
		out := outcome() // before the caller gets the value and can change it
		claimed := f
		f = arrives(limited, s.beside(limited, func(ctx context.Context) finding { return s.settle(ctx, claimed, out) }))
	}
	s.observe(ctx, f)
}

var errShadowLate error = logs.Error("idempotent: the store had not ended its part when the time was up that shadow mode may add to a request")

// arrives returns the finding that arrives before ctx ends.
func arrives(ctx context.Context, c <-chan finding) finding {
	select {
	case f := <-c:
		return f
	case <-ctx.Done():
		return foundFailure(errShadowLate)
	}
}

// settle stores the outcome of a run, or compares it with the outcome that is stored.
func (s *shadow) settle(ctx context.Context, f finding, out outcome) finding {
	a := &s.attempt
	if !f.held {
		return s.compare(ctx, f, out)
	}
	changed := a.guard.apply(ctx, f.record, &change{
		opts: a.opts, out: out,
		rounds: 1, // if another write came first, the lease has ended and another request has the key
		by: judgeFunc(func(current *driver.Record, now time.Time) judgement {
			return judgement{next: a.opts.transition(current, out.state, out.reason, now)}
		}),
	})
	if changed.end != endWritten {
		return foundFailure(storeError(a.id, driver.OpReplace, changed.err))
	}
	return finding{kind: f.kind, record: changed.record, err: changed.out.err}
}

// compare returns whether the outcome of a request is that of the record, which the guard
// would have replayed.
func (s *shadow) compare(ctx context.Context, f finding, out outcome) finding {
	a, r := &s.attempt, f.record
	f.err = out.err
	if r.Encoding == driver.EncodingOmitted || out.encoding == driver.EncodingOmitted ||
		r.Sealed() && a.opts.Seal == nil || r.ResultVersion != a.opts.ResultVersion {
		f.kind = event.ShadowUncompared
		return f
	}
	same, err := a.guard.holds(ctx, a.opts, r, out)
	switch {
	case err != nil:
		return foundFailure(err)
	case !same:
		f.kind = event.ShadowDiffers
	}
	return f
}

// observe reports the finding to the observer or, without one, to the log.
func (s *shadow) observe(ctx context.Context, f finding) {
	o := s.declared
	e := o.event(ctx, f.kind, s.id, f.record, f.err)
	e.Recovery = o.Recovery // the record has that of shadow mode
	if o.Observer == nil {
		event.LogObserver(o.Logger).Observe(ctx, e)
	}
	o.emit(ctx, e)
}
