// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// Failures while the list of due records is worked through, and how they are
// counted and reported.

// yields is a list of given records and errors.
type yields struct {
	driver.Store
	records []driver.Record
	errs    []error
}

func (y yields) Due(context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for i, r := range y.records {
			if !yield(r.Listed(), y.errs[i]) {
				return
			}
		}
	}
}
func (y yields) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] { return y.Due(ctx) }

// An error about one record is counted and reported, and the record is skipped;
// an error of the list ends the run.
func TestReconcileListErrors(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	first, second := s.leave(t, atOnce), s.leave(t, atOnce)
	s.clock.Advance(time.Minute)
	one, two := *record(t, s, first), *record(t, s, second)
	unreadable := driver.Record{ID: newKey().RecordID()}
	g, events := newGuardOver(t, yields{s.Store, []driver.Record{one, unreadable, {}, two}, []error{nil, errDown, errLost, nil}},
		func(o *idempotent.Options) { o.Now = s.clock.Now })
	report, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Resolved("x")))
	if failed := (*idempotent.StoreError)(nil); !errors.As(err, &failed) || !errors.Is(err, errLost) || failed.Op != driver.OpListDue || failed.RecordID != "" || report.Listed {
		t.Errorf("got error %v; listed %t", err, report.Listed)
	}
	if got := report.String(); got != "2 due, 1 marked unknown, 1 completed, 1 failed" {
		t.Errorf("the report: %s", got)
	}
	if r := record(t, s, second); r.State != driver.StateInProgress {
		t.Error("the run continued after the list had failed")
	}
	records, lists := 0, 0
	for _, e := range events.Events() {
		switch {
		case e.Kind == event.StoreError && errors.Is(e.Err, errDown) && e.KeyHash == unreadable.ID.KeyHash():
			records++
		case e.Kind == event.StoreError && errors.Is(e.Err, errLost) && e.KeyHash == "":
			lists++
		}
	}
	if records != 1 || lists != 1 {
		t.Errorf("%d events about the record that cannot be read, and %d about the list, want 1 and 1", records, lists)
	}
}

// unknowns leaves n records unknown and due, and returns the first one's key.
func (s *stranded) unknowns(t *testing.T, n int) (key idempotent.Key) {
	t.Helper()
	for range n {
		key = s.leave(t, atOnce)
	}
	s.clock.Advance(time.Minute)
	s.reconcile(t, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true })
	s.clock.Advance(time.Hour)
	return key
}

// Evidence about a step is counted as such, and the record still waits: released
// under Resume, unknown under Reconcile. A settled record does not.
func TestReconcileStepEvidence(t *testing.T) {
	t.Parallel()
	steps := func(o *idempotent.Options) { o.Steps = []string{"a"} }
	for name, c := range map[string]struct {
		declare  func(*idempotent.Options)
		evidence []idempotent.Resolution
		reports  []string
		waits    bool
		released bool
	}{
		"a step, released": {resume("a"), []idempotent.Resolution{idempotent.ResolvedStep("a", "x"), idempotent.CorrectedStep("a", "y")},
			[]string{"1 due, 1 released, 1 with a step recorded", "1 due, 1 with a step recorded"}, true, true},
		"a step, unknown": {steps, []idempotent.Resolution{idempotent.ResolvedStep("a", "x"), idempotent.ResolvedStep("a", "x")},
			[]string{"1 due, 1 marked unknown, 1 with a step recorded", "1 due, 1 postponed"}, true, false},
		"the outcome": {steps, []idempotent.Resolution{idempotent.Resolved("x")}, []string{"1 due, 1 marked unknown, 1 completed"}, false, false},
	} {
		s := newStranded(t, c.declare)
		ended := record(t, s, s.leave(t, atOnce)).LeaseEnd
		var unknown, released time.Time
		if c.waits && c.released {
			released = ended
		} else if c.waits {
			unknown = ended
		}
		for i, evidence := range c.evidence {
			s.clock.Advance(2 * time.Hour)
			report := s.reconcile(t, answer(evidence))
			if got := report.String(); got != c.reports[i] || !report.Oldest.Equal(unknown) || !report.OldestReleased.Equal(released) {
				t.Errorf("%s, run %d: %s; oldest %s, oldest released %s", name, i, got, report.Oldest, report.OldestReleased)
			}
		}
	}
}

