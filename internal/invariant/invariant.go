// SPDX-License-Identifier: Apache-2.0

// Package invariant has the invariants of the design about one write to a record, and the
// fingerprint in it. The suites of idempotenttest check the writes of a history with them,
// and the explorer each write of each schedule. It shares no code with the guard.
package invariant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Write is a write that took effect.
type Write struct {
	Before *driver.Record // nil: there was none
	After  *driver.Record // nil: the record was deleted
	Insert bool           // or it replaces the version Was
	Was    driver.Version
	At     time.Time
	By     Writer
	Owner  bool // the writer's claim is the one that Before shows
}

// Writer is what wrote.
type Writer byte

const (
	Request      Writer = iota
	Evidence            // about the whole operation
	StepEvidence        // about a step
	Correction          // of a step
	Forgetter           // an operator who discards an outcome
	Corrector           // an operator who replaces an outcome
	Reconciler          // of a lease that has ended
	Requeuer            // an operator who makes a record due
)

// Invariants are those about writes. A broken one says why.
var Invariants = []struct {
	Name   string
	Broken func(Write) string
}{
	{"INV-1", exclusion},
	{"INV-4", completedIsFinal},
	{"INV-5", fencing},
	{"INV-6", oneRequest},
	{"INV-8", unknownAbsorbs},
	{"INV-9", listed},
	{"INV-11", monotone},
	{"INV-12", noResurrection},
	{"FM48", notExecutedOfTheDead},
}

// Broken returns why a write breaks the invariant of that name; empty if it does not.
func (w Write) Broken(name string) string {
	for _, i := range Invariants {
		if i.Name == name {
			return i.Broken(w)
		}
	}
	return ""
}

// RunsAgain reports whether a record whose lease has ended may run again without
// evidence.
func RunsAgain(r *driver.Record) bool {
	return r.Recovery != driver.Reconcile &&
		!slices.ContainsFunc(r.Steps, func(s driver.StepRecord) bool { return !s.Finished && s.Mode == driver.AtMostOnce })
}

// Ended reports whether the lease of r has ended at now.
func Ended(r *driver.Record, now time.Time) bool { return !now.Before(r.LeaseEnd) }

// Expired reports whether r counts as missing at now.
func Expired(r *driver.Record, now time.Time) bool {
	return r == nil || !r.Expires.IsZero() && !now.Before(r.Expires)
}

// Claims reports whether a write changes the owner of the record. Any other write that
// leaves it in progress is a step of its owner.
func (w Write) Claims() bool {
	return w.After.State == driver.StateInProgress && (w.Before == nil || w.Insert || w.Before.Owner != w.After.Owner)
}

// replaces reports whether a record took the place of another one.
func (w Write) replaces() bool { return w.Before != nil && w.After != nil && !w.Insert }

func exclusion(w Write) string {
	if w.replaces() && w.Claims() && w.Before.State == driver.StateInProgress && !(RunsAgain(w.Before) && Ended(w.Before, w.At)) {
		return "a takeover is not allowed"
	}
	return ""
}

func completedIsFinal(w Write) string {
	switch {
	case w.Before == nil || w.Before.State != driver.StateCompleted || Expired(w.Before, w.At):
	case w.After == nil:
		return "a completed record was deleted"
	case !Ended(w.Before, w.At):
		return "a completed record became " + w.After.State.String() + " before its lease ended"
	case w.By == Forgetter && w.After.State == driver.StateRetryable:
	case w.By == Corrector && w.After.State == driver.StateCompleted:
		if w.After.Owner == w.Before.Owner {
			return "a corrected record has its old token"
		}
	default:
		return "a completed record became " + w.After.State.String()
	}
	return ""
}

// fencing: a write that replaces a record names the current version, and is one of
// five: the owner's own report, evidence, a claim of a free record, a claim of a record
// whose lease has ended and that may run again, or a sweep of one whose lease has ended.
func fencing(w Write) string {
	before, after := w.Before, w.After
	if before == nil || after == nil {
		return ""
	}
	if w.Insert {
		if !Expired(before, w.At) {
			return fmt.Sprintf("it was inserted over a record that is %s", before.State)
		}
		return ""
	}
	ended := before.State == driver.StateInProgress && Ended(before, w.At)
	switch {
	case w.Was != before.Version:
		return "it replaced a version that was not read"
	case after.ID != before.ID || !after.Created.Equal(before.Created):
		return "it belongs to another record"
	case w.Claims():
		if before.State != driver.StateRetryable && !(ended && RunsAgain(before)) {
			return fmt.Sprintf("a claim took over a record that is %s, its lease ended: %t", before.State, ended)
		}
	case w.By == Corrector: // see INV-4
		if before.State != driver.StateCompleted {
			return fmt.Sprintf("a correction completed a record that is %s", before.State)
		}
	case after.Owner != before.Owner:
		return "only a claim changes the owner"
	case after.State == driver.StateInProgress && !after.LeaseEnd.Equal(before.LeaseEnd):
		return "only a claim changes the lease"
	case w.By == StepEvidence, w.By == Correction:
		if after.State != before.State && (before.State != driver.StateUnknown || after.State != driver.StateRetryable || !RunsAgain(after)) {
			return fmt.Sprintf("evidence about a step made a record that is %s %s", before.State, after.State)
		}
	case w.By == Evidence:
		if after.State == driver.StateUnknown {
			return "evidence made it unknown"
		}
	case w.By == Forgetter, w.Owner: // a forgetter: see INV-4
	case w.By >= Reconciler && after.State == before.State: // it is due at another time
	case after.State == driver.StateInProgress:
		return "a step was written by another than the owner"
	case ended && (w.By == Reconciler || w.By == Requeuer) && after.State == driver.StateRetryable && RunsAgain(before):
	case !ended || after.State != driver.StateUnknown || RunsAgain(before): // a sweep
		return fmt.Sprintf("another than the owner changed a record that is %s to %s", before.State, after.State)
	}
	return ""
}

