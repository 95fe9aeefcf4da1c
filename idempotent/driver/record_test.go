// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Each boundary is tested at its millisecond and one before.
var (
	at        = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	never     = time.Time{}
	passed    = at                       // a time that has come at `at`
	live      = at.Add(time.Millisecond) // one millisecond left
	begunStep = []driver.StepRecord{{Name: "a", Mode: driver.AtLeastOnce}}
	cutStep   = []driver.StepRecord{{Name: "a", Finished: true, Mode: driver.AtMostOnce}, {Name: "b", Mode: driver.AtMostOnce}}
	doneStep  = cutStep[:1]
)

// Every judgement that takes only a time, of records that differ in what decides it.
func TestJudgements(t *testing.T) {
	t.Parallel()
	judgements := []struct {
		name string
		of   func(*driver.Record) bool
	}{
		{"expired", func(r *driver.Record) bool { return r.Expired(at) }},
		{"outlived", func(r *driver.Record) bool { return r.ExpiredBefore(at, time.Millisecond) }},
		{"ended", func(r *driver.Record) bool { return r.LeaseEnded(at) }},
		{"abandoned", func(r *driver.Record) bool { return r.Abandoned(at) }},
		{"again", (*driver.Record).RunsAgain},
		{"open", (*driver.Record).Open},
		{"resumable", (*driver.Record).Resumable},
		{"waits", (*driver.Record).Waits},
		{"scheduled", (*driver.Record).Scheduled},
		{"due", func(r *driver.Record) bool { return r.DueBy(at) }},
		{"deletable", (*driver.Record).Deletable},
		{"sealed", (*driver.Record).Sealed},
	}
	for _, row := range []struct {
		name string
		r    driver.Record
		want string // of judgements that are true
	}{
		{"running", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Due: live}, "scheduled"},
		{"killed", driver.Record{State: driver.StateInProgress, LeaseEnd: passed, Due: passed}, "ended abandoned scheduled due"},
		{"running, Rerun", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: driver.Rerun, Expires: live}, "again"},
		{"killed, Rerun", driver.Record{State: driver.StateInProgress, LeaseEnd: passed, Recovery: driver.Rerun, Expires: passed}, "expired ended abandoned again"},
		{"a finished step", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: driver.Resume, Steps: doneStep}, "again"},
		{"a step that may run again", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: driver.Resume, Steps: begunStep}, "again open"},
		{"a step that must not run again", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: driver.Resume, Steps: cutStep}, "open"},
		{"a step without a report", driver.Record{State: driver.StateInProgress, LeaseEnd: live, Recovery: driver.Resume, OpenSince: at}, "again open"},
		{"completed", driver.Record{State: driver.StateCompleted, LeaseEnd: passed, Encoding: "json", Expires: live}, "ended deletable"},
		{"expired, in its grace period", driver.Record{State: driver.StateCompleted, LeaseEnd: live, Expires: at.Add(-time.Millisecond)}, "expired deletable"},
		{"outlived", driver.Record{State: driver.StateCompleted, LeaseEnd: live, Expires: at.Add(-2 * time.Millisecond)}, "expired outlived deletable"},
		{"completed and sealed", driver.Record{State: driver.StateCompleted, LeaseEnd: live, Encoding: "json+br+sealed"}, "deletable sealed"},
		{"retryable", driver.Record{State: driver.StateRetryable, LeaseEnd: live}, "deletable"},
		{"released", driver.Record{State: driver.StateRetryable, LeaseEnd: live, Due: live}, "resumable waits scheduled deletable"},
		{"unknown, not yet due", driver.Record{State: driver.StateUnknown, LeaseEnd: passed, Due: live}, "ended waits scheduled"},
		{"unknown and due", driver.Record{State: driver.StateUnknown, LeaseEnd: passed, Due: passed}, "ended waits scheduled due"},
		{"unknown and given up", driver.Record{State: driver.StateUnknown, LeaseEnd: passed, Due: passed, Exhausted: true}, "ended waits"},
		{"unknown, in no list", driver.Record{State: driver.StateUnknown, LeaseEnd: live}, "waits"},
		{"a state of a later version", driver.Record{State: driver.StateUnknown + 1, LeaseEnd: passed, Due: live}, "ended scheduled"},
	} {
		var got []string
		for _, j := range judgements {
			if j.of(&row.r) {
				got = append(got, j.name)
			}
		}
		if !slices.Equal(got, strings.Fields(row.want)) {
			t.Errorf("%s: got %v, want %s", row.name, got, row.want)
		}
	}
}

func TestStateSince(t *testing.T) {
	t.Parallel()
	r := driver.Record{Created: at}
	if got := r.StateSince(); !got.Equal(at) {
		t.Errorf("in its first run: %v, want when it was created", got)
	}
	if r.Since = live; !r.StateSince().Equal(live) {
		t.Errorf("later: %v, want when it entered its state", r.StateSince())
	}
}

func TestStepIsSealed(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]bool{"json": false, "json+sealed": true, "": false} {
		if s := (driver.StepRecord{Encoding: encoding}); s.Sealed() != want {
			t.Errorf("%q: got %t", encoding, !want)
		}
	}
}

