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

// A late webhook about the first attempt must not release the second one, whose
// charge succeeded.
func TestLateEvidenceDoesNotReleaseALaterAttempt(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t)
	_, _ = w.do(t, g, noAnswer)
	first := w.record(t).Token()
	w.clock.Advance(time.Hour)
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ProvenNotExecuted(first)); err != nil {
		t.Fatal(err)
	}
	charges := 0
	var second string
	_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		second = e.Token()
		charges++
		return "", errDown // the charge succeeded, and its reply was lost
	})
	w.clock.Advance(time.Hour)
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ProvenNotExecuted(first)); !errors.As(err, new(*idempotent.StaleEvidenceError)) {
		t.Errorf("evidence about the first attempt: got error %v, want StaleEvidenceError", err)
	}
	if _, err := w.do(t, g, forbidden(t)); !errors.As(err, new(*idempotent.UnresolvedError)) || charges != 1 {
		t.Errorf("a retry got error %v after %d charges", err, charges)
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ProvenNotExecuted(second)); err != nil || second == first {
		t.Errorf("evidence about the second attempt: %v", err)
	}
}

// The whole outcome can be reported once the handler can no longer be running.
// Until then a webhook is refused, so that it cannot conflict with the handler's
// own Commit.
func TestOutcomeEvidenceWaitsForTheLease(t *testing.T) {
	t.Parallel()
	for name, evidence := range map[string]idempotent.Resolution{
		"a result":  idempotent.Resolved("by a webhook"),
		"final":     idempotent.ResolvedFinal("declined", ""),
		"no result": idempotent.ResolvedWithoutResult(),
	} {
		w := newOldFixture()
		g := w.guard(t)
		booked := false
		out, err := w.do(t, g, func(ctx context.Context) (string, error) {
			var busy *idempotent.InProgressError
			if err := g.Resolve(t.Context(), w.key.RecordID(), evidence); !errors.As(err, &busy) || !busy.Until.Equal(w.record(t).LeaseEnd) {
				t.Errorf("%s, while the handler runs: got error %v, want InProgressError until the lease ends", name, err)
			}
			err := commit(ctx, "booked", func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				booked = true
				return w.Replace(ctx, next, was)
			})
			return "booked", err
		})
		if err != nil || out.Value != "booked" || !booked {
			t.Errorf("%s: the caller gets %q, %v; booked %t", name, out.Value, err, booked)
		}
	}
}

// Evidence about one step is recorded while the handler runs. The handler's own
// Step gets it, and the handler reports its own outcome.
func TestStepEvidenceWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t, resume("charge", "ship"))
	id := w.key.RecordID()
	out, err := w.do(t, g, func(ctx context.Context) (string, error) {
		charge, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
			// The webhook is faster than the provider's reply.
			return "ch_reply", g.Resolve(t.Context(), id, idempotent.ResolvedStep("charge", "ch_webhook"))
		})
		if err != nil {
			t.Error(err)
		}
		if s, _ := w.record(t).Step("charge"); !s.Finished || s.By != driver.StepByEvidence || w.record(t).State != driver.StateInProgress {
			t.Errorf("the step is %+v in a record that is %s", s, w.record(t).State)
		}
		shipped, err := idempotent.Step(ctx, "ship", func(context.Context) (string, error) { return "sh_1", nil })
		return charge + " " + shipped, err
	})
	if err != nil || out.Value != "ch_webhook sh_1" || !out.Stored {
		t.Errorf("got %+v, %v", out, err)
	}
}

