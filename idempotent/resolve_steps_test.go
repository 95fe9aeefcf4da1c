// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
)

// Evidence about steps, and about records with steps.

// charges has the steps charge and ship, of which charge must be replayed.
func charges(t *testing.T) handlerFunc {
	return func(ctx context.Context) (string, error) {
		charge, err := idempotent.Step(ctx, "charge", forbidden(t), atMostOnce)
		if err != nil {
			return "", err
		}
		return idempotent.Step(ctx, "ship", value(charge+" shipped"))
	}
}

// What a running handler makes of evidence about its step charge, which is recorded at
// once: the step gets it, and the record keeps it.
func TestStepEvidenceWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	webhook := idempotent.ResolvedStep("charge", "webhook")
	for name, c := range map[string]struct {
		handler func(ctx context.Context, f *fixture) (string, error)
		value   string
		err     error
	}{
		"while the step runs": {func(ctx context.Context, f *fixture) (string, error) {
			return idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "reply", f.resolve(webhook) })
		}, "webhook", nil},
		"before the mark of the step": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			return idempotent.Step(ctx, "charge", never[string], atMostOnce)
		}, "webhook", nil},
		"of another type": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			_, err := idempotent.Step(ctx, "charge", never[int], atMostOnce)
			return "", err
		}, "", new(idempotent.StepError)},
		"found by a refused Commit": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			l := &ledger{fixture: f, plan: plan(applied, fails(errRefused))}
			try{"done", errRefused}.check(t, "Commit", commit(ctx, "done", l.book))
			return idempotent.Step(ctx, "charge", never[string])
		}, "webhook", nil},
		// The evidence does not contain the writes that belong to the step.
		"a CommitStep": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			l := &ledger{fixture: f}
			v, err := idempotent.CommitStep(ctx, "charge", "x", l.book)
			if !errors.As(err, new(*idempotent.StepError)) || l.booked != 0 {
				t.Errorf("CommitStep returned %v with %d bookings", err, l.booked)
			}
			return v, err
		}, "", idempotent.ErrNotApplied},
		"found by the mark after a sweep": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			f.change(swept)
			return idempotent.Step(ctx, "charge", never[string], atMostOnce)
		}, "", new(idempotent.LeaseLostError)},
		"found by a transaction after a sweep": {func(ctx context.Context, f *fixture) (string, error) {
			f.mustResolve(webhook)
			f.change(swept)
			return idempotent.CommitStep(ctx, "charge", "x", f.Replace)
		}, "", new(idempotent.LeaseLostError)},
	} {
		f := newFixture(t, resume("charge", "ship"))
		_, _ = f.do(func(ctx context.Context) (string, error) {
			v, err := c.handler(ctx, f)
			if err == nil && v != c.value || !errtype.Matches(err, c.err) {
				t.Errorf("%s: the step returned %q, %v; want %q, %v", name, v, err, c.value, c.err)
			}
			return "", errDown
		})
		if s, _ := f.record().Step("charge"); !s.Finished || s.By != driver.StepByEvidence || string(s.Result) != `"webhook"` {
			t.Errorf("%s: the recorded step is %+v", name, s)
		}
	}
}

// Evidence that another step's write finds while a step is running stays, however
// the step ends.
func TestStepEvidenceStaysWhileAnotherStepIsWritten(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]error{"done": nil, "not executed": idempotent.NotExecuted(errDown)} {
		f := newFixture(t, resume("charge", "ship"))
		_, _ = f.do(func(ctx context.Context) (string, error) {
			begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				v, err := idempotent.Step(ctx, "charge", func(context.Context) (map[string]int, error) {
					close(begun)
					<-end
					return map[string]int{"reply": 1}, ends
				})
				if ends == nil && (err != nil || !maps.Equal(v, map[string]int{"webhook": 1})) {
					t.Errorf("%s: the step returned %v, %v", name, v, err)
				}
			}()
			<-begun
			f.mustResolve(idempotent.ResolvedStep("charge", map[string]int{"webhook": 1}))
			if err := step("ship/1", charged)(ctx); err != nil {
				t.Error(err)
			}
			close(end)
			<-ended
			return idempotent.Step(ctx, "ship/2", noAnswer)
		})
		if s, _ := f.record().Step("charge"); s.By != driver.StepByEvidence || string(s.Result) != `{"webhook":1}` {
			t.Errorf("%s: the recorded step is %+v", name, s)
		}
	}
}

