// SPDX-License-Identifier: Apache-2.0

// Package model is the oracle of the explorer: the design of one key, as a small
// sequential machine that shares no code with the guard. A request claims, its handler
// reports, evidence resolves, time passes. The explorer in the folder explore runs every
// schedule of a few actors, and compares each write with Key.
package model

import (
	"cmp"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// State is the state of a key's record, in the letters that the stores use.
type State byte

const (
	None       State = 0 // there is no record
	InProgress State = 'I'
	Completed  State = 'C'
	Retryable  State = 'R'
	Unknown    State = 'U'
)

func (s State) String() string {
	if s == None {
		return "none"
	}
	return string(s)
}

// Policy is what all guards declare about time, in milliseconds.
type Policy struct {
	Margin         int64 // from the deadline to the end of the lease
	Retention      int64 // declared by the guard that submits evidence
	ReconcileAfter int64
}

// Recovery is the promise of an operation.
type Recovery byte

const (
	Reconcile Recovery = iota
	Resume
	Rerun
)

// Request is one request with the key, and what its code declares.
type Request struct {
	Owner       int // names the attempt; no two are equal
	Fingerprint int
	Recovery    Recovery
	Retention   int64
	Deadline    int64

	// What the attempt knows when it ends.
	OpenBefore int64 // the OpenSince at its claim
	Step       Step
	Forgotten  bool // its step did not run: the provider may have forgotten the key
}

// Step is the record of the only step of the handlers. The zero Step has not
// begun.
type Step struct {
	Begun    bool
	Once     bool // it is an AtMostOnce step
	Finished bool
	Value    string
}

// Kind is how a handler ended, or the kind of evidence.
type Kind string

const (
	Result      Kind = "result"
	NotExecuted Kind = "not executed"
	Maybe       Kind = "unknown"
	Failed      Kind = "failed"    // an error or a panic that declares nothing
	StepDone    Kind = "step done" // of evidence only
)

// Outcome is the end of a handler, or evidence about it.
type Outcome struct {
	Kind  Kind
	Value string // of Result
}

// Key is everything that is known about a key. The zero Key has no record. It is a value:
// an operation returns the next one.
type Key struct {
	State       State
	Fingerprint int
	Recovery    Recovery // that the last run declared
	Retention   int64    // likewise
	Owner       int
	Attempt     int
	LeaseEnd    int64
	Expires     int64 // 0: never
	Due         int64 // when reconciliation is due; 0: never
	Step        Step
	OpenSince   int64 // since when effects under Resume are open; 0: no open effect
	Announced   bool  // it is in progress, and its process was about to be killed
}

func (k Key) absent(now int64) bool {
	return k.State == None || k.Expires != 0 && k.Expires <= now
}

func (k Key) leased(now int64) bool { return now < k.LeaseEnd }

// runsAgain reports whether the key may run again without evidence.
func (k Key) runsAgain() bool {
	return k.Recovery != Reconcile && !(k.Step.Begun && k.Step.Once && !k.Step.Finished)
}

// open reports whether an effect may have happened that is not recorded.
func (k Key) open() bool { return k.OpenSince != 0 || k.Step.Begun && !k.Step.Finished }

// resumable reports whether a retryable key has earlier effects.
func (k Key) resumable() bool {
	return k.State == Retryable && k.Recovery == Resume && (k.Step.Begun || k.open())
}

// written returns k after one more write, with its expiry: retention runs from
// the moment an outcome is stored. A record that money may depend on is stored
// until evidence comes.
func (p Policy) written(k Key, now int64) Key {
	k.Expires, k.Due = 0, 0
	switch {
	case k.State == InProgress && k.Recovery == Rerun && k.runsAgain():
		k.Expires = k.LeaseEnd + k.Retention
	case k.State == InProgress:
		k.Due = k.LeaseEnd
	case k.State == Unknown, k.resumable():
		k.Due = now + p.ReconcileAfter
	default:
		k.Expires = now + k.Retention
	}
	k.Announced = k.Announced && k.State == InProgress && k.Due != 0
	return k
}

// in returns k after a write that changes it to a state.
func (p Policy) in(k Key, s State, now int64) Key {
	k.State = s
	if s == Completed {
		k.Step, k.OpenSince = Step{}, 0
	}
	return p.written(k, now)
}

// Claim is the beginning of a request: it may enter its handler, or is refused.
func (p Policy) Claim(k Key, r Request, now int64) Key {
	switch {
	case r.Deadline <= now:
		return k
	case k.absent(now):
		return p.owned(Key{}, r, now)
	case k.Fingerprint != r.Fingerprint, k.State == Completed, k.State == Unknown:
		return k
	case k.State == Retryable:
		return p.owned(k, r, now)
	case k.leased(now):
		return k
	case k.runsAgain():
		return p.owned(k, r, now)
	default: // the owner never reported, and its effect may have happened
		return p.in(k, Unknown, now)
	}
}

// owned makes k the record of r's attempt, with the recorded steps. From now on
// r's own promise applies.
func (p Policy) owned(k Key, r Request, now int64) Key {
	since := k.OpenSince
	switch {
	case r.Recovery != Resume:
		since = 0
	case since == 0:
		since = now
	}
	return p.written(Key{
		State: InProgress, Fingerprint: r.Fingerprint, Recovery: r.Recovery, Retention: r.Retention,
		Owner: r.Owner, Attempt: k.Attempt + 1, LeaseEnd: r.Deadline + p.Margin, Step: k.Step, OpenSince: since,
	}, now)
}

// Mark is the write of r's step while its handler runs.
func (p Policy) Mark(k Key, r Request, now int64) Key {
	if k.State != InProgress || k.Owner != r.Owner || k.Step.Finished {
		return k
	}
	k.Step = r.Step
	return p.written(k, now)
}

// Announce is the write of r because its handler is late.
func (p Policy) Announce(k Key, r Request, now int64) Key {
	if k.State != InProgress || k.Owner != r.Owner {
		return k
	}
	if !k.Step.Finished {
		k.Step = r.Step
	}
	k.Announced = true
	return p.written(k, now)
}

// wants returns the state that the end of a handler requests for the record.
func (r Request) wants(o Outcome) State {
	switch {
	case r.Forgotten || o.Kind == Maybe:
		return Unknown
	case o.Kind == Result:
		return Completed
	case o.Kind == NotExecuted && !r.Step.Begun, Key{Recovery: r.Recovery, Step: r.Step}.runsAgain():
		return Retryable
	default:
		return Unknown
	}
}

// Settle is the end of the handler that r entered, however late.
func (p Policy) Settle(k Key, r Request, o Outcome, now int64) Key {
	if k.Owner == r.Owner && k.Step.Finished { // also by evidence, which the handler does not know
		r.Step = k.Step
	}
	want, next := r.wants(o), k
	next.Step = r.Step
	if !r.Step.Begun && !r.Forgotten {
		next.OpenSince = r.OpenBefore
	}
	switch {
	case k.State == None: // deleted meanwhile: an outcome creates no record
		return k
	case k.State == Completed || k.Owner != r.Owner:
		return k
	case k.State == want && k.Step == next.Step: // it has that state already
		return k
	}
	return p.in(next, want, now)
}

// Release is what r does with its claim if too little time is left to enter its
// handler.
func (p Policy) Release(k Key, r Request, now int64) Key {
	if k.State != InProgress || k.Owner != r.Owner {
		return k
	}
	k.OpenSince = r.OpenBefore
	return p.in(k, Retryable, now)
}

// Resolve is evidence: Result, NotExecuted or StepDone.
func (p Policy) Resolve(k Key, o Outcome, now int64) Key {
	switch {
	case k.absent(now), k.State == Completed:
		return k
	case o.Kind == StepDone:
		return p.resolveStep(k, o, now)
	case o.Kind == NotExecuted && k.State == Retryable && !k.open():
		return k
	case k.leased(now) && (k.State == InProgress || o.Kind == NotExecuted): // the worker may still have its effect
		return k
	}
	k.Retention = max(k.Retention, p.Retention)
	if o.Kind == Result {
		k = p.in(k, Completed, now)
	} else {
		if k.OpenSince = 0; !k.Step.Finished {
			k.Step = Step{}
		}
		k = p.in(k, Retryable, now)
	}
	// The handler may be running.
	if k.Expires != 0 {
		k.Expires = max(k.Expires, k.LeaseEnd)
	}
	return k
}

// resolveStep is evidence about the step.
func (p Policy) resolveStep(k Key, o Outcome, now int64) Key {
	if k.Step.Finished {
		return k
	}
	before := k
	k.Step.Begun, k.Step.Finished, k.Step.Value = true, true, o.Value
	if before.State == Unknown && before.Step.Begun && k.runsAgain() {
		k.State = Retryable
	}
	switch {
	case k.State != before.State, k.resumable() != before.resumable():
		k = p.in(k, k.State, now)
	case k.State == InProgress:
		k = p.written(k, now)
	}
	return k
}

// Sweep is reconciliation without a resolver, by any guard.
func (p Policy) Sweep(k Key, now int64) Key {
	switch {
	case k.State != InProgress || k.leased(now) || k.Due == 0 || k.Due > now || k.absent(now):
		return k
	case k.runsAgain():
		return p.in(k, Retryable, now)
	default:
		return p.in(k, Unknown, now)
	}
}

// Requeue makes a key that waits for evidence due now. It sweeps a lease that has
// ended first.
func (p Policy) Requeue(k Key, now int64) Key {
	if k = p.Sweep(k, now); !k.absent(now) && (k.State == Retryable || k.State == Unknown) && k.Due != 0 {
		k.Due = now
	}
	return k
}

// Forget discards the outcome of a completed key whose lease has ended.
func (p Policy) Forget(k Key, now int64) Key {
	if k.absent(now) || k.State != Completed || k.leased(now) {
		return k
	}
	return p.in(k, Retryable, now)
}

// Correct replaces the outcome of a completed key whose lease has ended.
func (p Policy) Correct(k Key, now int64) Key {
	if k.absent(now) || k.State != Completed || k.leased(now) {
		return k
	}
	k.Retention = max(k.Retention, p.Retention)
	return p.in(k, Completed, now)
}

// Of returns a record in the form of the model. It leaves out what the model
// names in its own way: fingerprint and owner. The name of the step is step, and its value
// is the stored bytes.
func Of(r *driver.Record, step string) Key {
	if r == nil {
		return Key{}
	}
	k := Key{
		State:     State(r.State.Code()[0]),
		Recovery:  Recovery(r.Recovery),
		Retention: cmp.Or(r.Retention, 24*time.Hour).Milliseconds(),
		Attempt:   r.Attempt,
		LeaseEnd:  Millis(r.LeaseEnd),
		Expires:   Millis(r.Expires),
		Due:       Millis(r.Due),
		OpenSince: Millis(r.OpenSince),
		Announced: r.Announced,
	}
	if s, begun := r.Step(step); begun {
		k.Step = Step{Begun: true, Once: s.Mode == driver.AtMostOnce, Finished: s.Finished, Value: string(s.Result)}
	}
	return k
}

// Nameless returns k without what Of leaves out.
func (k Key) Nameless() Key {
	k.Fingerprint, k.Owner = 0, 0
	return k
}

// Millis returns t in the time of the model; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
