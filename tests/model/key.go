package model

import (
	"fmt"
	"strings"
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
	Margin              int64 // from the deadline to the end of the lease
	Retention           int64 // declared by the guard that submits evidence
	UnresolvedRetention int64 // 0: for ever
	DownstreamRetention int64
	ReconcileAfter      int64
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

	// What the attempt remembers of its claim.
	Version    int
	Known      Step
	OpenBefore int64 // the OpenSince at its claim
}

// Entered returns r with what it remembers of the claim that changed before to
// after.
func (r Request) Entered(before, after Key, now int64) Request {
	r.Version, r.Known = after.Version, after.Step
	if !before.absent(now) {
		r.OpenBefore = before.OpenSince
	}
	return r
}

// Step is the record of the only step of the handlers. The zero Step has not
// begun.
type Step struct {
	Begun    bool
	Once     bool // it is an AtMostOnce step
	Finished bool
	Value    string
}

// Work is what a handler does before it ends.
type Work struct {
	Ref  string // of the resource; empty: none
	Step StepCall
}

// StepCall is one call of Step. Its function returns Result with a value,
// NotExecuted or Failed; the zero StepCall calls nothing.
type StepCall struct {
	Kind  Kind
	Once  bool
	Value string
}

// Kind is how a handler ended, or the kind of evidence.
type Kind string

const (
	Result      Kind = "result"
	Final       Kind = "final"
	NotExecuted Kind = "not executed"
	Maybe       Kind = "unknown"
	Failed      Kind = "failed" // an error or a panic that declares nothing

	// Of evidence only.
	StepDone    Kind = "step done"
	StepCorrect Kind = "step corrected"
)

// Outcome is the end of a handler, or evidence about it.
type Outcome struct {
	Kind  Kind
	Value string // of Result and Final
}

// String shortens long values for messages.
func (o Outcome) String() string { return fmt.Sprintf("%s %.20q", o.Kind, o.Value) }

// Key is everything that is known about a key. The zero Key has no record.
type Key struct {
	State       State
	Version     int // counts the writes
	Fingerprint int
	Recovery    Recovery // that the last run declared
	Retention   int64    // likewise
	Owner       int
	Attempt     int
	LeaseEnd    int64
	Expires     int64 // 0: never
	Due         int64 // when reconciliation is due; 0: never
	Ref         string
	Step        Step
	OpenSince   int64 // since when effects under Resume are open; 0: no open effect
	Outcome     Outcome
}

// Verdict is the kind of an answer.
type Verdict string

const (
	// Of a claim.
	Entered    Verdict = "entered"
	Replayed   Verdict = "replayed" // also of a settlement: another outcome is the current one
	Running    Verdict = "in progress"
	Mismatch   Verdict = "mismatch"
	Unresolved Verdict = "unresolved"
	NoTime     Verdict = "no time"

	// Of a settlement.
	Own       Verdict = "own" // the caller gets what its handler reported
	Lost      Verdict = "lost"
	Forgotten Verdict = "forgotten" // a step did not run: the provider may have forgotten its key

	// Of a resolution; also Running.
	Done    Verdict = "done"
	Settled Verdict = "settled"
	Stale   Verdict = "stale"
	Gone    Verdict = "gone"
)