// Evidence about a step lets the next request continue, if the recovery allows it
// and the lease has ended. The client then gets the whole result, and the
// remaining work is done.
func TestStepEvidenceAfterACrash(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		declare func(*idempotent.Options)
		mode    []func(*idempotent.StepOptions)
		want    driver.State
	}{
		"Resume":                {resume("charge", "ship"), nil, driver.StateRetryable},
		"Resume, AtMostOnce":    {resume("charge", "ship"), fnsStep(atMostOnce), driver.StateRetryable},
		"Rerun, AtMostOnce":     {func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }, fnsStep(atMostOnce), driver.StateRetryable},
		"Reconcile: it remains": {func(*idempotent.Options) {}, nil, driver.StateUnknown},
	} {
		w := newOldFixture()
		g := w.guard(t, row.declare)
		charged := 0
		w.dies(t, row.declare, func(ctx context.Context) {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { charged++; return "", errDown }, row.mode...)
		})
		w.clock.Advance(time.Hour)
		if _, err := idempotent.ReconcileDue(t.Context(), g, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true }); err != nil {
			t.Fatal(err)
		}
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := w.record(t); r.State != row.want {
			t.Errorf("%s: the record is %s (%s), want %s", name, r.State, r.Reason, row.want)
		}
		if row.want != driver.StateRetryable {
			if r := w.record(t); r.Due.IsZero() || !r.Expires.IsZero() {
				t.Errorf("%s: due %s, expires %s", name, r.Due, r.Expires)
			}
			continue
		}
		out, err := w.do(t, g, func(ctx context.Context) (string, error) {
			charge, err := idempotent.Step(ctx, "charge", forbidden(t), row.mode...)
			if err != nil {
				return "", err
			}
			return idempotent.Step(ctx, "ship", func(context.Context) (string, error) { return charge + " shipped", nil })
		})
		if err != nil || out.Value != "ch_1 shipped" || charged != 1 {
			t.Errorf("%s: got %q, %v after %d charges", name, out.Value, err, charged)
		}
	}
}

func fnsStep(f ...func(*idempotent.StepOptions)) []func(*idempotent.StepOptions) { return f }

// A CommitStep that finds evidence fails closed: the evidence does not contain
// the writes that belong to the step.
func TestCommitStepMeetsEvidence(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t, resume("order"))
	booked := 0
	_, err := w.do(t, g, func(ctx context.Context) (string, error) {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("order", "by evidence")); err != nil {
			t.Fatal(err)
		}
		_, err := idempotent.CommitStep(ctx, "order", "by the run", func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			met, err := w.Replace(ctx, next, was)
			if met == nil && err == nil {
				booked++
			}
			return met, err
		})
		return "", err
	})
	if !errors.Is(err, idempotent.ErrNotApplied) || !errors.As(err, new(*idempotent.StepError)) || booked != 0 {
		t.Errorf("got error %v with %d bookings, want the transaction refused", err, booked)
	}
	if s, _ := w.record(t).Step("order"); s.By != driver.StepByEvidence {
		t.Errorf("the record lost the evidence: %+v", s)
	}
}

// The mark of an AtMostOnce step finds the evidence about it: the step does not
// run, and its result is the evidence, if that decodes.
func TestStepMarkMeetsEvidence(t *testing.T) {
	t.Parallel()
	for evidence, replays := range map[any]int{"ch_webhook": 1, 5: 0} {
		w := newOldFixture()
		g, events := newGuardOver(t, w.Store, resume("charge"), func(o *idempotent.Options) { o.Now = w.clock.Now })
		_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
			if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", evidence)); err != nil {
				t.Error(err)
			}
			v, err := idempotent.Step(ctx, "charge", never[string], atMostOnce)
			if replays == 1 && (v != "ch_webhook" || err != nil) || replays == 0 && !errors.As(err, new(*idempotent.StepError)) {
				t.Errorf("evidence %v: the step returned %q, %v", evidence, v, err)
			}
			return v, err
		})
		if events.Count(event.StepReplayed) != replays {
			t.Errorf("evidence %v: events %s", evidence, events.Kinds())
		}
	}
}

// A step does not run if a Commit that was refused has found evidence about it.
func TestStepEvidenceFoundByCommit(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t, resume("charge"))
	out, err := w.do(t, g, func(ctx context.Context) (string, error) {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_webhook")); err != nil {
			t.Error(err)
		}
		if err := commit(ctx, "done", func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			if w.record(t).Version != was {
				return w.Replace(ctx, next, was)
			}
			return nil, errRefused
		}); !errors.Is(err, errRefused) {
			t.Errorf("Commit: %v", err)
		}
		return idempotent.Step(ctx, "charge", never[string])
	})
	if err != nil || out.Value != "ch_webhook" {
		t.Errorf("got %q, %v", out.Value, err)
	}
}

// Evidence that another step's write finds while a step is running stays, however
// the step ends.
func TestStepEvidenceStaysWhileAnotherStepIsWritten(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]error{"done": nil, "not executed": idempotent.NotExecuted(errDown)} {
		w := newOldFixture()
		g := w.guard(t, resume("charge", "ship"))
		_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
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
			if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", map[string]int{"webhook": 1})); err != nil {
				t.Error(err)
			}
			if _, err := idempotent.Step(ctx, "ship/1", charged); err != nil {
				t.Error(err)
			}
			close(end)
			<-ended
			return idempotent.Step(ctx, "ship/2", func(context.Context) (string, error) { return "", errDown })
		})
		if s, _ := w.record(t).Step("charge"); s.By != driver.StepByEvidence || string(s.Result) != `{"webhook":1}` {
			t.Errorf("%s: the recorded step is %+v", name, s)
		}
	}
}