// A default is stored as the zero value, and read as what it is.
func TestDeclared(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		codec     string
		seals     bool
		retention time.Duration
		stored    driver.Record
	}{
		{"json", false, 24 * time.Hour, driver.Record{}},
		{"json", true, time.Hour, driver.Record{Codec: "json+sealed", Retention: time.Hour}},
		{"http", false, time.Hour, driver.Record{Codec: "http", Retention: time.Hour}},
		{"http", true, 24 * time.Hour, driver.Record{Codec: "http+sealed"}},
	} {
		r := driver.Record{Codec: "other", Retention: time.Minute} // of an earlier run
		r.DeclareCodec(row.codec, row.seals)
		r.DeclareRetention(row.retention)
		if r.Codec != row.stored.Codec || r.Retention != row.stored.Retention {
			t.Errorf("%+v: stored %q and %s", row, r.Codec, r.Retention)
		}
		if codec, seals := r.DeclaredCodec(); codec != row.codec || seals != row.seals || r.DeclaredRetention() != row.retention {
			t.Errorf("%+v: read %q, %t and %s", row, codec, seals, r.DeclaredRetention())
		}
	}
	if codec, seals := (&driver.Record{Codec: driver.EncodingSealed}).DeclaredCodec(); codec != driver.DefaultCodec || !seals {
		t.Errorf("the default codec, sealed: read %q, %t", codec, seals)
	}
}

// What a record was before decides nothing.
func TestSchedule(t *testing.T) {
	t.Parallel()
	const retention, reconcileAfter, unresolved = time.Hour, time.Minute, 48 * time.Hour
	for _, row := range []struct {
		name         string
		r            driver.Record
		expires, due time.Time
	}{
		{"in progress, Reconcile", driver.Record{State: driver.StateInProgress, LeaseEnd: live}, never, live},
		{"in progress, Rerun", driver.Record{State: driver.StateInProgress, Recovery: driver.Rerun, LeaseEnd: live}, live.Add(retention), never},
		{"in progress, Resume", driver.Record{State: driver.StateInProgress, Recovery: driver.Resume, LeaseEnd: live}, never, live},
		{"in progress, Rerun, interrupted", driver.Record{State: driver.StateInProgress, Recovery: driver.Rerun, LeaseEnd: live, Steps: cutStep}, never, live},
		{"in progress, Rerun, a step to be run again", driver.Record{State: driver.StateInProgress, Recovery: driver.Rerun, LeaseEnd: live, Steps: begunStep}, live.Add(retention), never},
		{"completed", driver.Record{State: driver.StateCompleted, LeaseEnd: live}, at.Add(retention), never},
		{"completed while its lease is longer than the retention", driver.Record{State: driver.StateCompleted, LeaseEnd: at.Add(2 * retention)}, at.Add(retention), never},
		{"retryable", driver.Record{State: driver.StateRetryable, Recovery: driver.Rerun, LeaseEnd: live}, at.Add(retention), never},
		{"retryable, Resume, without steps", driver.Record{State: driver.StateRetryable, Recovery: driver.Resume, LeaseEnd: live}, at.Add(retention), never},
		{"retryable, Resume, begun and not reported", driver.Record{State: driver.StateRetryable, Recovery: driver.Resume, LeaseEnd: live, OpenSince: at}, never, at.Add(reconcileAfter)},
		{"retryable, Rerun, begun and not reported", driver.Record{State: driver.StateRetryable, Recovery: driver.Rerun, LeaseEnd: live, OpenSince: at}, at.Add(retention), never},
		{"retryable, Resume, with a finished step", driver.Record{State: driver.StateRetryable, Recovery: driver.Resume, LeaseEnd: live, Steps: doneStep}, never, at.Add(reconcileAfter)},
		{"retryable, Resume, with a step", driver.Record{State: driver.StateRetryable, Recovery: driver.Resume, LeaseEnd: live, Steps: begunStep}, never, at.Add(reconcileAfter)},
		{"unknown, Reconcile", driver.Record{State: driver.StateUnknown, LeaseEnd: live}, never, at.Add(reconcileAfter)},
		{"unknown, Rerun", driver.Record{State: driver.StateUnknown, Recovery: driver.Rerun, LeaseEnd: live}, never, at.Add(reconcileAfter)},
	} {
		r := row.r
		r.Expires, r.Due, r.Announced = at.Add(99*time.Hour), at.Add(99*time.Hour), true // from the previous state
		r.Retention = retention
		r.Schedule(at, reconcileAfter)
		announced := strings.HasPrefix(row.name, "in progress") && row.due != never
		if !r.Expires.Equal(row.expires) || !r.Due.Equal(row.due) || r.Announced != announced {
			t.Errorf("%s: expires %v, due %v, announced %t; want %v, %v, %t", row.name, r.Expires, r.Due, r.Announced, row.expires, row.due, announced)
		}

		// With UnresolvedRetention: only records that would never expire change.
		r = row.r
		r.Retention, r.UnresolvedRetention = retention, unresolved
		r.Schedule(at, reconcileAfter)
		want := row.expires
		if want.IsZero() {
			if want = at.Add(unresolved); r.State == driver.StateInProgress {
				want = r.LeaseEnd.Add(unresolved)
			}
		}
		if !r.Expires.Equal(want) || !r.Due.Equal(row.due) || r.Announced {
			t.Errorf("%s, bounded: expires %v, due %v, announced %t; want %v, %v, false", row.name, r.Expires, r.Due, r.Announced, want, row.due)
		}
	}
}
