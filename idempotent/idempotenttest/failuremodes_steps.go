package idempotenttest

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Steps: which steps of an earlier attempt a later attempt reuses, and which it
// does not.
var stepScenarios = []scenario{
	// INV-2, F37, F43, F90: it continues after the last finished step, with the
	// same key for the provider.
	{"FM28_ResumeAfterACrash", func(l *lab) {
		// The first attempt dies in its second step, after the effect.
		var first, again string
		l.dies(func(ctx context.Context) {
			l.step(ctx, "reserve", "r_a")
			_, _ = idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				l.effects.Add(1)
				first = idempotent.DownstreamKey(ctx)
				return "", errNoReply
			})
		})
		l.endLease()
		out, err := l.worker(resume).do(func(ctx context.Context) (string, error) {
			if v, err := idempotent.Step(ctx, "reserve", l.never()); v != "r_a" || err != nil {
				l.Fatalf("the finished step returned %q, %v", v, err)
			}
			return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				again = idempotent.DownstreamKey(ctx) // the provider recognises it and does not charge again
				return "ch_a", nil
			})
		})
		l.must(err)
		if out.Value != "ch_a" || first != again || first == "" {
			l.Fatalf("B got %+v, and its step the key %q after %q", out, again, first)
		}
		l.wantEvents(event.TakenOver, event.StepReplayed, event.StepDone)
		if n := len(l.record().Steps); n != 0 {
			l.Fatalf("%d steps are stored with the outcome", n)
		}
		l.wantEffects(1)
		l.worker(resume).wantReplay("ch_a")
	}},
	{"FM29_InterruptedAtMostOnce", func(l *lab) {
		l.dies(func(ctx context.Context) {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
				l.effects.Add(1)
				return "", errNoReply
			}, atMostOnce)
		})
		l.endLease()
		l.worker(resume).wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
		l.must(l.worker(resume).found("ch_a"))
		l.worker(resume).wantReplay("ch_a")
	}},
	{"FM30_UnknownRecoveryPoint", func(l *lab) {
		l.dies(func(ctx context.Context) { l.step(ctx, "reserve", "r_a") })
		l.endLease()
		version := l.record().Version
		l.worker(resume, func(o *idempotent.Options) { o.Steps = []string{"charge", "book"} }).wantRefused(new(idempotent.UnresolvedError))
		if l.record().Version != version {
			l.Fatal("code that does not know the step wrote the record")
		}
		// Code that knows the step can continue.
		out, err := l.worker(resume).do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "reserve", l.never()) })
		l.must(err)
		if out.Value != "r_a" {
			l.Fatalf("B got %+v", out)
		}
	}},
	{"FM60_StepAgainstTakeover", func(l *lab) {
		a := l.worker(resume)
		out, err := a.do(func(ctx context.Context) (string, error) {
			l.endLease()
			l.worker(resume).wantRuns("ch_b")
			version := l.record().Version
			_, err := idempotent.Step(context.WithoutCancel(ctx), "charge", func(context.Context) (string, error) { return "ch_a", nil })
			l.mustBe(err, new(idempotent.LeaseLostError))
			if l.record().Version != version {
				l.Fatal("A's step overwrote B's record")
			}
			return "", err
		})
		l.must(err)
		if out.Value != "ch_b" || !out.Replayed {
			l.Fatalf("A got %+v, want B's stored outcome", out)
		}
		l.wantEffects(1)
	}},
	{"FM64_LeakedGoroutine", func(l *lab) {
		var leaked context.Context
		_, err := l.worker(resume).do(func(ctx context.Context) (string, error) {
			leaked = context.WithoutCancel(ctx)
			return "ch_a", nil
		})
		l.must(err)
		version := l.record().Version
		_, err = idempotent.Step(leaked, "charge", l.never())
		l.mustBe(err, idempotent.ErrExecutionEnded)
		if l.record().Version != version {
			l.Fatal("the step of a leaked goroutine wrote the record")
		}
		l.worker(resume).wantReplay("ch_a")
	}},
}

// dies leaves the record as a process does under Resume that was killed after
// during returned.
func (l *lab) dies(during func(context.Context)) {
	l.Helper()
	a := l.worker(resume)
	l.exits(a, func(ctx context.Context) {
		during(ctx)
		a.tap.onReplace = func(driver.Record, func() (*driver.Record, error)) (*driver.Record, error) {
			return nil, errors.New("the process is gone")
		}
	})
}

func resume(o *idempotent.Options) {
	o.Recovery, o.Steps = idempotent.Resume, []string{"reserve", "charge"}
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

// step runs a step without an effect at the provider.
func (l *lab) step(ctx context.Context, name, result string) {
	_, err := idempotent.Step(ctx, name, func(context.Context) (string, error) { return result, nil })
	if err != nil && !errors.As(err, new(*idempotent.StoreError)) {
		l.Errorf("the step %s: %v", name, err)
	}
}