// Evidence about a step lets the next request continue, if the recovery allows it
// and the lease has ended. The client then gets the whole result, and the
// remaining work is done.
func TestStepEvidenceAfterACrash(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotent.Recovery]driver.State{
		idempotent.Resume: driver.StateRetryable, idempotent.Rerun: driver.StateRetryable, idempotent.Reconcile: driver.StateUnknown,
	} {
		f := newFixture(t, func(o *idempotent.Options) { o.Recovery, o.Steps = recovery, []string{"charge", "ship"} })
		f.dies(func(ctx context.Context) { _ = step("charge", noAnswer, atMostOnce)(ctx) })
		f.clock.Advance(time.Hour)
		f.sweep()
		f.mustResolve(idempotent.ResolvedStep("charge", "ch_1"))
		r := f.record()
		if waits := recovery != idempotent.Rerun; r.State != want || r.Due.IsZero() == waits || r.Expires.IsZero() != waits {
			t.Errorf("%s: the record is %s (%s), due %s, expires %s; want %s", recovery, r.State, r.Reason, r.Due, r.Expires, want)
		}
		if want != driver.StateRetryable {
			continue
		}
		if v, err := f.do(charges(t)); err != nil || v != "ch_1 shipped" {
			t.Errorf("%s: got %q, %v", recovery, v, err)
		}
	}
}

// Evidence that finishes the only step that keeps a record unknown releases it at
// once, whenever the evidence comes: while the step runs, or after the handler has
// ended and before the end of its lease. The next request continues, and the step's
// effect happens once.
func TestEvidenceReleasesAnInterruptedRecord(t *testing.T) {
	t.Parallel()
	for _, recovery := range []idempotent.Recovery{idempotent.Resume, idempotent.Rerun} {
		for _, during := range []bool{false, true} {
			for _, ends := range []handlerFunc{noAnswer, panicking(errDown)} {
				f := newFixture(t, resume("charge", "ship"), func(o *idempotent.Options) { o.Recovery = recovery })
				webhook := func() {
					for range 2 { // it is delivered twice
						f.mustResolve(idempotent.ResolvedStep("charge", "ch_1"))
					}
				}
				f.panics(func(ctx context.Context) (string, error) {
					return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
						if during {
							webhook()
						}
						return ends(ctx)
					}, atMostOnce)
				})
				if !during {
					webhook()
				}
				if r := f.record(); r.State != driver.StateRetryable || !r.LeaseEnd.After(start) || f.events.Count(event.Resolved) != 1 {
					t.Errorf("%s: the record is %s (%s), its lease ends %s; events %s", recovery, r.State, r.Reason, r.LeaseEnd, f.events.Kinds())
				}
				if v, err := f.do(charges(t)); err != nil || v != "ch_1 shipped" {
					t.Errorf("%s, during the step %t: the next request got %q, %v", recovery, during, v, err)
				}
			}
		}
	}
}

