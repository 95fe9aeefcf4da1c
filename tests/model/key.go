package model

import "fmt"

// State is what the record of a key says, in the letters of the stores.
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

// Policy is what an operation declares about time, in milliseconds.
type Policy struct {
	Margin              int64 // from the deadline to the end of the lease
	Retention           int64
	UnresolvedRetention int64 // 0: for ever
	ReconcileAfter      int64
}

// Request is one request with the key.
type Request struct {
	Owner       int // names the attempt; no two are equal
	Fingerprint int
	Rerun       bool // the recovery that this code declares; otherwise Reconcile
	Deadline    int64
}

// Kind is how a handler ended, or what evidence says.
type Kind string

const (
	Result      Kind = "result"
	Final       Kind = "final"
	NotExecuted Kind = "not executed"
	Maybe       Kind = "unknown"
	Failed      Kind = "failed" // an error or a panic that declares nothing
)

// Outcome is the end of a handler, or evidence about it.
type Outcome struct {
	Kind  Kind
	Value string // of Result and Final
}

// String shortens what nobody reads in a message.
func (o Outcome) String() string { return fmt.Sprintf("%s %.20q", o.Kind, o.Value) }

// state is what an outcome makes of the record, under the promise that the
// attempt declared.
func (o Outcome) state(rerun bool) State {
	switch {
	case o.Kind == Result || o.Kind == Final:
		return Completed
	case o.Kind == NotExecuted, o.Kind == Failed && rerun:
		return Retryable
	default:
		return Unknown
	}
}

// Key is everything that is known about a key. The zero Key has no record.
type Key struct {
	State       State
	Fingerprint int
	Rerun       bool
	Owner       int
	Attempt     int
	LeaseEnd    int64
	Expires     int64 // 0: never
	Due         int64 // when reconciliation is due; 0: never
	Outcome     Outcome
}

// Verdict is the kind of an answer.
type Verdict string

const (
	// Of a claim.
	Entered    Verdict = "entered"
	Replayed   Verdict = "replayed" // also of a settlement: another outcome stands
	Running    Verdict = "in progress"
	Mismatch   Verdict = "mismatch"
	Unresolved Verdict = "unresolved"
	NoTime     Verdict = "no time"

	// Of a settlement.
	Own  Verdict = "own" // the caller gets what its handler reported
	Lost Verdict = "lost"

	// Of a resolution; also Running.
	Done    Verdict = "done"
	Settled Verdict = "settled"
	Gone    Verdict = "gone"
)

// Answer is what the caller is told, and which events the observer.
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

// kept returns k with its expiry: retention runs from the moment an outcome is
// stored; what money may hang on is kept until evidence comes, or as long as
// was asked for; and nothing expires before its lease ends.
func (p Policy) kept(k Key, now int64) Key {
	k.Expires, k.Due = 0, 0
	since, retention := now, p.Retention
	switch {
	case k.State == InProgress && k.Rerun:
		since = k.LeaseEnd
	case k.State == InProgress:
		since, retention, k.Due = k.LeaseEnd, p.UnresolvedRetention, k.LeaseEnd
	case k.State == Unknown:
		retention, k.Due = p.UnresolvedRetention, now+p.ReconcileAfter
	}
	if retention != 0 {
		k.Expires = max(since+retention, k.LeaseEnd)
	}
	return k
}

// Claim is the beginning of a request: it may enter its handler, or is told why
// not.
func (p Policy) Claim(k Key, r Request, now int64) (Key, Answer) {
	switch {
	case r.Deadline <= now:
		return k, Answer{Verdict: NoTime}
	case k.absent(now):
		return p.owned(Key{}, r, now, "reserved")
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
	case k.Rerun:
		return p.owned(k, r, now, "taken_over")
	default: // the owner never reported, and its effect may have happened
		k.State = Unknown
		return p.kept(k, now), Answer{Verdict: Unresolved, RetryAfter: p.ReconcileAfter, Events: "marked_unknown unresolved"}
	}
}

// owned makes k the record of r's attempt. The promise from now on is r's own.
func (p Policy) owned(k Key, r Request, now int64, event string) (Key, Answer) {
	k = p.kept(Key{
		State: InProgress, Fingerprint: r.Fingerprint, Rerun: r.Rerun,
		Owner: r.Owner, Attempt: k.Attempt + 1, LeaseEnd: r.Deadline + p.Margin,
	}, now)
	return k, Answer{Verdict: Entered, Attempt: k.Attempt, Events: event}
}

// Settle is the end of the handler that r entered, however late.
func (p Policy) Settle(k Key, r Request, o Outcome, now int64) (Key, Answer) {
	want := o.state(r.Rerun)
	own := Answer{Verdict: Own, Outcome: o, Stored: want == Completed}
	switch {
	case k.State == None: // deleted meanwhile: an outcome creates no record
		own.Stored, own.Events = false, "completion_failed"
		return k, own
	case k.State == Completed && k.Fingerprint == r.Fingerprint && !k.absent(now):
		standing := Answer{Verdict: Replayed, Outcome: k.Outcome, Stored: true, Events: "replayed"}
		switch {
		case k.Owner != r.Owner:
			standing.Events = "lease_lost replayed"
		case k.Outcome != o:
			standing.Events = "contradicted replayed"
		}
		return k, standing
	case k.State == Completed || k.Owner != r.Owner:
		return k, Answer{Verdict: Lost, Events: "lease_lost"}
	case k.State == want: // evidence said the same
		return k, own
	}
	switch {
	case k.State == Retryable:
		own.Events = "contradicted late_completion"
	case k.State == Unknown:
		own.Events = "late_completion"
	case want == Completed:
		own.Events = "completed"
	case want == Retryable:
		own.Events = "retryable"
	default:
		own.Events = "marked_unknown"
	}
	return p.settled(k, want, o, now), own
}

// Resolve is evidence: Result, Final or NotExecuted. It is stale if another
// attempt has begun since it was true; that nothing happened says nothing of
// that one.
func (p Policy) Resolve(k Key, o Outcome, stale bool, now int64) (Key, Answer) {
	want := o.state(false)
	switch {
	case k.absent(now):
		return k, Answer{Verdict: Gone}
	case k.State == Completed && k.Outcome == o, k.State == Retryable && want == Retryable:
		return k, Answer{Verdict: Done}
	case k.State == Completed:
		return k, Answer{Verdict: Settled, Events: "contradicted"}
	case want == Retryable && (stale || k.leased(now)): // the worker may still do it
		return k, Answer{Verdict: Running, RetryAfter: max(0, k.LeaseEnd-now)}
	case k.State == Retryable: // that something happened is the stronger evidence
		return p.settled(k, want, o, now), Answer{Verdict: Done, Events: "contradicted resolved"}
	default:
		return p.settled(k, want, o, now), Answer{Verdict: Done, Events: "resolved"}
	}
}

func (p Policy) settled(k Key, want State, o Outcome, now int64) Key {
	k.State, k.Outcome = want, Outcome{}
	if want == Completed {
		k.Outcome = o
	}
	return p.kept(k, now)
}
