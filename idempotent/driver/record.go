// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is what is known about the execution of a record.
type State uint8

const (
	// StateInProgress means that one owner may be executing until the lease ends.
	StateInProgress State = iota + 1
	// StateCompleted means that the outcome is stored; it is replayed until the
	// record expires.
	StateCompleted
	// StateRetryable means that the work was proven not executed, or is declared
	// safe to run again. The next request takes over the record with its finished
	// steps.
	StateRetryable
	// StateUnknown means that the effect may or may not have happened. The record
	// leaves this state only through evidence, see idempotent.Guard.Resolve, or if
	// its owner finishes late.
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
	if s < StateInProgress || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return stateNames[s].name
}

// Code returns the letter that stores use for the state: I, C, R or U.
func (s State) Code() string {
	if s < StateInProgress || int(s) >= len(stateNames) {
		return "?"
	}
	return stateNames[s].code
}

// ParseState is the inverse of [State.Code]. A store must fail closed on its
// error.
func ParseState(code string) (State, error) {
	for s, state := range stateNames {
		if state.code == code && s > 0 {
			return State(s), nil
		}
	}
	return 0, fmt.Errorf("idempotent: unknown state %q in a record", code)
}

// Reason is the code of the transition that put a record into its state. It is
// for people; no logic depends on it.
type Reason string

const (
	ReasonClaimed       Reason = "claimed"        // a request began
	ReasonTakenOver     Reason = "taken_over"     // a later request took over the record
	ReasonResult        Reason = "result"         // the handler returned
	ReasonFinal         Reason = "final"          // the handler returned a Final error
	ReasonOmitted       Reason = "omitted"        // the handler returned, but its result could not be stored
	ReasonNotExecuted   Reason = "not_executed"   // the handler declared that nothing happened
	ReasonNoTime        Reason = "no_time"        // the claim left too little time to run the handler
	ReasonReleased      Reason = "released"       // a claim without a reply from the store was given up
	ReasonHandlerError  Reason = "handler_error"  // the handler returned an error
	ReasonPanic         Reason = "panic"          // the handler panicked or ended its goroutine
	ReasonUnknown       Reason = "unknown"        // the handler, or the resolver of a released record, returned an Unknown error
	ReasonLeaseEnded    Reason = "lease_ended"    // the owner did not report an outcome before its lease ended
	ReasonResolved      Reason = "resolved"       // external evidence
	ReasonCommitted     Reason = "committed"      // the handler's transaction stored the outcome
	ReasonKeysForgotten Reason = "keys_forgotten" // the provider may have forgotten the downstream key of an open step
	ReasonPredecessor   Reason = "predecessor"    // another system had done the work, or refused it
	ReasonForgotten     Reason = "forgotten"      // an operator discarded the stored outcome
	ReasonInterrupted   Reason = "interrupted"    // an AtMostOnce step began and did not finish
)

// Version is the write id of a record: 128 random bits, new for every write.
// Replace names the version that its caller has read.
type Version [16]byte

// Owner is the random token of one attempt, new for every attempt.
type Owner [16]byte

// Encodings that are not the name of an idempotent.Codec.
const (
	// EncodingFinal marks a result that is an idempotent.FinalError.
	EncodingFinal = "final"
	// EncodingOmitted marks a completed record whose result could not be stored.
	EncodingOmitted = "omitted"
	// EncodingSealed is the end of an encoding whose bytes only an idempotent.Sealer
	// can read, and of the codec that an operation with a Sealer declares.
	EncodingSealed = "+sealed"
)

// Record is what a store holds for a key. Times are in UTC and whole
// milliseconds; a zero time means that the time is not set.
type Record struct {
	ID          RecordID
	State       State
	Reason      Reason
	Owner       Owner
	Version     Version // id of the last write
	Attempt     int     // counts executions from 1; restarts when an expired record is replaced
	Fingerprint Fingerprint

	// Declared by the operation when the current run began. Every later writer
	// follows these values, whatever its own options are.

	Recovery            Recovery
	Retention           time.Duration // of an outcome; zero: 24 h
	UnresolvedRetention time.Duration // of a record that waits for evidence; zero: no limit
	Codec               string        // name of the codec of results; empty: "json"; with EncodingSealed if they are sealed
	ResultVersion       string        // version of the result's shape
	StepNames           []string      // declared steps, in their declared order; empty: any

	LeaseEnd time.Time // until then the owner may be executing
	Expires  time.Time // from then on the record counts as absent; zero: never
	Created  time.Time
	// Since is when the record entered its state; of a record in progress, when the
	// current run took it over. It is zero during the first run, which began at
	// Created.
	Since time.Time

	Encoding string // codec of Result, or EncodingFinal, or EncodingOmitted; may end with "+br" and EncodingSealed
	Result   []byte // the encoded outcome of a completed record, unless it is in chunks
	Chunks   Chunks // describes a large result; see [ChunkStore]

	Ref       string // resource reference, from idempotent.Execution.SetRef
	RequestID string // for people; no logic depends on it
	// TraceParent is the W3C trace parent of the current attempt, if its guard has
	// Options.TraceParent; for traces, no logic depends on it.
	TraceParent string

	Steps []StepRecord // sorted by name; dropped at completion
	// OpenSince is when the first run began whose unfinished steps may have had an
	// effect at a provider; zero if there is no such run. Only set under Resume.
	OpenSince time.Time

	// PredecessorAnswered reports that an answer of idempotent.Operation.Predecessor has
	// completed the record. The predecessor is then not asked again, also after the
	// outcome was discarded.
	PredecessorAnswered bool

	Due               time.Time // when reconciliation of the record is due; zero: never
	ReconcileAttempts int
	// Announced reports that the guard expected the process to be killed before the
	// handler returned. A [DueLister] lists such a record although it is in progress.
	// Only a record in progress with a Due is announced: see [Record.Schedule].
	Announced bool
	// Exhausted reports that reconciliation gave up and an operator must act. Due is
	// then the time when it gave up, and the record is listed as exhausted, not as
	// due.
	Exhausted bool

	extra map[string]map[string]json.RawMessage // see Extra
}