// The resolver is not called for a released record that does not wait.
func TestReconcileReleasedWithoutEffects(t *testing.T) {
	t.Parallel()
	s := newStranded(t, resume("a"))
	key := s.leave(t, atOnce)
	r := record(t, s, key)
	was := r.Version
	r.Version, r.OpenSince = driver.Version{7}, time.Time{}
	if met, err := s.Replace(t.Context(), *r, was); met != nil || err != nil {
		t.Fatal(met, err)
	}
	s.clock.Advance(time.Minute)
	report := s.reconcile(t, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		t.Error("the resolver was called")
		return idempotent.Later(0), nil
	})
	if got := report.String(); got != "1 due, 1 released" || !report.OldestReleased.IsZero() {
		t.Errorf("the report: %s, oldest released %s", got, report.OldestReleased)
	}
}

// Evidence that cannot be encoded also fails in a dry run.
func TestReconcileDryRunOfBadEvidence(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	s.unknowns(t, 1)
	report := s.reconcile(t, answer(idempotent.Resolved(make(chan int))), func(o *idempotent.ReconcileOptions) { o.DryRun = true })
	if got := report.String(); got != "1 due, 1 postponed, 1 failed" {
		t.Errorf("the report: %s", got)
	}
}

// If another attempt began while the resolver was asked, its evidence counts as
// stale, whether that attempt still runs or has ended. A token that the record
// never had is the resolver's mistake, and fails.
func TestReconcileWhileAnotherAttemptBegins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state  driver.State
		answer func(idempotent.PendingRecord) idempotent.Resolution
		want   string
	}{
		"it runs": {driver.StateInProgress, func(idempotent.PendingRecord) idempotent.Resolution { return idempotent.Resolved("x") },
			"1 due, 1 stale"},
		"it has ended": {driver.StateUnknown, func(r idempotent.PendingRecord) idempotent.Resolution { return idempotent.ProvenNotExecuted(r.Token) },
			"1 due, 1 stale"},
		"a token of no attempt": {0, func(idempotent.PendingRecord) idempotent.Resolution { return idempotent.ProvenNotExecuted("1.x") },
			"1 due, 1 postponed, 1 failed"},
	} {
		s := newStranded(t)
		key := s.unknowns(t, 1)
		report := s.reconcile(t, func(ctx context.Context, asked idempotent.PendingRecord) (idempotent.Resolution, error) {
			if c.state != 0 {
				r := record(t, s, key)
				was := r.Version
				r.Version, r.Owner, r.Attempt, r.State = driver.Version{7}, driver.Owner{7}, r.Attempt+1, c.state
				r.LeaseEnd = s.clock.Now().Add(time.Minute)
				if met, err := s.Replace(ctx, *r, was); met != nil || err != nil {
					t.Error(met, err)
				}
			}
			return c.answer(asked), nil
		})
		if got := report.String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The result of a write is counted: another party was faster, or the store
// failed.
func TestReconcileWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		swept  bool // the record is already unknown
		write  int  // from which one on met answers; 1: the sweep, or the claim
		answer idempotent.Resolution
		met    func(r driver.Record) (*driver.Record, error)
		want   string
		waits  int // records that still wait
		kinds  []event.Kind
	}{
		"the sweep: gone":              {false, 1, idempotent.Resolved("x"), gone, "1 due, 1 stale", 0, nil},
		"the sweep: another write":     {false, 1, idempotent.Resolved("x"), another, "1 due, 1 stale", 1, nil},
		"the sweep: the store is down": {false, 1, idempotent.Resolved("x"), down, "1 due, 1 failed", 1, []event.Kind{"store_error"}},
		"the claim: gone":              {true, 1, idempotent.Resolved("x"), gone, "1 due, 1 stale", 0, nil},
		"the claim: another write":     {true, 1, idempotent.Resolved("x"), another, "1 due, 1 stale", 1, nil},
		"the claim: the store is down": {true, 1, idempotent.Resolved("x"), down, "1 due, 1 failed", 1, []event.Kind{"store_error"}},
		"an answer: gone":              {true, 2, idempotent.Resolved("x"), gone, "1 due, 1 stale", 0, nil},
		"an answer: settled":           {true, 2, idempotent.Resolved("x"), settledOtherwise, "1 due, 1 stale", 0, []event.Kind{"contradicted"}},
		"an answer: running":           {true, 2, notExecuted, runningAgain, "1 due, 1 stale", 0, nil},
		"an answer: too large":         {true, 2, idempotent.Resolved("x"), tooLarge, "1 due, 1 postponed, 1 failed", 1, []event.Kind{"reconcile_failed", "reconcile_scheduled"}},
		"an answer: the store is down": {true, 2, idempotent.Resolved("x"), down, "1 due, 1 failed", 1, []event.Kind{"store_error"}},
		"not executed: store is down":  {true, 2, notExecuted, down, "1 due, 1 failed", 1, []event.Kind{"store_error"}},
		"later: gone":                  {true, 2, idempotent.Later(time.Hour), gone, "1 due, 1 stale", 0, nil},
		"later: another write":         {true, 2, idempotent.Later(time.Hour), another, "1 due, 1 stale", 1, nil},
		"later: the store is down":     {true, 2, idempotent.Later(time.Hour), down, "1 due, 1 failed", 1, []event.Kind{"store_error"}},
	} {
		s := newStranded(t)
		if c.swept {
			s.unknowns(t, 1)
		} else {
			s.leave(t, atOnce)
			s.clock.Advance(time.Minute)
		}
		writes := 0
		g, events := newGuardOver(t, answering(s.Store, driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
			if writes++; writes < c.write {
				return nil, nil
			}
			return c.met(r)
		}), func(o *idempotent.Options) { o.Now = s.clock.Now })
		report, err := idempotent.ReconcileDue(t.Context(), g, answer(c.answer))
		if got := report.String(); err != nil || got != c.want || report.Pending != c.waits {
			t.Errorf("%s: %s, %v, %d pending; want %s, %d", name, got, err, report.Pending, c.want, c.waits)
		}
		for _, kind := range c.kinds {
			if events.Count(kind) == 0 {
				t.Errorf("%s: no event %s: %s", name, kind, events.Kinds())
			}
		}
		if len(c.kinds) == 0 && len(events.Kinds()) != 0 {
			t.Errorf("%s: events %s", name, events.Kinds())
		}
	}
}

