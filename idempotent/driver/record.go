// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Version is the write id of a record: 128 random bits, new for every write.
// Replace names the version that its caller has read.
type Version [16]byte

// Owner is the random token of one attempt, new for every attempt.
type Owner [16]byte

// Fingerprint identifies the content of a request. In a record it is a version byte
// and an HMAC-SHA-256, which is keyed by the operation, scope and id of the key.
// The zero value means that there is no fingerprint.
type Fingerprint [1 + sha256.Size]byte

// Version returns the version of the fingerprint algorithm, and 0 for the zero
// fingerprint.
func (f Fingerprint) Version() byte { return f[0] }

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

const (
	// DefaultRetention is the retention of an outcome whose operation declares no
	// other. A record stores it as zero.
	DefaultRetention = 24 * time.Hour
	// DefaultCodec is the name of the codec of an operation that declares no other. A
	// record stores it as the empty name.
	DefaultCodec = "json"
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

// cloneSteps returns a copy that shares no memory with steps.
func cloneSteps(steps []StepRecord) []StepRecord {
	steps = slices.Clone(steps)
	for i := range steps {
		steps[i].Result = slices.Clone(steps[i].Result)
	}
	return steps
}

// The methods below judge a record by itself and by a time. The guard, the stores and
// the tools use them, so that all of them judge a record alike. Only the guard judges
// whether a request may run.

// Expired reports whether r has expired at now, so that it counts as absent.
func (r *Record) Expired(now time.Time) bool { return !r.Expires.IsZero() && !now.Before(r.Expires) }

// ExpiredBefore reports whether r had expired for longer than a grace period at now.
func (r *Record) ExpiredBefore(now time.Time, grace time.Duration) bool {
	return !r.Expires.IsZero() && r.Expires.Add(grace).Before(now)
}

// LeaseEnded reports whether the lease of the current attempt has ended at now, so
// that its handler no longer runs.
func (r *Record) LeaseEnded(now time.Time) bool { return !now.Before(r.LeaseEnd) }

// Abandoned reports whether the lease of the current attempt has ended at now and
// the attempt has reported no outcome.
func (r *Record) Abandoned(now time.Time) bool {
	return r.State == StateInProgress && r.LeaseEnded(now)
}

// StateSince returns the time at which r entered its state, or at which the current
// attempt began if r is in progress.
func (r *Record) StateSince() time.Time {
	if r.Since.IsZero() {
		return r.Created
	}
	return r.Since
}

// RunsAgain reports whether r may run again without evidence after an attempt that
// failed or reported no outcome: its recovery allows that, and no interrupted
// [AtMostOnce] step prevents it.
func (r *Record) RunsAgain() bool {
	interrupted := func(s StepRecord) bool { return !s.Finished && s.Mode == AtMostOnce }
	return r.Recovery != Reconcile && !slices.ContainsFunc(r.Steps, interrupted)
}

// Open reports whether an effect may have happened whose step is not recorded as
// finished.
func (r *Record) Open() bool {
	return !r.OpenSince.IsZero() || slices.ContainsFunc(r.Steps, func(s StepRecord) bool { return !s.Finished })
}

// Resumable reports whether r was released under [Resume] after some of its effects:
// the next request continues it, or evidence settles it. [Record.Schedule] decides
// that.
func (r *Record) Resumable() bool { return r.State == StateRetryable && !r.Due.IsZero() }

// Waits reports whether r waits for evidence: its outcome is unknown, or it is
// resumable.
func (r *Record) Waits() bool { return r.State == StateUnknown || r.Resumable() }

// Scheduled reports whether reconciliation of r is due now or later. [DueLister]
// lists such a record as due.
func (r *Record) Scheduled() bool { return !r.Exhausted && !r.Due.IsZero() }

// DueBy reports whether reconciliation of r is due at now.
func (r *Record) DueBy(now time.Time) bool { return r.Scheduled() && !r.Due.After(now) }

// Deletable reports whether a store may delete r once it has expired: no effect of
// it waits for its owner or for evidence.
func (r *Record) Deletable() bool { return r.State == StateCompleted || r.State == StateRetryable }

// Sealed reports whether only an idempotent.Sealer can read the result of r.
func (r *Record) Sealed() bool { return strings.HasSuffix(r.Encoding, EncodingSealed) }

// DeclaredCodec returns the name of the codec that the operation of r declared, and
// whether it seals results.
func (r *Record) DeclaredCodec() (name string, seals bool) {
	name, seals = strings.CutSuffix(r.Codec, EncodingSealed)
	return cmp.Or(name, DefaultCodec), seals
}

// DeclareCodec sets what [Record.DeclaredCodec] returns.
func (r *Record) DeclareCodec(name string, seals bool) {
	switch {
	case seals:
		r.Codec = name + EncodingSealed
	case name == DefaultCodec:
		r.Codec = ""
	default:
		r.Codec = name
	}
}

// DeclaredRetention returns how long the operation of r retains an outcome.
func (r *Record) DeclaredRetention() time.Duration { return cmp.Or(r.Retention, DefaultRetention) }

// DeclareRetention sets what [Record.DeclaredRetention] returns.
func (r *Record) DeclareRetention(d time.Duration) {
	if r.Retention = d; d == DefaultRetention {
		r.Retention = 0
	}
}

// Schedule sets when r expires and when its reconciliation is due, from its state
// and from what its operation declared. Evidence about a record that begins to wait
// at now is first asked for after the pause. A record that is no longer in progress,
// or no longer due, is no longer Announced.
//
// It is the only place that decides which records never expire: those whose effect
// may be unresolved, unless UnresolvedRetention sets a limit.
func (r *Record) Schedule(now time.Time, pause time.Duration) {
	r.Expires, r.Due = time.Time{}, time.Time{}
	switch {
	case r.State == StateInProgress && r.Recovery == Rerun && r.RunsAgain():
		r.Expires = r.LeaseEnd.Add(r.DeclaredRetention())
	case r.State == StateInProgress:
		r.Due = r.LeaseEnd
		r.Expires = r.unresolvedExpiry(r.LeaseEnd)
	case r.State == StateUnknown,
		r.State == StateRetryable && r.Recovery == Resume && (len(r.Steps) > 0 || r.Open()): // effects to continue
		r.Due = now.Add(pause)
		r.Expires = r.unresolvedExpiry(now)
	default:
		r.Expires = now.Add(r.DeclaredRetention())
	}
	r.Announced = r.Announced && r.State == StateInProgress && !r.Due.IsZero()
}

// unresolvedExpiry returns when r expires if it has waited for evidence since the
// given time: never, unless its operation declared a limit.
func (r *Record) unresolvedExpiry(since time.Time) time.Time {
	if r.UnresolvedRetention == 0 {
		return time.Time{}
	}
	return since.Add(r.UnresolvedRetention)
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