// Evidence about a step is recorded with the time and the mode of the step, and changes
// nothing else. The same evidence again writes nothing, and what cannot be used is refused.
func TestStepEvidence(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *idempotent.Options) { o.Steps = []string{"charge", "ship"} })
	f.dies(func(ctx context.Context) { _ = step("charge", noAnswer, atMostOnce)(ctx) })
	if err := f.resolve(idempotent.CorrectedStep("charge", "x")); !errors.As(err, new(*idempotent.InProgressError)) || strings.Contains(err.Error(), "cannot be stored") {
		t.Errorf("a correction while the handler may be running: %v", err)
	}
	f.clock.Advance(time.Hour)
	f.reconcile(answer(idempotent.Later(time.Minute)))
	f.kinds()
	before := f.record()
	f.mustResolve(idempotent.ResolvedStep("charge", "ch_1"))
	r := f.record()
	s, _ := r.Step("charge")
	if !s.Finished || s.Mode != driver.AtMostOnce || s.By != driver.StepByEvidence || !s.At.Equal(f.clock.Now()) {
		t.Errorf("the step: %+v", s)
	}
	if r.State != driver.StateUnknown || r.ReconcileAttempts != 1 || !r.Since.Equal(before.Since) {
		t.Errorf("the record is %s after %d attempts of reconciliation, since %s; want unknown, 1, %s", r.State, r.ReconcileAttempts, r.Since, before.Since)
	}
	if all := f.events.Events(); len(all) != 1 || all[0].Kind != event.Resolved || all[0].Step != "charge" {
		t.Errorf("events %+v, want one of evidence about charge", all)
	}
	for name, row := range map[string]struct {
		evidence idempotent.Resolution
		want     error
	}{
		"the same result":             {idempotent.ResolvedStep("charge", "ch_1"), nil},
		"a step that is not declared": {idempotent.ResolvedStep("refund", "re_1"), new(idempotent.StepError)},
		"a name that is invalid":      {idempotent.ResolvedStep("a b", "x"), new(idempotent.StepError)},
		"another result":              {idempotent.ResolvedStep("charge", "ch_2"), new(idempotent.SettledError)},
		"a result that is too large":  {idempotent.ResolvedStep("ship", noise(100_000)), new(idempotent.StepError)},
		"a result that JSON cannot":   {idempotent.ResolvedStep("ship", func() {}), new(idempotent.StepError)},
	} {
		if err := f.resolve(row.evidence); !errtype.Matches(err, row.want) || f.record().Version != r.Version {
			t.Errorf("%s: got error %v, want %v and nothing written", name, err, row.want)
		}
	}
	f.mustResolve(idempotent.CorrectedStep("charge", "ch_2"))
	f.mustResolve(f.notExecuted()) // of what is left
	if v, err := f.do(charges(t)); err != nil || v != "ch_2 shipped" {
		t.Errorf("after a correction: got %q, %v", v, err)
	}
	if err := f.resolve(idempotent.ResolvedStep("charge", "ch_2")); !errors.As(err, new(*idempotent.SettledError)) {
		t.Errorf("once the record is completed: %v", err)
	}
}

// Results of steps that evidence names may have 320 KB together.
func TestStepEvidenceLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.holds(driver.Record{State: driver.StateUnknown})
	if err := f.resolve(idempotent.ResolvedStep("a b", "x")); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("an invalid name: %v", err)
	}
	for i := range 5 {
		f.mustResolve(idempotent.ResolvedStep(fmt.Sprint("s", i), letters(80_000)))
	}
	before := f.record().Version
	err := f.resolve(idempotent.ResolvedStep("s5", letters(80_000)))
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "all steps") || f.record().Version != before {
		t.Errorf("results of more than 320 KB together: %v", err)
	}
}

// What a handler has declared unknown is released only by evidence about what it
// left open: not by evidence about a step that it had not begun, nor by a
// correction, nor by evidence that came while it ran.
func TestDeclaredUnknownStays(t *testing.T) {
	t.Parallel()
	unsure := returns(idempotent.Unknown(errDown))
	x := idempotent.ResolvedStep("charge", "x")
	for name, row := range map[string]struct {
		charge   func(f *fixture) handlerFunc // the step; nil: it has not begun
		mode     []func(*idempotent.StepOptions)
		evidence idempotent.Resolution
		want     driver.State
	}{
		"a step that has not begun": {nil, nil, idempotent.ResolvedStep("ship", "x"), driver.StateUnknown},
		"a correction":              {func(*fixture) handlerFunc { return charged }, nil, idempotent.CorrectedStep("charge", "x"), driver.StateUnknown},
		"a step that is finished":   {func(*fixture) handlerFunc { return charged }, nil, idempotent.ResolvedStep("charge", "ch_1"), driver.StateUnknown},
		"the step, while it ran": {func(f *fixture) handlerFunc {
			return func(context.Context) (string, error) { f.mustResolve(x); return "", errDown }
		}, []func(*idempotent.StepOptions){atMostOnce}, x, driver.StateUnknown},
		"the open step":                      {func(*fixture) handlerFunc { return unsure }, []func(*idempotent.StepOptions){atMostOnce}, x, driver.StateRetryable},
		"the open step, which may run again": {func(*fixture) handlerFunc { return unsure }, nil, x, driver.StateRetryable},
	} {
		f := newFixture(t, resume("charge", "ship"))
		_, _ = f.do(func(ctx context.Context) (string, error) {
			if row.charge != nil {
				_ = step("charge", row.charge(f), row.mode...)(ctx)
			}
			return unsure(ctx)
		})
		if r := f.record(); r.State != driver.StateUnknown {
			t.Errorf("%s: the handler left the record %s", name, r.State)
		}
		f.clock.Advance(time.Hour)
		due := f.record().Due
		f.mustResolve(row.evidence)
		if r := f.record(); r.State != row.want || r.State == driver.StateUnknown && !r.Due.Equal(due) {
			t.Errorf("%s: the evidence left the record %s (%s), want %s", name, r.State, r.Reason, row.want)
		}
	}
}