func gone(driver.Record) (*driver.Record, error) { return nil, idempotent.ErrNoRecord }
func down(driver.Record) (*driver.Record, error) { return nil, errDown }

func tooLarge(r driver.Record) (*driver.Record, error) {
	if r.State == driver.StateCompleted {
		return nil, driver.ErrTooLarge
	}
	return nil, nil
}

func another(r driver.Record) (*driver.Record, error) {
	r.Version = driver.Version{7}
	return &r, nil
}

func settledOtherwise(r driver.Record) (*driver.Record, error) {
	r.Version, r.State, r.Encoding, r.Result = driver.Version{7}, driver.StateCompleted, "json", []byte(`"y"`)
	return &r, nil
}

func runningAgain(r driver.Record) (*driver.Record, error) {
	r.Version, r.Owner, r.State = driver.Version{7}, driver.Owner{7}, driver.StateInProgress
	return &r, nil
}

// A record that was released under Resume stays due, because its run may have
// died inside its first step. Evidence that nothing happened ends that, unless a
// finished step has to be continued.
func TestReconcileReleased(t *testing.T) {
	t.Parallel()
	s := newStranded(t, resume("a"))
	bare := s.leave(t, atOnce)
	stepped := s.leave(t, func(ctx context.Context, died func()) {
		if _, err := idempotent.Step(ctx, "a", value("x")); err != nil {
			t.Error(err)
		}
		died()
	})
	s.clock.Advance(time.Minute)
	var asked []idempotent.RecordID
	report := s.reconcile(t, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		asked = append(asked, r.ID)
		stored := r.Stored()
		v, found := stored.Step("a")
		if stepped := r.ID == stepped.RecordID(); found != stepped || v.Finished != stepped {
			t.Errorf("the resolver sees the steps %+v", stored.Steps)
		}
		if found {
			stored.Steps[0].Result[0] ^= 0xff // the resolver's own copy
		}
		return idempotent.ProvenNotExecuted(r.Token), nil
	}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
	if len(asked) != 2 {
		t.Errorf("called for %v", asked)
	}
	if got := report.String(); got != "2 due, 2 released, 2 not executed" {
		t.Errorf("the report: %s", got)
	}
	for _, key := range []idempotent.Key{bare, stepped} {
		r, waits := record(t, s, key), key == stepped
		if r.State != driver.StateRetryable || !r.OpenSince.IsZero() || r.Due.IsZero() == waits || r.Expires.IsZero() != waits {
			t.Errorf("the record is %s, open since %s, due %s, expires %s", r.State, r.OpenSince, r.Due, r.Expires)
		}
	}
	// The same evidence again changes nothing, and the record becomes due again
	// later.
	s.clock.Advance(time.Hour)
	report = s.reconcile(t, answer(notExecuted))
	if got := report.String(); got != "1 due, 1 postponed" {
		t.Errorf("the next report: %s", got)
	}
	if v, err := idempotent.Do(s.clock.Invocation(t.Context(), time.Minute), s.guard, stepped, func(ctx context.Context) (string, error) {
		return idempotent.Step(ctx, "a", never[string])
	}); v != "x" || err != nil {
		t.Errorf("the next run: %q, %v", v, err)
	}
}