// Evidence about a step stays if the record is no longer in progress when the
// step is written.
func TestStepEvidenceStaysAfterASweep(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(context.Context, *watched) error{
		"the mark of a step": func(ctx context.Context, _ *watched) error {
			_, err := idempotent.Step(ctx, "a", never[string], atMostOnce)
			return err
		},
		"a transaction": func(ctx context.Context, s *watched) error {
			_, err := idempotent.CommitStep(ctx, "a", "x", s.Replace)
			return err
		},
	} {
		s, key := watch(), newKey()
		s.interrupted(t, key, func(r *driver.Record) {
			r.State = driver.StateUnknown
			r.Steps = []driver.StepRecord{{Name: "a", Finished: true, By: driver.StepByEvidence, Encoding: "json", Result: []byte(`"webhook"`)}}
		})
		_, err := s.do(t, key, func(ctx context.Context) (string, error) { return "", begin(ctx, s) })
		if !errors.As(err, new(*idempotent.LeaseLostError)) {
			t.Errorf("%s: got error %v", name, err)
		}
		if step, _ := s.record(t, key).Step("a"); string(step.Result) != `"webhook"` {
			t.Errorf("%s: the recorded step is %+v", name, step)
		}
	}
}

// Evidence about a step that is refused.
func TestStepEvidenceRefused(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := resume("charge", "ship")
	g, id := w.guard(t, declare), w.key.RecordID()
	w.dies(t, declare, func(ctx context.Context) {
		_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
	})
	resolve := func(r idempotent.Resolution) error { return g.Resolve(t.Context(), id, r) }
	if err := resolve(idempotent.CorrectedStep("charge", "ch_2")); !errors.As(err, new(*idempotent.InProgressError)) {
		t.Errorf("a correction while the handler may be running: %v", err)
	}
	w.clock.Advance(time.Hour)
	for name, row := range map[string]struct {
		evidence idempotent.Resolution
		want     error
	}{
		"a step that is not declared": {idempotent.ResolvedStep("refund", "re_1"), new(idempotent.StepError)},
		"a name that is invalid":      {idempotent.ResolvedStep("a b", "x"), new(idempotent.StepError)},
		"another result":              {idempotent.ResolvedStep("charge", "ch_2"), new(idempotent.SettledError)},
		"a result that is too large":  {idempotent.ResolvedStep("ship", noise(100_000)), new(idempotent.StepError)},
		"a result that JSON cannot":   {idempotent.ResolvedStep("ship", func() {}), new(idempotent.StepError)},
	} {
		before := w.record(t).Version
		if err := resolve(row.evidence); !errtype.Matches(err, row.want) || w.record(t).Version != before {
			t.Errorf("%s: got error %v, want %v and nothing written", name, err, row.want)
		}
	}
	if err := resolve(idempotent.ResolvedStep("charge", "ch_1")); err != nil {
		t.Errorf("the same result: %v", err)
	}
	if err := resolve(idempotent.CorrectedStep("charge", "ch_2")); err != nil {
		t.Errorf("a correction: %v", err)
	}
	out, err := w.do(t, g, func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", forbidden(t)) })
	if err != nil || out.Value != "ch_2" {
		t.Errorf("got %q, %v", out.Value, err)
	}
	if err := resolve(idempotent.ResolvedStep("charge", "ch_2")); !errors.As(err, new(*idempotent.SettledError)) {
		t.Errorf("once the record is completed: %v", err)
	}
}

// Another interrupted AtMostOnce step leaves the record unknown.
func TestStepEvidenceWithAnotherStepOpen(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := resume("charge", "ship")
	g, id := w.guard(t, declare), w.key.RecordID()
	w.dies(t, declare, func(ctx context.Context) {
		for _, name := range []string{"charge", "ship"} {
			_, _ = idempotent.Step(ctx, name, func(context.Context) (string, error) { return "", errDown }, atMostOnce)
		}
	})
	w.clock.Advance(time.Hour)
	if _, err := idempotent.ReconcileDue(t.Context(), g, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly = true }); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		step string
		want driver.State
	}{{"charge", driver.StateUnknown}, {"ship", driver.StateRetryable}} {
		if err := g.Resolve(t.Context(), id, idempotent.ResolvedStep(row.step, "x")); err != nil {
			t.Fatal(err)
		}
		if got := w.record(t).State; got != row.want {
			t.Errorf("after evidence about %s the record is %s, want %s", row.step, got, row.want)
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
		for _, when := range []string{"while the step runs", "after the handler"} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, panic %t", recovery, when, panics), func(t *testing.T) {
					w := newOldFixture()
					g := w.guard(t, resume("charge", "ship"), func(o *idempotent.Options) { o.Recovery = recovery })
					resolve := func() {
						for range 2 { // a webhook is delivered twice
							if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
								t.Error(err)
							}
						}
					}
					charges := 0
					func() {
						defer func() { _ = recover() }()
						_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
							return idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
								charges++
								if when == "while the step runs" {
									resolve()
								}
								if panics {
									panic(errDown)
								}
								return "", errDown
							}, atMostOnce)
						})
					}()
					if when == "after the handler" {
						resolve()
					}
					if r := w.record(t); r.State != driver.StateRetryable || r.LeaseEnd.Before(w.clock.Now()) {
						t.Errorf("the record is %s (%s), its lease ends %s", r.State, r.Reason, r.LeaseEnd)
					}
					out, err := w.do(t, g, func(ctx context.Context) (string, error) {
						charge, err := idempotent.Step(ctx, "charge", forbidden(t), atMostOnce)
						if err != nil {
							return "", err
						}
						return idempotent.Step(ctx, "ship", func(context.Context) (string, error) { return charge + " shipped", nil })
					})
					if err != nil || out.Value != "ch_1 shipped" || charges != 1 {
						t.Errorf("the next request got %q, %v after %d charges", out.Value, err, charges)
					}
				})
			}
		}
	}
}