// A handler that reports no effect is wrong if evidence has recorded an effect
// meanwhile: under Reconcile its outcome is unknown, and a warning says why.
func TestNotExecutedMeetsEvidence(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotent.Recovery]driver.State{
		idempotent.Reconcile: driver.StateUnknown, idempotent.Resume: driver.StateRetryable, idempotent.Rerun: driver.StateRetryable,
	} {
		var log strings.Builder
		f := newFixture(t, resume("charge"), func(o *idempotent.Options) {
			o.Recovery, o.Logger = recovery, slog.New(slog.NewTextHandler(&log, nil))
		})
		_, _ = f.do(func(context.Context) (string, error) {
			f.mustResolve(idempotent.ResolvedStep("charge", "ch_1"))
			return "", idempotent.NotExecuted(errDown)
		})
		r := f.record()
		if s, _ := r.Step("charge"); r.State != want || !s.Finished || !strings.Contains(log.String(), "was ignored") {
			t.Errorf("%s: the record is %s (%s), the step %+v; logged %q", recovery, r.State, r.Reason, s, log.String())
		}
	}
}

// Whether a record is due, and when it expires, follows evidence about its steps: a
// retryable one without steps is due once it has one; a running one under Rerun may run
// again once its only AtMostOnce step is finished.
func TestStepEvidenceSchedules(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("charge"))
	_, _ = f.do(returns(idempotent.NotExecuted(errDown)))
	f.mustResolve(idempotent.ResolvedStep("charge", "ch_1"))
	if r := f.record(); r.State != driver.StateRetryable || !r.Expires.IsZero() || r.Due.IsZero() {
		t.Errorf("a retryable record is %s, expires %s, due %s", r.State, r.Expires, r.Due)
	}
	f = newFixture(t, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	f.dies(func(ctx context.Context) { _ = step("charge", noAnswer, atMostOnce)(ctx) })
	f.mustResolve(idempotent.ResolvedStep("charge", "x"))
	if r := f.record(); r.State != driver.StateInProgress || !r.Due.IsZero() || !r.Expires.Equal(r.LeaseEnd.Add(24*time.Hour)) {
		t.Errorf("a running record is %s, due %s, and expires %s", r.State, r.Due, r.Expires)
	}
}