// A released record waits for a request, not for an operator: reconciliation
// gives it up by its age, without OnExhausted, and does not count it as unknown.
// A request can still continue it.
func TestReleasedIsGivenUpByAge(t *testing.T) {
	t.Parallel()
	s := newStranded(t, resume("a"))
	key := s.leave(t, func(ctx context.Context, died func()) {
		if _, err := idempotent.Step(ctx, "a", value("x")); err != nil {
			t.Error(err)
		}
		died()
	})
	ended := record(t, s, key).LeaseEnd
	options := func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.ReleasedFor = time.Minute, 8*time.Hour
		o.OnExhausted = func(context.Context, idempotent.PendingRecord) error {
			t.Error("OnExhausted was called for a released record")
			return nil
		}
	}
	for range 8 { // from the first run, which releases it
		s.clock.Advance(time.Hour + time.Minute)
		report := s.reconcile(t, answer(idempotent.Later(time.Hour)), options)
		if report.Postponed != 1 || !report.Oldest.IsZero() || !report.OldestReleased.Equal(ended) || report.PendingReleased != 1 {
			t.Fatalf("the report: %s; oldest %s, oldest released %s; want it postponed and waiting since %s", report, report.Oldest, report.OldestReleased, ended)
		}
	}
	s.clock.Advance(time.Hour)
	if report := s.reconcile(t, answer(idempotent.Later(time.Hour)), options); report.Exhausted != 1 {
		t.Errorf("after 8 hours: %s, want it given up", report)
	}
	if r := record(t, s, key); !r.Exhausted || r.State != driver.StateRetryable {
		t.Errorf("the record is %s, exhausted %v", r.State, r.Exhausted)
	}
	if n := s.events.Count(event.ReleasedGivenUp); n != 1 || s.events.Count(event.ReconcileExhausted) != 0 {
		t.Errorf("events: %v", s.events.Events())
	}
	if v, err := idempotent.Do(s.clock.Invocation(t.Context(), time.Minute), s.guard, key, func(ctx context.Context) (string, error) {
		return idempotent.Step(ctx, "a", never[string])
	}); v != "x" || err != nil {
		t.Errorf("a request gets %q, %v; want it to continue", v, err)
	}
}

// The error of a resolver is a failure, except for those with which a predecessor
// answers too: the work is running elsewhere, so the record is not given up; or its
// outcome can no longer be found out, so a released record becomes unknown.
func TestWhatAnErrorOfTheResolverMeans(t *testing.T) {
	t.Parallel()
	running := fmt.Errorf("wrapped: %w", &idempotent.InProgressError{RetryAfter: 3 * time.Hour})
	gone := fmt.Errorf("wrapped: %w", idempotent.Unknown(errDown))
	released, unknown := resume("a"), func(*idempotent.Options) {}
	const settled = "released, gone, settled meanwhile"
	for name, c := range map[string]struct {
		options func(*idempotent.Options)
		err     error
		want    string
		state   driver.State
		due     time.Duration // after the question; 0: it is given up, -1: it is done
	}{
		"released, running": {released, running, "1 due, 1 postponed", driver.StateRetryable, 3 * time.Hour},
		"unknown, running":  {unknown, running, "1 due, 1 postponed", driver.StateUnknown, 3 * time.Hour},
		"released, gone":    {released, gone, "1 due, 1 marked unknown", driver.StateUnknown, time.Minute},
		"unknown, gone":     {unknown, gone, "1 due, 1 exhausted", driver.StateUnknown, 0},
		"released, failed":  {released, errDown, "1 due, 1 exhausted, 1 failed", driver.StateRetryable, 0},
		settled:             {released, gone, "1 due, 1 stale", driver.StateCompleted, -1},
	} {
		s := newStranded(t, c.options)
		key := s.leave(t, func(ctx context.Context, died func()) {
			if c.state == driver.StateRetryable || c.err == gone {
				_, _ = idempotent.Step(ctx, "a", value("x"))
				died()
			}
		})
		s.clock.Advance(time.Hour)
		s.reconcile(t, answer(idempotent.Later(time.Hour)))
		s.clock.Advance(time.Hour)
		before := s.events.Count(event.MarkedUnknown)
		report := s.reconcile(t, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if name == settled {
				if err := s.guard.Resolve(ctx, r.ID, idempotent.Resolved("x")); err != nil {
					t.Error(err)
				}
			}
			return idempotent.Resolution{}, c.err
		}, func(o *idempotent.ReconcileOptions) {
			o.GiveUpAfter, o.ReleasedFor = time.Millisecond, time.Millisecond
		})
		r := record(t, s, key)
		if marked := s.events.Count(event.MarkedUnknown) > before; marked != (report.MarkedUnknown == 1) || marked && report.Oldest.IsZero() {
			t.Errorf("%s: an event %t, and the oldest record that waits is of %s", name, marked, report.Oldest)
		}
		due := r.Due.Sub(s.clock.Now()).Round(time.Minute)
		if report.String() != c.want || r.State != c.state || r.Exhausted != (c.due == 0) || c.due > 0 && due != c.due {
			t.Errorf("%s: %s; the record is %s, exhausted %t, due in %s", name, report, r.State, r.Exhausted, due)
		}
	}
}

