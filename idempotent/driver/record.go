package driver

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// State says what is known about the work of a record.
type State uint8

const (
	// StateInProgress: one owner may be executing until the lease ends.
	StateInProgress State = iota + 1
	// StateCompleted: the outcome is stored and replayed until the record expires.
	StateCompleted
	// StateRetryable: proven not executed, or declared safe to run again. The
	// next request takes the record over, and its finished steps with it.
	StateRetryable
	// StateUnknown: the effect may or may not have happened. Only evidence
	// leaves it: [idempotent.Guard.Resolve], or the owner itself finishing late.
	StateUnknown
)

var stateNames = [...]struct{ code, name string }{
	StateInProgress: {"I", "in_progress"},
	StateCompleted:  {"C", "completed"},
	StateRetryable:  {"R", "retryable"},
	StateUnknown:    {"U", "unknown"},
}

// String returns the state's name, for example "in_progress".
func (s State) String() string {
	if s < StateInProgress || s > StateUnknown {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s].name
}

// Code returns the letter a store keeps: I, C, R or U.
func (s State) Code() string {
	if s < StateInProgress || s > StateUnknown {
		return "?"
	}
	return stateNames[s].code
}

// ParseState is the inverse of [State.Code]. A store fails closed on its error.
func ParseState(code string) (State, error) {
	for s := StateInProgress; s <= StateUnknown; s++ {
		if stateNames[s].code == code {
			return s, nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown state %q in a record", code)
}

// Reason is the code of the transition that brought a record into its state.
// It is for people and never decides anything.
type Reason string

const (
	ReasonClaimed       Reason = "claimed"        // a request began
	ReasonTakenOver     Reason = "taken_over"     // a later request began on the record of an earlier one
	ReasonResult        Reason = "result"         // the handler returned
	ReasonFinal         Reason = "final"          // the handler returned a Final error
	ReasonOmitted       Reason = "omitted"        // the handler returned, but its result could not be stored
	ReasonNotExecuted   Reason = "not_executed"   // the handler proved that nothing happened
	ReasonNoTime        Reason = "no_time"        // the claim left too little time to begin
	ReasonReleased      Reason = "released"       // a claim whose reply never came was given up
	ReasonHandlerError  Reason = "handler_error"  // the handler failed
	ReasonPanic         Reason = "panic"          // the handler panicked or ended its goroutine
	ReasonUnknown       Reason = "unknown"        // the handler returned an Unknown error
	ReasonLeaseEnded    Reason = "lease_ended"    // the owner never reported
	ReasonResolved      Reason = "resolved"       // evidence from outside
	ReasonCommitted     Reason = "committed"      // the handler's transaction stored the outcome
	ReasonKeysForgotten Reason = "keys_forgotten" // the provider may have forgotten the downstream key of an open step
	ReasonInterrupted   Reason = "interrupted"    // an AtMostOnce step began and did not finish
)

// Version is the write id of a record: 128 random bits, drawn anew for every
// write. Whoever replaces a record names the version that was read.
type Version [16]byte

// Owner is the random token of one attempt, drawn anew for every attempt.
type Owner [16]byte

// The encodings that are not the name of a [idempotent.Codec].
const (
	// EncodingFinal marks a result that is a [*idempotent.FinalError].
	EncodingFinal = "final"
	// EncodingOmitted marks a completed record whose result could not be stored.
	EncodingOmitted = "omitted"
)

// Record is what a store keeps for a key. Times are in UTC and whole
// milliseconds; a zero time is an absent one.
type Record struct {
	ID          RecordID
	State       State
	Reason      Reason
	Owner       Owner
	Version     Version // id of the write that made the record what it is
	Attempt     int     // counts executions from 1; restarts when an expired record is replaced
	Fingerprint Fingerprint

	// What the operation declared when the current run began. Every later writer
	// judges the record by these, whatever its own options are.

	Recovery            Recovery
	Retention           time.Duration // of an outcome; zero: 24 h
	UnresolvedRetention time.Duration // of a record that waits for evidence; zero: for ever
	Codec               string        // name of the codec of results; empty: "json"
	ResultVersion       string        // version of the result's shape
	StepNames           []string      // declared steps, in their declared order; empty: any

	LeaseEnd time.Time // until then the owner may be executing
	Expires  time.Time // from then on the record counts as absent; zero: never
	Created  time.Time
	Settled  time.Time // when the state last became completed, retryable or unknown

	Encoding string // codec of Result, or EncodingFinal, or EncodingOmitted
	Result   []byte // the encoded outcome of a completed record, unless it is in chunks
	Chunks   Chunks // where a large result is; see [ChunkStore]

	Ref       string // the caller's own name for the resource, from [idempotent.Execution.SetRef]
	RequestID string // for people, never for logic

	Steps []StepRecord // by name; dropped at completion
	// OpenSince is when the first run began whose unfinished steps may have had
	// an effect at a provider; zero: no such run. Only set under Resume.
	OpenSince time.Time

	Due               time.Time // when reconciliation should look at the record; zero: never
	ReconcileAttempts int
	// Exhausted: reconciliation has given up and waits for a person. Due is when
	// it did, and the record is in the list of the exhausted, not of the due.
	Exhausted bool

	// Extra is what a store read but did not understand, because a later
	// version wrote it. The store that set it writes it back on Replace;
	// nobody else looks at it.
	Extra any
}

// Chunks describes a result that is kept beside its record, under the record's
// id and Version. The zero value says that there is none.
type Chunks struct {
	Count  int      // how many there are
	Length int      // of the result, in bytes
	Sum    [32]byte // SHA-256 of the result
}

// Token names the current attempt in evidence that it was not executed. It is
// random, differs for every attempt, and is never part of a provider's request.
func (r *Record) Token() string { return hex.EncodeToString(r.Owner[:]) }

// Clone returns a copy that shares no memory with r, but for Extra.
func (r *Record) Clone() *Record {
	c := *r
	if r.Result != nil {
		c.Result = append([]byte{}, r.Result...)
	}
	c.Steps = cloneSteps(r.Steps)
	c.StepNames = slices.Clone(r.StepNames)
	return &c
}