func oneRequest(w Write) string {
	if w.replaces() && w.Before.Fingerprint != w.After.Fingerprint {
		return "it became the record of another request"
	}
	return ""
}

func unknownAbsorbs(w Write) string {
	before, after := w.Before, w.After
	switch {
	case after != nil && after.State == driver.StateUnknown && after.UnresolvedRetention == 0 && !after.Expires.IsZero():
		return "an unknown record expires"
	case before == nil || before.State != driver.StateUnknown:
	case after == nil && before.Expires.IsZero():
		return "an unknown record was deleted"
	case after == nil || after.State == driver.StateUnknown || w.Owner && !w.Claims() || w.By == Evidence:
	case w.By != StepEvidence && w.By != Correction:
		return fmt.Sprintf("an unknown record became %s without evidence", after.State)
	case !slices.ContainsFunc(before.Steps, func(s driver.StepRecord) bool { return !s.Finished && finished(after, s.Name) != nil }):
		return fmt.Sprintf("evidence about a step that was not open made it %s", after.State)
	}
	return ""
}

// listed: an unknown record is on the list of due records until evidence comes, if it
// needs any.
func listed(w Write) string {
	r := w.After
	switch {
	case r == nil || r.State != driver.StateUnknown:
	case r.Due.IsZero() && !r.Exhausted:
		return "an unknown record is not due"
	case (r.Reason == driver.ReasonInterrupted || r.Reason == driver.ReasonLeaseEnded) && RunsAgain(r):
		return fmt.Sprintf("the record is unknown (%s), and no step of it is open", r.Reason)
	}
	return ""
}

// monotone: attempts increase by one with each claim, and a finished step stays.
func monotone(w Write) string {
	if !w.replaces() {
		return ""
	}
	want := w.Before.Attempt
	if w.Claims() {
		want++
	}
	if w.After.Attempt != want {
		return fmt.Sprintf("the attempt became %d after %d", w.After.Attempt, w.Before.Attempt)
	}
	if w.By == Correction {
		return ""
	}
	for _, s := range w.Before.Steps {
		if kept := finished(w.After, s.Name); s.Finished && w.After.State != driver.StateCompleted && (kept == nil || !bytes.Equal(kept.Result, s.Result)) {
			return "the finished step " + s.Name + " is missing or changed"
		}
	}
	return ""
}

func finished(r *driver.Record, step string) *driver.StepRecord {
	for i, s := range r.Steps {
		if s.Name == step && s.Finished {
			return &r.Steps[i]
		}
	}
	return nil
}

func noResurrection(w Write) string {
	if r := w.After; r != nil && (w.Before == nil || w.Insert) && (!w.Insert || r.State != driver.StateInProgress || r.Attempt != 1) {
		return fmt.Sprintf("a record began as %s, attempt %d, without a claim", r.State, r.Attempt)
	}
	return ""
}

// notExecutedOfTheDead: a worker whose lease is live may still have its effect.
func notExecutedOfTheDead(w Write) string {
	if !w.replaces() || w.By != Evidence || Ended(w.Before, w.At) {
		return ""
	}
	released := w.After.State == driver.StateRetryable && w.Before.State != driver.StateRetryable
	if released || w.After.State == driver.StateCompleted && w.Before.State == driver.StateInProgress {
		return "evidence made it " + w.After.State.String() + " while the lease is live"
	}
	return ""
}

// StoredFingerprint returns the fingerprint that a guard stores for key, for tests
// that write a record themselves or check one. It is the version of key.Fingerprint,
// and an HMAC-SHA-256 (RFC 2104) of key.Fingerprint. The HMAC's key is the SHA-256 sum
// of the letter f, operation, scope and id, each of the three with its length before
// it. It shares no code with package idempotent, so that every test which uses it also
// checks what a guard stores.
func StoredFingerprint(key idempotent.Key) (stored idempotent.Fingerprint) {
	parts := "f"
	for _, part := range []string{key.Operation, key.Scope, key.ID} {
		parts += string(binary.AppendUvarint(nil, uint64(len(part)))) + part
	}
	secret := sha256.Sum256([]byte(parts))
	stored[0] = key.Fingerprint[0]
	copy(stored[1:], hmac(string(secret[:]), string(key.Fingerprint[:])))
	return stored
}

// hmac is RFC 2104 for a key that is shorter than a block.
func hmac(key, text string) string {
	key += strings.Repeat("\x00", sha256.BlockSize-len(key))
	pad := func(with byte) string {
		block := []byte(key)
		for i := range block {
			block[i] ^= with
		}
		return string(block)
	}
	inner := sha256.Sum256([]byte(pad(0x36) + text))
	outer := sha256.Sum256([]byte(pad(0x5c) + string(inner[:])))
	return string(outer[:])
}