// What a handler has declared unknown is released only by evidence about what it
// left open: not by evidence about a step that it had not begun, nor by a
// correction, nor by evidence that came while it ran.
func TestDeclaredUnknownStays(t *testing.T) {
	t.Parallel()
	unsure := func(context.Context) (string, error) { return "", idempotent.Unknown(errDown) }
	for name, row := range map[string]struct {
		handler  func(ctx context.Context, evidence func()) error
		evidence idempotent.Resolution
		want     driver.State
	}{
		"a step that has not begun": {func(context.Context, func()) error { return idempotent.Unknown(errDown) },
			idempotent.ResolvedStep("ship", "x"), driver.StateUnknown},
		"a correction": {func(ctx context.Context, _ func()) error {
			_, _ = idempotent.Step(ctx, "charge", charged)
			return idempotent.Unknown(errDown)
		}, idempotent.CorrectedStep("charge", "x"), driver.StateUnknown},
		"a step that is finished": {func(ctx context.Context, _ func()) error {
			_, _ = idempotent.Step(ctx, "charge", charged)
			return idempotent.Unknown(errDown)
		}, idempotent.ResolvedStep("charge", "ch_1"), driver.StateUnknown},
		"the step, while it ran": {func(ctx context.Context, evidence func()) error {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
				evidence()
				return "", errDown
			}, atMostOnce)
			return idempotent.Unknown(errDown)
		}, idempotent.ResolvedStep("charge", "x"), driver.StateUnknown},
		"the open step": {func(ctx context.Context, _ func()) error {
			_, err := idempotent.Step(ctx, "charge", unsure, atMostOnce)
			return err
		}, idempotent.ResolvedStep("charge", "x"), driver.StateRetryable},
		"the open step, which may run again": {func(ctx context.Context, _ func()) error {
			_, err := idempotent.Step(ctx, "charge", unsure)
			return err
		}, idempotent.ResolvedStep("charge", "x"), driver.StateRetryable},
	} {
		w := newOldFixture()
		g := w.guard(t, resume("charge", "ship"))
		_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
			return "", row.handler(ctx, func() {
				if err := g.Resolve(t.Context(), w.key.RecordID(), row.evidence); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		})
		if r := w.record(t); r.State != driver.StateUnknown {
			t.Errorf("%s: the handler left the record %s", name, r.State)
		}
		w.clock.Advance(time.Hour)
		due := w.record(t).Due
		if err := g.Resolve(t.Context(), w.key.RecordID(), row.evidence); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := w.record(t); r.State != row.want || r.State == driver.StateUnknown && !r.Due.Equal(due) {
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
		w := newOldFixture()
		var log strings.Builder
		g := w.guard(t, resume("charge"), func(o *idempotent.Options) {
			o.Recovery, o.Logger = recovery, slog.New(slog.NewTextHandler(&log, nil))
		})
		_, _ = w.do(t, g, func(context.Context) (string, error) {
			if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
				t.Error(err)
			}
			return "", idempotent.NotExecuted(errDown)
		})
		r := w.record(t)
		if s, _ := r.Step("charge"); r.State != want || !s.Finished {
			t.Errorf("%s: the record is %s (%s), the step %+v", recovery, r.State, r.Reason, s)
		}
		if !strings.Contains(log.String(), "was ignored") {
			t.Errorf("%s: logged %q", recovery, log.String())
		}
	}
}

