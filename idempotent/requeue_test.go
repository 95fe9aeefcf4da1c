// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// giveUp gives up every record that is due.
func (s *stranded) giveUp(t *testing.T) {
	t.Helper()
	s.reconcile(t, answer(idempotent.Later(0)), func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.ReleasedFor = time.Millisecond, time.Millisecond
	})
}

// A requeued record is due at once, its pauses and its age count anew, and it
// keeps the reason why it is unknown.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.unknowns(t, 1)
	s.giveUp(t)
	given := record(t, s, key)
	if !given.Exhausted || given.ReconcileAttempts != 1 {
		t.Fatalf("the record is %+v", given)
	}
	s.clock.Advance(30 * 24 * time.Hour)
	if err := s.guard.Requeue(t.Context(), key.RecordID()); err != nil {
		t.Fatal(err)
	}
	r := record(t, s, key)
	if soon := s.clock.Now().Add(-time.Minute); r.Exhausted || r.ReconcileAttempts != 0 || r.Due.Before(soon) || r.Since.Before(soon) || r.Reason != given.Reason || !r.Created.Equal(given.Created) {
		t.Errorf("the record is %+v", r)
	}
	if n := s.events.Count(event.ReconcileScheduled); n != 1 {
		t.Errorf("events %s", s.events.Kinds())
	}
	for range 3 { // it is not given up at once
		if report := s.reconcile(t, answer(idempotent.Later(24*time.Hour))); report.String() != "1 due, 1 postponed" {
			t.Errorf("the report: %s", report)
		}
		s.clock.Advance(24 * time.Hour)
	}
	// The time since when it is unknown does not become younger: see Report.Oldest.
	if report := s.reconcile(t, answer(idempotent.Later(0))); !report.Oldest.Equal(given.LeaseEnd) {
		t.Errorf("the oldest is unknown since %s, want %s", report.Oldest, given.LeaseEnd)
	}
	// It also ends a long pause.
	if err := s.guard.Requeue(t.Context(), key.RecordID()); err != nil {
		t.Fatal(err)
	}
	if report := s.reconcile(t, answer(idempotent.Resolved("x"))); report.String() != "1 due, 1 completed" {
		t.Errorf("the report: %s", report)
	}
}

// A record that does not wait for evidence is refused.
func TestRequeueRefused(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	running, done := s.leave(t, atOnce), s.leave(t, atOnce)
	if _, err := s.Replace(t.Context(), func() driver.Record {
		r := *record(t, s, done)
		r.State, r.Encoding, r.Result, r.Due = driver.StateCompleted, "json", []byte("1"), time.Time{}
		return r
	}(), record(t, s, done).Version); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id   idempotent.RecordID
		want func(error) bool
	}{
		"no id":     {"charge", func(err error) bool { return strings.Contains(err.Error(), "RecordID") }},
		"no record": {newKey().RecordID(), func(err error) bool { return errors.Is(err, idempotent.ErrNoRecord) }},
		"running":   {running.RecordID(), func(err error) bool { return errors.As(err, new(*idempotent.InProgressError)) }},
		"completed": {done.RecordID(), func(err error) bool { return strings.Contains(err.Error(), "is completed and does not wait") }},
	} {
		if err := s.guard.Requeue(t.Context(), c.id); err == nil || !c.want(err) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if n := s.events.Count(event.ReconcileScheduled); n != 0 {
		t.Errorf("%d events", n)
	}
}

// Requeue processes the end of a lease at once, as a reconciler would: the record is
// due now, if it waits for anything.
func TestRequeueAfterTheLease(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		declare func(*idempotent.Options)
		want    driver.State
		kind    event.Kind
		waits   bool
	}{
		"Reconcile":           {func(*idempotent.Options) {}, driver.StateUnknown, event.MarkedUnknown, true},
		"Resume":              {resume("charge"), driver.StateRetryable, event.Retryable, true},
		"Rerun, at most once": {func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }, driver.StateUnknown, event.MarkedUnknown, true},
		"Rerun":               {func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }, driver.StateRetryable, event.Retryable, false},
	} {
		w := newOldFixture()
		w.dies(t, row.declare, func(ctx context.Context) { _, _ = idempotent.Step(ctx, "charge", noAnswer, steps(name)...) })
		w.clock.Advance(time.Hour)
		g, events := newGuardOver(t, w.Store, func(o *idempotent.Options) { o.Now = w.clock.Now })
		if err := g.Requeue(t.Context(), w.key.RecordID()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r := w.record(t)
		if r.State != row.want || r.Due.IsZero() == row.waits || r.Due.After(w.clock.Now()) || events.Count(row.kind) != 1 || len(events.Kinds()) != 1 {
			t.Errorf("%s: the record is %s, due %s; events %s", name, r.State, r.Due, events.Kinds())
		}
		report, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Later(time.Hour)))
		if want := map[bool]string{true: "1 due, 1 postponed", false: "0 due"}[row.waits]; err != nil || report.String() != want {
			t.Errorf("%s: the next run: %s, %v", name, report, err)
		}
	}
}

// steps returns the options of a step, by the name of a row.
func steps(name string) []func(*idempotent.StepOptions) {
	if strings.Contains(name, "at most once") {
		return fnsStep(atMostOnce)
	}
	return nil
}

// A record past its retention is gone, even if the store still has it.
func TestRequeueExpired(t *testing.T) {
	t.Parallel()
	s := newStranded(t, func(o *idempotent.Options) { o.UnresolvedRetention = 48 * time.Hour })
	key := s.unknowns(t, 1)
	s.clock.Advance(72 * time.Hour)
	if err := s.guard.Requeue(t.Context(), key.RecordID()); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("got error %v", err)
	}
}