// Oldest is about the oldest record that still waits, not about a settled one.
func TestReconcileOldest(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	var keys []idempotent.Key
	for range 4 {
		keys = append(keys, s.leave(t, atOnce))
		s.clock.Advance(time.Minute)
	}
	for name, settled := range map[string]int{"the oldest is settled": 0, "the youngest": 3} {
		_ = name
		report := s.reconcile(t, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if r.ID == keys[settled].RecordID() {
				return idempotent.Resolved("x"), nil
			}
			return idempotent.Later(0), nil
		}, func(o *idempotent.ReconcileOptions) { o.DryRun = true })
		if want := record(t, s, keys[1-min(settled, 1)]).LeaseEnd; !report.Oldest.Equal(want) {
			t.Errorf("%s: the oldest is of %s, want %s", name, report.Oldest, want)
		}
	}
}

// Calls are counted, and lengthen the pause; the record is given up by its age
// alone.
func TestReconcileCalls(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := s.unknowns(t, 1)
	handed := 0
	var handover error = errDown
	options := func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.Backoff, o.MaxBackoff = 7*time.Hour, time.Minute, 4*time.Minute
		o.OnExhausted = func(_ context.Context, r idempotent.PendingRecord) error {
			if handed++; !r.Stored().Exhausted || r.Asked < 4 {
				t.Errorf("OnExhausted got %+v", r)
			}
			return handover
		}
	}
	earlier := 0
	failed := func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		if r.Asked != earlier {
			t.Errorf("the resolver sees %d earlier calls, want %d", r.Asked, earlier)
		}
		return idempotent.Later(time.Hour + time.Microsecond), errDown // the answer is ignored because of the error, except for its pause
	}
	version := record(t, s, key).Version
	for i, want := range []string{
		"1 due, 1 postponed, 1 failed", "1 due, 1 postponed, 1 failed", "1 due, 1 postponed, 1 failed",
		"1 due, 1 postponed, 1 failed", // OnExhausted fails, too: it is one record
	} {
		if got := s.reconcile(t, failed, options).String(); got != want {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
		earlier++
		r := record(t, s, key)
		if r.ReconcileAttempts != earlier || r.Exhausted || r.Due != r.Due.Truncate(time.Millisecond) {
			t.Errorf("run %d: %d calls, exhausted %t, due %s", i, r.ReconcileAttempts, r.Exhausted, r.Due)
		}
		if r.Version == version {
			t.Errorf("run %d: the write has the same id as the one before", i)
		}
		version = r.Version
		if left := r.Due.Sub(s.clock.Now()); left > time.Hour+time.Millisecond || left < time.Hour-time.Minute {
			t.Errorf("run %d: due in %s, want an hour", i, left)
		}
		s.clock.Advance(2 * time.Hour)
	}
	if n := s.events.Count(event.ReconcileScheduled); n != 4 {
		t.Errorf("%d events of records that are due again", n)
	}
	// A dry run does not call OnExhausted.
	before := handed
	if got := s.reconcile(t, failed, options, func(o *idempotent.ReconcileOptions) { o.DryRun = true }).String(); got != "1 due, 1 exhausted, 1 failed" || handed != before {
		t.Errorf("a dry run: %s, %d calls of OnExhausted", got, handed-before)
	}
	handover = nil
	at := s.clock.Now()
	if got := s.reconcile(t, failed, options).String(); got != "1 due, 1 exhausted, 1 failed" {
		t.Errorf("in the end: %s", got)
	}
	r := record(t, s, key)
	if !r.Exhausted || r.ReconcileAttempts != 5 || r.Due.Before(at.Add(-time.Second)) || r.Due.After(at.Add(time.Second)) || s.events.Count(event.ReconcileExhausted) != 1 {
		t.Errorf("the record: %+v; events %s", r, s.events.Kinds())
	}
}

