// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The methods in this file judge a record by itself and by a time. The guard, the
// stores and the tools use them, so that all of them judge a record alike. Only the
// guard judges whether a request may run.

const (
	// DefaultRetention is the retention of an outcome whose operation declares no
	// other. A record stores it as zero.
	DefaultRetention = 24 * time.Hour
	// DefaultCodec is the name of the codec of an operation that declares no other. A
	// record stores it as the empty name.
	DefaultCodec = "json"
)

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

// Sealed reports whether only an idempotent.Sealer can read the result of s.
func (s *StepRecord) Sealed() bool { return strings.HasSuffix(s.Encoding, EncodingSealed) }

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