// A provider forgets downstream keys. After that time a step that an earlier run
// may have begun does not run again: the record becomes unknown, whatever the handler
// returns, until evidence proves that nothing is open.
func TestForgottenDownstreamKeys(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		remembers, after time.Duration
		handler          func(err error) error // what the handler returns for the step's error
		runs             bool
	}{
		"in time":               {time.Hour, 59 * time.Minute, same, true},
		"too late":              {time.Hour, 61 * time.Minute, same, false},
		"too late, ignored":     {time.Hour, 61 * time.Minute, instead(nil), false},
		"too late, and Final":   {time.Hour, 61 * time.Minute, instead(idempotent.Final("x", "")), false},
		"too late, and another": {time.Hour, 61 * time.Minute, instead(errDown), false},
		"the default, in time":  {0, 24*time.Hour - time.Minute, same, true},
		"the default, too late": {0, 24*time.Hour + time.Minute, same, false},
	} {
		f := newFixture(t, resume("reserve", "charge"), func(o *idempotent.Options) { o.DownstreamRetention = row.remembers })
		f.dies(func(ctx context.Context) {
			_ = step("charge", noAnswer)(ctx)
			_ = step("reserve", value("r_1"))(ctx)
		})
		f.clock.Advance(row.after)
		ran := false
		_, err := f.do(func(ctx context.Context) (string, error) {
			if v, err := idempotent.Step(ctx, "reserve", forbidden(t)); err != nil || v != "r_1" {
				t.Errorf("%s: the finished step gives %q, %v", name, v, err)
			}
			v, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { ran = true; return "ch_1", nil })
			if !row.runs && (!errors.As(err, new(*idempotent.StepError)) || !idempotent.IsUnknown(err)) {
				t.Errorf("%s: the step returned %v", name, err)
			}
			return v, row.handler(err)
		})
		want := map[bool]driver.State{true: driver.StateCompleted, false: driver.StateUnknown}[row.runs]
		if r := f.record(); ran != row.runs || r.State != want || (err == nil) != row.runs {
			t.Errorf("%s: ran %t, the record is %s (%s), the caller gets error %v", name, ran, r.State, r.Reason, err)
		}
		if row.runs {
			continue
		}
		if s, _ := f.record().Step("charge"); s.Attempt != 1 {
			t.Errorf("%s: the step that did not run has begun in attempt %d", name, s.Attempt)
		}
		f.clock.Advance(time.Hour)
		f.mustResolve(f.notExecuted())
		if v, err := f.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", charged) }); err != nil || v != "ch_1" {
			t.Errorf("%s: after the evidence: %q, %v", name, v, err)
		}
	}
	// The first run may take longer, because no earlier run has used the keys.
	f := newFixture(t, resume("charge"), func(o *idempotent.Options) { o.DownstreamRetention = time.Second })
	if _, err := f.do(func(ctx context.Context) (string, error) {
		f.clock.Advance(time.Minute)
		return idempotent.Step(ctx, "charge", charged)
	}); err != nil {
		t.Errorf("a first run: %v", err)
	}
	// Rerun does not rely on them.
	f = newFixture(t, resume("charge"))
	f.dies(nil)
	f.clock.Advance(48 * time.Hour)
	rerun := f.with(func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	if _, err := rerun.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", charged) }); err != nil {
		t.Errorf("under Rerun: %v", err)
	}
}

// A step that was refused because the provider may have forgotten its key counts as
// begun: evidence about it, and not about another one, releases the record. A step's
// transaction has no downstream key, so it runs however late it is.
func TestEvidenceAboutAForgottenKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("charge", "ship"))
	f.dies(nil)
	f.clock.Advance(48 * time.Hour)
	handler := func(ctx context.Context) (string, error) {
		charge, err := idempotent.Step(ctx, "charge", forbidden(t))
		if err != nil {
			return "", err
		}
		return idempotent.CommitStep(ctx, "order", charge+" booked", f.Replace)
	}
	f = f.with(resume("charge", "ship", "order"))
	if _, err := f.do(handler); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("a step whose key may be forgotten: %v", err)
	}
	for _, row := range []struct {
		step string
		want driver.State
	}{{"ship", driver.StateUnknown}, {"charge", driver.StateRetryable}} {
		f.mustResolve(idempotent.ResolvedStep(row.step, "x"))
		if got := f.record().State; got != row.want {
			t.Errorf("after evidence about %s the record is %s, want %s", row.step, got, row.want)
		}
	}
	if v, err := f.do(handler); v != "x booked" || err != nil {
		t.Errorf("the next request got %q, %v", v, err)
	}
	f = newFixture(t, resume("charge"))
	f.dies(nil)
	f.clock.Advance(48 * time.Hour)
	_, _ = f.do(func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "charge", forbidden(t))
		f.mustResolve(idempotent.ResolvedStep("charge", "x"))
		return "", err
	})
	if r := f.record(); r.State != driver.StateUnknown || r.Reason != driver.ReasonKeysForgotten {
		t.Errorf("after evidence during the run the record is %s (%s)", r.State, r.Reason)
	}
}