// Extra returns the attributes that this version does not know, because a later
// version wrote them: each as a JSON text, those of a step under the step's name and
// those of the record under "". A store that does not use [Record.MarshalJSON] stores
// them beside the others. Records share the maps, so do not modify them.
func (r *Record) Extra() map[string]map[string]json.RawMessage { return r.extra }

// SetExtra sets what [Record.Extra] returns. Only stores call it, with the attributes
// that they read and do not know. Do not modify the maps afterwards.
func (r *Record) SetExtra(attributes map[string]map[string]json.RawMessage) { r.extra = attributes }

// Chunks describes a result that is stored beside its record, under the record's
// id and Version. The zero value means that there are no chunks.
type Chunks struct {
	Count  int      // number of chunks
	Length int      // length of the result, in bytes
	Sum    [32]byte // SHA-256 of the result
}

// Token identifies the current attempt in evidence that it was not executed. It
// is random, differs for every attempt, and is never part of a provider's
// request.
func (r *Record) Token() string { return hex.EncodeToString(r.Owner[:]) }

// Listed returns the entry of r in a list of a [DueLister].
func (r *Record) Listed() Listed {
	return Listed{ID: r.ID, State: r.State, Since: r.Since, LeaseEnd: r.LeaseEnd, Due: r.Due}
}

// Clone returns a copy that shares no memory with r, except for [Record.Extra].
func (r *Record) Clone() *Record {
	c := *r
	if r.Result != nil {
		c.Result = append([]byte{}, r.Result...)
	}
	c.Steps = cloneSteps(r.Steps)
	c.StepNames = slices.Clone(r.StepNames)
	return &c
}

// RecordID names the record of a key in every store:
//
//	operation + "#" + base64url(SHA-256(version, operation, scope, id))
//
// Each part is hashed with its length before it, so different combinations of
// scope and id cannot produce the same input.
type RecordID string

// Operation returns the name of the operation that the record belongs to.
func (id RecordID) Operation() string {
	operation, _ := id.split()
	return operation
}

// KeyHash returns the first 12 characters of the key's hash. They are enough to
// find the log lines of one key and do not reveal the key.
func (id RecordID) KeyHash() string {
	_, hash := id.split()
	return hash[:min(12, len(hash))]
}

func (id RecordID) split() (operation, hash string) {
	i := strings.LastIndexByte(string(id), '#')
	if i < 0 {
		return "", ""
	}
	return string(id[:i]), string(id[i+1:])
}

// DownstreamKey returns the idempotency key that idempotent.DownstreamKey returns
// in the handler of this record, outside steps. A resolver uses it to query the
// provider about the call.
func (id RecordID) DownstreamKey() string { return downstreamKey("downstream\x00" + string(id)) }

// StepKey returns the idempotency key that idempotent.DownstreamKey returns in
// the named step.
func (id RecordID) StepKey(step string) string {
	return downstreamKey("step\x00" + string(id) + "\x00" + step) // neither part contains a NUL
}

func downstreamKey(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "once-" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Fingerprint identifies the content of a request. In a record it is a version byte
// and an HMAC-SHA-256, which is keyed by the operation, scope and id of the key.
// The zero value means that there is no fingerprint.
type Fingerprint [1 + sha256.Size]byte

// Version returns the version of the fingerprint algorithm, and 0 for the zero
// fingerprint.
func (f Fingerprint) Version() byte { return f[0] }

// cloneSteps returns a copy that shares no memory with steps.
func cloneSteps(steps []StepRecord) []StepRecord {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Result = slices.Clone(steps[i].Result)
	}
	return steps
}