// A step that was refused because the provider may have forgotten its key counts as
// begun. Evidence about it releases the record.
func TestEvidenceAboutAForgottenKey(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := resume("charge", "ship")
	g := w.guard(t, declare)
	w.dies(t, declare, func(context.Context) {})
	w.clock.Advance(48 * time.Hour)
	handler := func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "charge", forbidden(t)) }
	if _, err := w.do(t, g, handler); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("a step whose key may be forgotten: %v", err)
	}
	for _, row := range []struct {
		step string
		want driver.State
	}{{"ship", driver.StateUnknown}, {"charge", driver.StateRetryable}} {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep(row.step, "x")); err != nil {
			t.Fatal(err)
		}
		if got := w.record(t).State; got != row.want {
			t.Errorf("after evidence about %s the record is %s, want %s", row.step, got, row.want)
		}
	}
	if out, err := w.do(t, g, handler); out.Value != "x" || err != nil {
		t.Errorf("the next request got %q, %v", out.Value, err)
	}
}

// Under Rerun, a record whose only AtMostOnce step is finished by evidence may run
// again: it does not wait for evidence any more, and expires.
func TestEvidenceUnderRerun(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }
	g := w.guard(t, declare)
	w.dies(t, declare, func(ctx context.Context) { _, _ = idempotent.Step(ctx, "charge", noAnswer, atMostOnce) })
	if r := w.record(t); r.Due.IsZero() || !r.Expires.IsZero() {
		t.Errorf("before the evidence it is due %s and expires %s", r.Due, r.Expires)
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "x")); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); r.State != driver.StateInProgress || !r.Due.IsZero() || !r.Expires.Equal(r.LeaseEnd.Add(24*time.Hour)) {
		t.Errorf("the record is %s, due %s, and expires %s", r.State, r.Due, r.Expires)
	}
}

// A process that dies inside its first step leaves no step in the record. The
// released record stays due and does not expire, and its resolver is called.
func TestResumeStaysDueAfterACrashInTheFirstStep(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := resume("charge")
	g := w.guard(t, declare)
	w.dies(t, declare, func(context.Context) {})
	var token string
	asked := 0
	resolve := func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		asked++
		token = r.Token
		return idempotent.Later(0), nil
	}
	for range 3 { // for days
		w.clock.Advance(48 * time.Hour)
		if _, err := idempotent.ReconcileDue(t.Context(), g, resolve, func(o *idempotent.ReconcileOptions) { o.ReleasedFor = 7 * 24 * time.Hour }); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.record(t); asked != 3 || r.State != driver.StateRetryable || r.Due.IsZero() || !r.Expires.IsZero() || r.OpenSince.IsZero() {
		t.Errorf("the resolver was called %d times; the record is %s, due %s, expires %s", asked, r.State, r.Due, r.Expires)
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ProvenNotExecuted(token)); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); !r.Due.IsZero() || r.Expires.Sub(w.clock.Now()).Round(time.Minute) != 24*time.Hour || !r.OpenSince.IsZero() {
		t.Errorf("after the evidence it is due %s and expires %s", r.Due, r.Expires)
	}
}