// Answer is what the caller gets, and the events for the observer.
type Answer struct {
	Verdict    Verdict
	Outcome    Outcome // of Replayed and Own
	Stored     bool    // of Replayed and Own: a retry gets the same
	Attempt    int     // of Entered
	RetryAfter int64   // of Running and Unresolved
	Events     string
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
// until evidence comes, or for UnresolvedRetention.
func (p Policy) written(k Key, now int64) Key {
	k.Version++
	k.Expires, k.Due = 0, 0
	since, retention := now, k.Retention
	switch {
	case k.State == InProgress && k.Recovery == Rerun && k.runsAgain():
		since = k.LeaseEnd
	case k.State == InProgress:
		since, retention, k.Due = k.LeaseEnd, p.UnresolvedRetention, k.LeaseEnd
	case k.State == Unknown, k.resumable():
		retention, k.Due = p.UnresolvedRetention, now+p.ReconcileAfter
	}
	if retention != 0 {
		k.Expires = since + retention
	}
	return k
}

// in returns k after a write that changes it to a state.
func (p Policy) in(k Key, s State, o Outcome, now int64) Key {
	k.State, k.Outcome = s, Outcome{}
	if s == Completed {
		k.Outcome, k.Step, k.OpenSince = o, Step{}, 0
	}
	return p.written(k, now)
}

// Claim is the beginning of a request: it may enter its handler, or is refused
// with a reason.
func (p Policy) Claim(k Key, r Request, now int64) (Key, Answer) {
	switch {
	case r.Deadline <= now:
		return k, Answer{Verdict: NoTime}
	case k.absent(now):
		return p.owned(Key{Version: k.Version}, r, now, "reserved")
	case k.Fingerprint != r.Fingerprint:
		return k, Answer{Verdict: Mismatch, Events: "mismatch"}
	case k.State == Completed:
		return k, Answer{Verdict: Replayed, Outcome: k.Outcome, Stored: true, Events: "replayed"}
	case k.State == Retryable:
		return p.owned(k, r, now, "taken_over")
	case k.State == Unknown:
		wait := k.Due - now
		if wait <= 0 {
			wait = p.ReconcileAfter
		}
		return k, Answer{Verdict: Unresolved, RetryAfter: wait, Events: "unresolved"}
	case k.leased(now):
		return k, Answer{Verdict: Running, RetryAfter: k.LeaseEnd - now, Events: "in_progress"}
	case k.runsAgain():
		return p.owned(k, r, now, "taken_over")
	default: // the owner never reported, and its effect may have happened
		return p.in(k, Unknown, Outcome{}, now), Answer{Verdict: Unresolved, RetryAfter: p.ReconcileAfter, Events: "marked_unknown unresolved"}
	}
}

// owned makes k the record of r's attempt, with the recorded steps. From now on
// r's own promise applies.
func (p Policy) owned(k Key, r Request, now int64, event string) (Key, Answer) {
	since := k.OpenSince
	switch {
	case r.Recovery != Resume:
		since = 0
	case since == 0:
		since = now
	}
	k = p.written(Key{
		State: InProgress, Version: k.Version, Fingerprint: r.Fingerprint, Recovery: r.Recovery, Retention: r.Retention,
		Owner: r.Owner, Attempt: k.Attempt + 1, LeaseEnd: r.Deadline + p.Margin, Ref: k.Ref, Step: k.Step, OpenSince: since,
	}, now)
	return k, Answer{Verdict: Entered, Attempt: k.Attempt, Events: event}
}

// run is what an attempt knows while its handler works.
type run struct {
	Request
	step      Step
	ref       string
	forgotten bool
}

// meet takes note of the record that was found where r expected its own last
// write.
func (r *run) meet(k Key) {
	if k.Owner == r.Owner && k.State != Completed {
		r.Version = k.Version
		if k.Step.Finished {
			r.step = k.Step
		}
	}
}

// Settle is what the handler that r entered does, and how it ends, however late.
func (p Policy) Settle(k Key, request Request, w Work, o Outcome, now int64) (Key, Answer) {
	r := &run{Request: request, step: request.Known, ref: w.Ref}
	if r.ref == "" && k.Owner == r.Owner {
		r.ref = k.Ref
	}
	events := ""
	if w.Step != (StepCall{}) {
		k, events = p.call(k, r, w.Step, now)
	}
	k, a := p.settle(k, r, o, now)
	if events != "" {
		a.Events = strings.TrimSuffix(events+" "+a.Events, " ")
	}
	return k, a
}

// call is a call of Step.
func (p Policy) call(k Key, r *run, c StepCall, now int64) (next Key, events string) {
	before := r.step
	switch {
	case r.step.Finished:
		return k, "step_replayed"
	case r.Recovery == Resume && r.OpenBefore != 0 && now >= r.OpenBefore+p.DownstreamRetention:
		r.forgotten = true
		return k, ""
	}
	r.step = Step{Begun: true, Once: c.Once}
	if c.Once {
		switch k, end := p.mark(k, r, now); {
		case end == "lost":
			if !r.step.Finished {
				r.step = before
			}
			return k, ""
		case end == "recorded":
			return k, "step_replayed"
		default:
			next = k
		}
		k = next
	}
	switch c.Kind {
	case Failed:
		return k, ""
	case NotExecuted:
		r.step = before
		return k, ""
	}
	r.step.Finished, r.step.Value = true, c.Value
	k, end := p.mark(k, r, now)
	switch end {
	case "lost":
		return k, ""
	case "recorded":
		return k, "step_replayed"
	}
	return k, "step_done"
}

// mark writes what r knows of its step into a record that is still its own and in
// progress.
func (p Policy) mark(k Key, r *run, now int64) (next Key, end string) {
	if k.State != None && k.Version != r.Version {
		r.meet(k)
	}
	switch {
	case k.State != InProgress || k.Owner != r.Owner:
		return k, "lost"
	case k.Step.Finished:
		return k, "recorded"
	}
	k.Step, k.Ref = r.step, r.ref
	k = p.written(k, now)
	r.Version = k.Version
	return k, ""
}

// wants returns the state that the end of a handler requests for the record.
func (r *run) wants(o Outcome) State {
	switch {
	case r.forgotten || o.Kind == Maybe:
		return Unknown
	case o.Kind == Result || o.Kind == Final:
		return Completed
	case o.Kind == NotExecuted && !r.step.Begun, Key{Recovery: r.Recovery, Step: r.step}.runsAgain():
		return Retryable
	default:
		return Unknown
	}
}

func (p Policy) settle(k Key, r *run, o Outcome, now int64) (Key, Answer) {
	want := r.wants(o)
	own := Answer{Verdict: Own, Outcome: o, Stored: want == Completed}
	if r.forgotten && o.Kind != Maybe && o.Kind != Failed { // no declaration counts besides it
		own = Answer{Verdict: Forgotten}
	}
	if k.State == None { // deleted meanwhile: an outcome creates no record
		own.Stored, own.Events = false, "completion_failed"
		return k, own
	}
	late := k.Version != r.Version
	if late {
		r.meet(k)
	}
	next := k
	next.Step, next.Ref = r.step, r.ref
	if !r.step.Begun && !r.forgotten {
		next.OpenSince = r.OpenBefore
	}
	switch {
	case k.State == Completed && k.Fingerprint == r.Fingerprint && !k.absent(now):
		standing := Answer{Verdict: Replayed, Outcome: k.Outcome, Stored: true, Events: "replayed"}
		switch {
		case k.Owner != r.Owner:
			standing.Events = "lease_lost replayed"
		case want != Completed || k.Outcome != o:
			standing.Events = "contradicted replayed"
		}
		return k, standing
	case k.State == Completed || k.Owner != r.Owner:
		return k, Answer{Verdict: Lost, Events: "lease_lost"}
	case k.State == want && k.Step == next.Step && k.Ref == next.Ref: // it has that state already
		return k, own
	}
	switch {
	case late:
		own.Events = "late_completion"
	case want == Completed:
		own.Events = "completed"
	case want == Retryable:
		own.Events = "retryable"
	default:
		own.Events = "marked_unknown"
	}
	if k.State == Retryable && want != Retryable {
		own.Events = "contradicted " + own.Events
	}
	return p.in(next, want, o, now), own
}

// Release is what r does with its claim if too little time is left to enter its
// handler.
func (p Policy) Release(k Key, r Request, now int64) Key {
	if k.State != InProgress || k.Owner != r.Owner {
		return k
	}
	k.OpenSince = r.OpenBefore
	return p.in(k, Retryable, Outcome{}, now)
}

// Resolve is evidence: Result, Final, NotExecuted, StepDone or StepCorrect. It is
// stale if it is about another attempt than the current one.
func (p Policy) Resolve(k Key, o Outcome, stale bool, now int64) (Key, Answer) {
	whole := o.Kind == Result || o.Kind == Final
	switch {
	case k.absent(now):
		return k, Answer{Verdict: Gone}
	case whole && k.State == Completed && k.Outcome == o:
		return k, Answer{Verdict: Done}
	case k.State == Completed:
		return k, Answer{Verdict: Settled, Events: "contradicted"}
	case o.Kind == NotExecuted && stale:
		return k, Answer{Verdict: Stale}
	case o.Kind == StepDone:
		return p.resolveStep(k, o, now)
	case o.Kind == NotExecuted && k.State == Retryable && !k.open():
		return k, Answer{Verdict: Done}
	case k.leased(now) && (k.State == InProgress || o.Kind == NotExecuted): // the worker may still have its effect
		return k, Answer{Verdict: Running, RetryAfter: k.LeaseEnd - now}
	case o.Kind == StepCorrect:
		return p.resolveStep(k, o, now)
	}
	done := Answer{Verdict: Done, Events: "resolved"}
	if whole && k.State == Retryable && !k.open() { // evidence of an effect is stronger
		done.Events = "contradicted resolved"
	}
	k.Retention = max(k.Retention, p.Retention)
	if whole {
		k = p.in(k, Completed, o, now)
	} else {
		if k.OpenSince = 0; !k.Step.Finished {
			k.Step = Step{}
		}
		k = p.in(k, Retryable, o, now)
	}
	// The handler may be running.
	if k.Expires != 0 {
		k.Expires = max(k.Expires, k.LeaseEnd)
	}
	return k, done
}

// resolveStep is evidence about the step.
func (p Policy) resolveStep(k Key, o Outcome, now int64) (Key, Answer) {
	switch {
	case k.Step.Finished && k.Step.Value == o.Value:
		return k, Answer{Verdict: Done}
	case k.Step.Finished && o.Kind == StepDone:
		return k, Answer{Verdict: Settled, Events: "contradicted"}
	}
	before := k
	k.Step.Begun, k.Step.Finished, k.Step.Value = true, true, o.Value
	if !k.leased(now) && k.runsAgain() {
		k.State = Retryable
	}
	if k.State != before.State || k.resumable() != before.resumable() {
		k = p.in(k, k.State, Outcome{}, now)
	} else {
		k.Version++
	}
	return k, Answer{Verdict: Done, Events: "resolved"}
}

// Sweep is reconciliation without a resolver, by any guard.
func (p Policy) Sweep(k Key, now int64) (next Key, events string) {
	switch {
	case k.State != InProgress || k.leased(now) || k.Due == 0 || k.Due > now || k.absent(now):
		return k, ""
	case k.runsAgain():
		return p.in(k, Retryable, Outcome{}, now), "retryable"
	default:
		return p.in(k, Unknown, Outcome{}, now), "marked_unknown"
	}
}