// OnExhausted gets a copy, a record that is no longer due is stale, and an answer
// that comes with an error is ignored.
func TestReconcileTrustsNothing(t *testing.T) {
	t.Parallel()
	s := newStranded(t, func(o *idempotent.Options) { o.Steps = []string{"a"} })
	key := s.leave(t, func(ctx context.Context, died func()) {
		if _, err := idempotent.Step(ctx, "a", value("x")); err != nil {
			t.Error(err)
		}
		died()
	})
	s.clock.Advance(time.Minute)
	s.reconcile(t, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true })
	s.clock.Advance(time.Hour)
	report := s.reconcile(t, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		return idempotent.Resolved("x"), errDown
	}, func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.Operations = time.Minute, []string{"refund", "charge"}
		o.OnExhausted = func(_ context.Context, r idempotent.PendingRecord) error {
			r.Stored().Steps[0].Result[0] ^= 0xff
			return nil
		}
	})
	if got := report.String(); got != "1 due, 1 exhausted, 1 failed" {
		t.Errorf("the report: %s", got)
	}
	r := record(t, s, key)
	if step, _ := r.Step("a"); r.State != driver.StateUnknown || string(step.Result) != `"x"` {
		t.Errorf("the record is %s, and its step has %s", r.State, step.Result)
	}
	// The list still shows the record as it was; it has been given up meanwhile.
	r.Exhausted = false
	g, _ := newGuardOver(t, yields{s.Store, []driver.Record{*r}, []error{nil}}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	if report, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Resolved("y"))); err != nil || report.String() != "1 due, 1 stale" {
		t.Errorf("a stale list: %s, %v", report, err)
	}
}

// If another party is faster when a record is claimed, postponed or given up, no
// event is reported.
func TestReconcileGivesUpNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write int // the one before which the other party writes
		age   time.Duration
	}{"claimed": {1, time.Hour * 24}, "postponed": {2, time.Hour * 24}, "given up": {2, time.Minute}} {
		s := newStranded(t)
		s.unknowns(t, 1)
		writes := 0
		g, events := newGuardOver(t, answering(s.Store, driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
			if writes++; writes == c.write {
				return another(r)
			}
			return nil, nil
		}), func(o *idempotent.Options) { o.Now = s.clock.Now })
		report, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Later(time.Hour)), func(o *idempotent.ReconcileOptions) { o.GiveUpAfter = c.age })
		if err != nil || report.String() != "1 due, 1 stale" || len(events.Kinds()) != 0 || report.Pending != 1 {
			t.Errorf("%s: %s, %v, events %s, %d pending", name, report, err, events.Kinds(), report.Pending)
		}
	}
}

func TestReconcileOptionLimits(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	for name, f := range map[string]func(*idempotent.ReconcileOptions){
		"the least": func(o *idempotent.ReconcileOptions) {
			o.GiveUpAfter, o.ReleasedFor, o.Concurrency, o.Backoff, o.Timeout, o.MaxBackoff = 1, 1, 1, time.Millisecond, time.Millisecond, time.Millisecond
		},
	} {
		if _, err := idempotent.ReconcileDue(t.Context(), s.guard, answer(idempotent.Later(0)), f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]func(*idempotent.ReconcileOptions){
		"Backoff": func(o *idempotent.ReconcileOptions) { o.Backoff = time.Microsecond },
		"Timeout": func(o *idempotent.ReconcileOptions) { o.Timeout = time.Microsecond },
	} {
		if _, err := idempotent.ReconcileDue(t.Context(), s.guard, answer(idempotent.Later(0)), f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s below a millisecond: %v", name, err)
		}
	}
	if _, err := idempotent.ReconcileDue(t.Context(), nil, answer(idempotent.Later(0))); err == nil {
		t.Error("no guard: no error")
	}
}

// More records than workers, one of which makes the resolver panic: all are done.
func TestReconcileWorkers(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	s.unknowns(t, 20)
	report := s.reconcile(t, answer(idempotent.Resolved("x")), func(o *idempotent.ReconcileOptions) { o.Concurrency = 2 })
	if got := report.String(); got != "20 due, 20 completed" {
		t.Errorf("the report: %s", got)
	}
	// Two runs at the same time conflict.
	s.unknowns(t, 2)
	meeting := make(chan struct{})
	report = s.reconcile(t, func(ctx context.Context, _ idempotent.PendingRecord) (idempotent.Resolution, error) {
		select {
		case meeting <- struct{}{}:
		case <-meeting:
		case <-ctx.Done():
			return idempotent.Resolution{}, ctx.Err()
		}
		return idempotent.Resolved("x"), nil
	}, func(o *idempotent.ReconcileOptions) { o.Concurrency, o.Timeout = 2, 2*time.Second })
	if got := report.String(); got != "2 due, 2 completed" {
		t.Errorf("two at once: %s", got)
	}
}

// The scheduled function fails if every record failed, and not if there is
// nothing to do or another party was faster.
func TestReconcilerFails(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	answers := func(first error) map[string]idempotent.ResolveFunc {
		asked := 0
		return map[string]idempotent.ResolveFunc{"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			if asked++; asked == 1 {
				return idempotent.Resolution{}, first
			}
			return idempotent.Resolved("x"), nil
		}}
	}
	one := func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 }
	if report, err := idempotent.Reconciler(s.guard, nil)(t.Context()); err != nil || report.Due != 0 {
		t.Errorf("nothing to do: %s, %v", report, err)
	}
	s.unknowns(t, 1)
	if report, err := idempotent.Reconciler(s.guard, answers(errDown), one)(t.Context()); err == nil || !strings.Contains(err.Error(), "every record") {
		t.Errorf("one of one failed: %s, %v", report, err)
	}
	s.clock.Advance(time.Hour)
	s.unknowns(t, 1)
	if report, err := idempotent.Reconciler(s.guard, answers(errDown), one)(t.Context()); err != nil || report.Failed != 1 || report.Completed != 1 {
		t.Errorf("one of two failed: %s, %v", report, err)
	}
	stale := record(t, s, s.unknowns(t, 1))
	if err := s.guard.Resolve(t.Context(), stale.ID, idempotent.Resolved("y")); err != nil {
		t.Fatal(err)
	}
	g, _ := newGuardOver(t, yields{s.Store, []driver.Record{*stale}, []error{nil}}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	if report, err := idempotent.Reconciler(g, answers(nil), one)(t.Context()); err != nil || report.String() != "1 due, 1 stale" {
		t.Errorf("another party was faster: %s, %v", report, err)
	}
	g, _ = newGuardOver(t, yields{s.Store, []driver.Record{{ID: newKey().RecordID()}}, []error{errDown}}, func(o *idempotent.Options) { o.Now = s.clock.Now })
	if report, err := idempotent.Reconciler(g, answers(nil), one)(t.Context()); err == nil || report.Failed != 1 {
		t.Errorf("the only record cannot be read: %s, %v", report, err)
	}
}

