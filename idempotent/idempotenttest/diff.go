package idempotenttest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// sameRecord returns an error that names the fields in which got differs from
// want. It ignores Extra, which belongs to the store.
func sameRecord(what string, got *driver.Record, want driver.Record) error {
	if got == nil {
		return fmt.Errorf("%s no record, want %s", what, describe(&want))
	}
	var wrong []string
	field := func(name string, same bool, g, w any) {
		if !same {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", name, g, w))
		}
	}
	moment := func(name string, g, w time.Time) {
		field(name, g.Equal(w) && g.IsZero() == w.IsZero() && g.Location() == time.UTC, g, w)
	}
	field("ID", got.ID == want.ID, got.ID, want.ID)
	field("State", got.State == want.State, got.State, want.State)
	field("Reason", got.Reason == want.Reason, got.Reason, want.Reason)
	field("Recovery", got.Recovery == want.Recovery, got.Recovery, want.Recovery)
	field("Retention", got.Retention == want.Retention, got.Retention, want.Retention)
	field("UnresolvedRetention", got.UnresolvedRetention == want.UnresolvedRetention, got.UnresolvedRetention, want.UnresolvedRetention)
	field("Codec", got.Codec == want.Codec, got.Codec, want.Codec)
	field("StepNames", slices.Equal(got.StepNames, want.StepNames), got.StepNames, want.StepNames)
	field("Owner", got.Owner == want.Owner, got.Owner, want.Owner)
	field("Version", got.Version == want.Version, got.Version, want.Version)
	field("Attempt", got.Attempt == want.Attempt, got.Attempt, want.Attempt)
	field("Fingerprint", got.Fingerprint == want.Fingerprint, got.Fingerprint, want.Fingerprint)
	moment("LeaseEnd", got.LeaseEnd, want.LeaseEnd)
	moment("Expires", got.Expires, want.Expires)
	moment("Created", got.Created, want.Created)
	moment("Settled", got.Settled, want.Settled)
	field("Encoding", got.Encoding == want.Encoding, got.Encoding, want.Encoding)
	field("Result", bytes.Equal(got.Result, want.Result) && (got.Result == nil) == (want.Result == nil), brief(got.Result), brief(want.Result))
	field("Chunks", got.Chunks == want.Chunks, got.Chunks, want.Chunks)
	field("ResultVersion", got.ResultVersion == want.ResultVersion, got.ResultVersion, want.ResultVersion)
	field("Ref", got.Ref == want.Ref, got.Ref, want.Ref)
	field("RequestID", got.RequestID == want.RequestID, got.RequestID, want.RequestID)
	field("Steps", slices.EqualFunc(got.Steps, want.Steps, sameStep), got.Steps, want.Steps)
	moment("OpenSince", got.OpenSince, want.OpenSince)
	moment("Due", got.Due, want.Due)
	field("ReconcileAttempts", got.ReconcileAttempts == want.ReconcileAttempts, got.ReconcileAttempts, want.ReconcileAttempts)
	field("Exhausted", got.Exhausted == want.Exhausted, got.Exhausted, want.Exhausted)
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%s a record with wrong fields: %s", what, strings.Join(wrong, "; "))
}

func sameStep(a, b driver.StepRecord) bool {
	return a.Name == b.Name && a.Finished == b.Finished && a.Mode == b.Mode && a.Attempt == b.Attempt &&
		a.By == b.By && a.Shape == b.Shape && a.At.Equal(b.At) && a.At.Location() == b.At.Location() &&
		a.Encoding == b.Encoding && bytes.Equal(a.Result, b.Result)
}

func brief(b []byte) string {
	if b == nil {
		return "absent"
	}
	if len(b) > 32 {
		return fmt.Sprintf("%q… (%d bytes)", b[:32], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func describe(r *driver.Record) string {
	if r == nil {
		return "no record"
	}
	return fmt.Sprintf("a record (%s, %s, attempt %d)", r.ID, r.State, r.Attempt)
}

var errNone = errors.New("no error")

// orNil returns err, or for a nil err an error that %w can print.
func orNil(err error) error {
	if err == nil {
		return errNone
	}
	return err
}