// A provider forgets downstream keys. After that time a step that an earlier run
// may have begun does not run again: the record becomes unknown.
func TestForgottenDownstreamKeys(t *testing.T) {
	t.Parallel()
	// The first run may take longer, because no earlier run has used the keys.
	w := newOldFixture()
	if _, err := w.do(t, w.guard(t, resume("charge"), func(o *idempotent.Options) { o.DownstreamRetention = time.Second }), func(ctx context.Context) (string, error) {
		w.clock.Advance(time.Minute)
		return idempotent.Step(ctx, "charge", charged)
	}); err != nil {
		t.Errorf("a first run: %v", err)
	}
	same := func(err error) error { return err }
	for name, row := range map[string]struct {
		remembers, after time.Duration
		handler          func(err error) error // what the handler returns for the step's error
		runs             bool
	}{
		"in time":               {time.Hour, 59 * time.Minute, same, true},
		"too late":              {time.Hour, 61 * time.Minute, same, false},
		"too late, ignored":     {time.Hour, 61 * time.Minute, func(error) error { return nil }, false},
		"too late, and Final":   {time.Hour, 61 * time.Minute, func(error) error { return idempotent.Final("x", "") }, false},
		"too late, and another": {time.Hour, 61 * time.Minute, func(error) error { return errDown }, false},
		"the default, in time":  {0, 24*time.Hour - time.Minute, same, true},
		"the default, too late": {0, 24*time.Hour + time.Minute, same, false},
	} {
		w := newOldFixture()
		declare := func(o *idempotent.Options) {
			resume("reserve", "charge")(o)
			o.DownstreamRetention = row.remembers
		}
		g := w.guard(t, declare)
		w.dies(t, declare, func(ctx context.Context) {
			_, _ = idempotent.Step(ctx, "charge", noAnswer)
			_, _ = idempotent.Step(ctx, "reserve", func(context.Context) (string, error) { return "r_1", nil })
		})
		w.clock.Advance(row.after)
		ran := false
		_, err := w.do(t, g, func(ctx context.Context) (string, error) {
			if v, err := idempotent.Step(ctx, "reserve", forbidden(t)); err != nil || v != "r_1" {
				t.Errorf("%s: the finished step gives %q, %v", name, v, err)
			}
			v, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { ran = true; return "ch_1", nil })
			if !row.runs && (!errors.As(err, new(*idempotent.StepError)) || !idempotent.IsUnknown(err)) {
				t.Errorf("%s: the step returned %v", name, err)
			}
			return v, row.handler(err)
		})
		want := driver.StateCompleted
		if !row.runs {
			want = driver.StateUnknown
		}
		if r := w.record(t); ran != row.runs || r.State != want || (err == nil) != row.runs {
			t.Errorf("%s: ran %t, the record is %s (%s), the caller gets error %v", name, ran, r.State, r.Reason, err)
		}
		if row.runs {
			continue
		}
		if s, _ := w.record(t).Step("charge"); s.Attempt != 1 {
			t.Errorf("%s: the step that did not run has begun in attempt %d", name, s.Attempt)
		}
		if _, err := w.do(t, g, func(context.Context) (string, error) { return "", nil }); !errors.As(err, new(*idempotent.UnresolvedError)) {
			t.Errorf("%s: a retry gets %v", name, err)
		}
		// Evidence that nothing is open lets the step run with its key again.
		w.clock.Advance(time.Hour)
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ProvenNotExecuted(w.record(t).Token())); err != nil {
			t.Fatal(err)
		}
		if out, err := w.do(t, g, func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
		}); err != nil || out.Value != "ch_1" {
			t.Errorf("%s: after the evidence: %q, %v", name, out.Value, err)
		}
	}
}

// A step's transaction has no downstream key, so it runs however late it is.
func TestForgottenKeysDoNotConcernTransactions(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := resume("charge", "order")
	w.dies(t, declare, func(context.Context) {})
	w.clock.Advance(48 * time.Hour)
	g := w.guard(t, declare)
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
		t.Fatal(err)
	}
	out, err := w.do(t, g, func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "charge", forbidden(t)); err != nil {
			return "", err
		}
		return idempotent.CommitStep(ctx, "order", "booked", w.Replace)
	})
	if err != nil || out.Value != "booked" {
		t.Errorf("got %q, %v", out.Value, err)
	}
}

// A retryable record without steps becomes due, and does not expire, once
// evidence records a step of it.
func TestStepEvidenceKeepsARetryableRecord(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t, resume("charge", "ship"))
	_, _ = w.do(t, g, returns(idempotent.NotExecuted(errDown)))
	if r := w.record(t); r.State != driver.StateRetryable || r.Expires.IsZero() || !r.Due.IsZero() {
		t.Fatalf("the record is %s, expires %s, due %s", r.State, r.Expires, r.Due)
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); r.State != driver.StateRetryable || !r.Expires.IsZero() || r.Due.IsZero() {
		t.Errorf("after the evidence it is %s, expires %s, due %s", r.State, r.Expires, r.Due)
	}
}