// The report covers every record that waits, whenever it is due: F82.
func TestReportCoversAllThatWait(t *testing.T) {
	t.Parallel()
	later := answer(idempotent.Later(24 * time.Hour))
	s := newStranded(t)
	first := record(t, s, s.leave(t, atOnce)).LeaseEnd
	s.clock.Advance(time.Minute)
	want := func(what string, report idempotent.Report, pending int, oldest time.Time) {
		t.Helper()
		if !report.Listed || report.Pending != pending || !report.Oldest.Equal(oldest) || report.PendingReleased != 0 {
			t.Errorf("%s: listed %v, %d pending, the oldest since %s; want %d since %s", what, report.Listed, report.Pending, report.Oldest, pending, oldest)
		}
	}
	want("asked for the first time", s.reconcile(t, later), 1, first)
	s.clock.Advance(time.Hour)
	second := record(t, s, s.leave(t, atOnce)).LeaseEnd
	want("one is due tomorrow, and one is running", s.reconcile(t, later), 1, first)
	s.clock.Advance(time.Minute)
	want("two are due tomorrow", s.reconcile(t, later), 2, first)
	s.clock.Advance(time.Hour)
	report, err := idempotent.ReconcileDue(t.Context(), s.guard, later)
	if err != nil || report.Due != 0 {
		t.Fatal(report, err)
	}
	want("nothing is due", report, 2, first)
	s.clock.Advance(24 * time.Hour)
	report, err = idempotent.ReconcileDue(s.clock.Invocation(t.Context(), 400*time.Millisecond), s.guard, later)
	if err == nil || !report.Incomplete {
		t.Fatal(report, err)
	}
	want("no time for the resolver", report, 2, first)
	report = s.reconcile(t, later, func(o *idempotent.ReconcileOptions) { o.GiveUpAfter = 25*time.Hour + 30*time.Minute })
	want("one is given up", report, 1, second)
}

// A record whose sweep or evidence could not be written still waits.
func TestReportCoversFailedWrites(t *testing.T) {
	t.Parallel()
	for name, unknown := range map[string]bool{"the sweep": false, "the evidence": true} {
		s := newStranded(t)
		key := s.leave(t, atOnce)
		ended := record(t, s, key).LeaseEnd
		s.clock.Advance(time.Minute)
		if unknown {
			s.reconcile(t, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true })
			s.clock.Advance(time.Hour)
		}
		g, _ := newGuardOver(t, answering(s.Store, driver.OpReplace, down), func(o *idempotent.Options) { o.Now = s.clock.Now })
		report, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Resolved("x")))
		if err != nil || report.Failed != 1 || report.Pending != 1 || !report.Oldest.Equal(ended) {
			t.Errorf("%s: %s, %v, %d pending since %s; want 1 since %s", name, report, err, report.Pending, report.Oldest, ended)
		}
	}
}