// A failure of the store is a StoreError and an event, and another write is judged
// again.
func TestRequeueStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		met  func(driver.Record) (*driver.Record, error)
		want func(error) bool
		told int // events of a failed store
	}{
		"down":      {down, func(err error) bool { return errors.As(err, new(*idempotent.StoreError)) }, 1},
		"gone":      {gone, func(err error) bool { return errors.Is(err, idempotent.ErrNoRecord) }, 0},
		"too large": {func(driver.Record) (*driver.Record, error) { return nil, driver.ErrTooLarge }, func(err error) bool { return errors.As(err, new(*idempotent.StoreError)) }, 1},
		"settled": {func(r driver.Record) (*driver.Record, error) {
			r.Version, r.State, r.Due = driver.Version{7}, driver.StateCompleted, time.Time{}
			return &r, nil
		}, func(err error) bool { return strings.Contains(err.Error(), "does not wait") }, 0},
	} {
		s := newStranded(t)
		key := s.unknowns(t, 1)
		g, events := newGuardOver(t, answering(s.Store, driver.OpReplace, c.met), func(o *idempotent.Options) { o.Now = s.clock.Now })
		if err := g.Requeue(t.Context(), key.RecordID()); err == nil || !c.want(err) || events.Count(event.StoreError) != c.told || events.Count(event.ReconcileScheduled) != 0 {
			t.Errorf("%s: got error %v, events %s", name, err, events.Kinds())
		}
	}
}

// RequeueExhausted requeues the records that were given up, of the operations that
// it is given, and no other record.
func TestRequeueExhausted(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	var given []idempotent.Key
	for range 20 {
		given = append(given, s.leave(t, atOnce))
	}
	s.clock.Advance(time.Hour)
	s.reconcile(t, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true })
	s.clock.Advance(time.Hour)
	s.giveUp(t)
	waiting := s.unknowns(t, 1)
	before := record(t, s, waiting).Version
	if n, err := s.guard.RequeueExhausted(t.Context(), "refund"); n != 0 || err != nil {
		t.Errorf("of another operation: %d, %v", n, err)
	}
	if n, err := s.guard.RequeueExhausted(t.Context(), "refund", "charge"); n != len(given) || err != nil {
		t.Errorf("requeued %d, %v; want %d", n, err, len(given))
	}
	if n, err := s.guard.RequeueExhausted(t.Context()); n != 0 || err != nil {
		t.Errorf("a second time: %d, %v", n, err)
	}
	if record(t, s, waiting).Version != before {
		t.Error("a record that was not given up was written")
	}
	if report := s.reconcile(t, answer(idempotent.Resolved("x"))); report.Completed != len(given)+1 {
		t.Errorf("the report: %s", report)
	}
}

// A list is only a hint, and a failure with one record does not stop the others.
func TestRequeueExhaustedFails(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	failed, stale, fine, last := s.unknowns(t, 1), s.unknowns(t, 1), s.unknowns(t, 1), s.unknowns(t, 1)
	s.giveUp(t)
	list := []driver.Record{*record(t, s, failed), *record(t, s, stale), {ID: newKey().RecordID()}, *record(t, s, fine)}
	if err := s.guard.Resolve(t.Context(), stale.RecordID(), idempotent.Resolved("x")); err != nil {
		t.Fatal(err)
	}
	store := answering(s.Store, driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
		if r.ID == failed.RecordID() {
			return nil, errDown
		}
		return nil, nil
	})
	damaged := []error{nil, nil, nil, errLost} // the list could not read it, and a read can
	g, _ := newGuardOver(t, yields{store, list, damaged}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	n, err := g.RequeueExhausted(t.Context())
	if n != 1 || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "1 of 2 records failed") {
		t.Errorf("requeued %d, %v; want 1, and an error about the other", n, err)
	}
	if r := record(t, s, fine); r.Exhausted {
		t.Error("a record was not requeued")
	}
	// A list that fails ends the call, whatever else failed.
	list = []driver.Record{*record(t, s, failed), {}, *record(t, s, last)}
	g, events := newGuardOver(t, yields{store, list, []error{nil, errLost, nil}}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	n, err = g.RequeueExhausted(t.Context())
	listed := (*idempotent.StoreError)(nil)
	if n != 0 || !errors.Is(err, errLost) || !errors.As(err, &listed) || listed.Op != driver.OpListDue || events.Count(event.StoreError) != 2 || !record(t, s, last).Exhausted {
		t.Errorf("with a list that fails: requeued %d, %v", n, err)
	}
	plain, _ := newGuardOver(t, struct{ driver.Store }{s.Store})
	if _, err := plain.RequeueExhausted(t.Context()); err == nil || !strings.Contains(err.Error(), "driver.DueLister") {
		t.Errorf("a store without lists: got error %v", err)
	}
}

// The records are requeued at the same time.
func TestRequeueExhaustedIsConcurrent(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	s.unknowns(t, 2)
	s.giveUp(t)
	meeting := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, _ := newGuardOver(t, answering(s.Store, driver.OpReplace, func(driver.Record) (*driver.Record, error) {
		select {
		case meeting <- struct{}{}:
		case <-meeting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return nil, nil
	}), func(o *idempotent.Options) { o.Now = s.clock.Now })
	if n, err := g.RequeueExhausted(ctx); n != 2 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
}