// A record that fails twice in a run is one record: a run in which another record was
// settled is no outage. A record that the list cannot read has failed, too.
func TestReconcilerCountsRecords(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		damaged bool
		settles bool
		want    string
	}{
		"one fails twice":        {false, true, "2 due, 1 completed, 1 postponed, 1 failed"},
		"one is damaged":         {true, true, "2 due, 1 completed, 1 failed"},
		"both fail":              {false, false, "2 due, 2 postponed, 2 failed"},
		"one fails, one damaged": {true, false, "2 due, 1 postponed, 2 failed"},
	} {
		s := newStranded(t)
		n := 2
		if row.damaged {
			n = 1
		}
		s.unknowns(t, n)
		var store driver.Store = s.Store
		if row.damaged {
			store = damagedList{s.Store}
		}
		g, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = s.clock.Now })
		calls := 0
		resolve := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			if calls++; calls == 1 && row.settles {
				return idempotent.Resolved("x"), nil
			}
			return idempotent.Resolution{}, errDown
		}
		report, err := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{"charge": resolve}, func(o *idempotent.ReconcileOptions) {
			o.Concurrency, o.GiveUpAfter = 1, time.Millisecond
			o.OnExhausted = func(context.Context, idempotent.PendingRecord) error { return errDown }
		})(t.Context())
		if report.String() != row.want || (err == nil) != row.settles {
			t.Errorf("%s: %s, %v", name, report, err)
		}
	}
}

// damagedList is a store whose list cannot read its first record.
type damagedList struct{ *memstore.Store }

func (d damagedList) Due(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if yield(driver.Listed{ID: newKey().RecordID()}, errDown) {
			d.Store.Due(ctx)(yield)
		}
	}
}

// What waits of other operations is neither counted nor a failure. The end of their
// leases is processed from the moment when it is due.
func TestReconcileListOfOtherOperations(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	s.unknowns(t, 1)
	at := record(t, s, s.leave(t, atOnce)).Due
	for _, row := range []struct {
		at   time.Time
		want string
	}{
		{at.Add(-time.Millisecond), "0 due"},
		{at, "0 due, 1 of other operations processed after their lease"},
	} {
		g, events := newGuardOver(t, damagedList{s.Store}, fixed(row.at))
		report, err := idempotent.ReconcileDue(t.Context(), g, answer(notExecuted), func(o *idempotent.ReconcileOptions) { o.Operations = []string{"refund"} })
		if err != nil || report.String() != row.want || report.Pending != 0 || len(report.Operations) != 0 || events.Count(event.StoreError) != 0 {
			t.Errorf("%s, %d wait, %v, %v; events %s; want %s", report, report.Pending, report.Operations, err, events.Kinds(), row.want)
		}
	}
}

// A list takes at most half of the time, by the clock of the guard.
func TestReconcileListEndsByTheClock(t *testing.T) {
	t.Parallel()
	clock, read := new(idempotenttest.Clock), 0
	g, _ := newGuardOver(t, &slowList{memstore.New(), func() { clock.Advance(time.Second); read++ }}, func(o *idempotent.Options) { o.Now = clock.Now })
	report, err := idempotent.ReconcileDue(clock.Invocation(t.Context(), 10*time.Second), g, answer(notExecuted))
	if !report.Incomplete || err == nil || read != 5 {
		t.Errorf("%s, %v; %d entries were read", report, err, read)
	}
}

// slowList is a store with a long list. It calls read before each entry.
type slowList struct {
	*memstore.Store
	read func()
}

func (s *slowList) Due(context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for range 20 {
			if s.read(); !yield(driver.Listed{ID: newKey().RecordID(), State: driver.StateUnknown}, nil) {
				return
			}
		}
	}
}

// hangingList is a store whose list does not answer.
type hangingList struct{ *memstore.Store }

func (hangingList) Due(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		<-ctx.Done()
		yield(driver.Listed{}, ctx.Err())
	}
}

// A list that the end of its time cuts off is no failure of the store.
func TestReconcileListIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, events := newGuardOver(t, hangingList{memstore.New()}, fixed(time.Now()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		report, err := idempotent.ReconcileDue(ctx, g, answer(notExecuted))
		if !report.Incomplete || errors.As(err, new(*idempotent.StoreError)) || events.Count(event.StoreError) != 0 {
			t.Errorf("%s, %v; events %s", report, err, events.Kinds())
		}
	})
}
