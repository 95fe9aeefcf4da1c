package idempotenttest

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Outcomes: when the store fails, the process dies, the record is gone or the
// handler panics.
var outcomeScenarios = []scenario{
	{"FM08_CompletionReplyLost", func(l *lab) {
		a := l.worker()
		a.inject(On(OpReplace, Repeated))
		writes := 0
		a.tap.onReplace = func(_ driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
			writes++
			return write()
		}
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if !out.Stored || out.Replayed || writes != 1 {
			l.Fatalf("A got %+v after %d writes of the outcome, want it stored by one", out, writes)
		}
		l.wantEffects(1)
		l.worker().wantReplay("ch_a")
	}},
	{"FM09_CompletionRejected", func(l *lab) {
		a := l.worker()
		a.inject(On(OpReplace, Throttled))
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if out.Value != "ch_a" || out.Stored {
			l.Fatalf("A got %+v, want its result, not stored", out)
		}
		l.wantEvents(event.CompletionFailed)
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
	}},
	// F36: an attempt without a reported outcome is not run again.
	{"FM10_CrashBeforeCompletion", func(l *lab) {
		l.crashAfterEffect("ch_a")
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		b := l.worker()
		b.wantRefused(new(idempotent.UnresolvedError))
		// The reconciler queries the provider by the downstream key and finds
		// the effect.
		l.must(b.found("ch_a"))
		l.worker().wantReplay("ch_a")
		l.wantEffects(1)
	}},
	{"FM12_CrashBetweenEffectAndReturn", func(l *lab) {
		l.crash(func(context.Context) { l.effects.Add(1) })
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		b := l.worker()
		b.wantRefused(new(idempotent.UnresolvedError))
		l.must(b.found("ch_a"))
		l.worker().wantReplay("ch_a")
		l.wantEffects(1)
	}},
	{"FM20_RecordDeletedMeanwhile", func(l *lab) {
		a := l.worker()
		if l.fixture.Remove == nil {
			a.tap.onReplace = func(driver.Record, func() (*driver.Record, error)) (*driver.Record, error) {
				return nil, idempotent.ErrNoRecord
			}
		}
		out, err := a.do(func(ctx context.Context) (string, error) {
			if l.fixture.Remove != nil {
				l.remove()
			}
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_a" || out.Stored {
			l.Fatalf("A got %+v, want its result, not stored", out)
		}
		l.wantEvents(event.CompletionFailed)
		if r := l.record(); r != nil && l.fixture.Remove != nil {
			l.Fatalf("the outcome created a record: %s", describe(r))
		}
	}},
	{"FM31_PanicProvesNothing", func(l *lab) {
		want := idempotent.NotExecuted(errors.New("busy"))
		got := l.panics(func(context.Context) (string, error) { panic(want) })
		if got != want { //lint:ignore errorlint the value itself is raised again
			l.Fatalf("the panic was raised again as %v, want %v itself", got, want)
		}
		l.wantState(driver.StateUnknown)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
	}},
	{"FM31_PanicAfterTheEffect", func(l *lab) {
		got := l.panics(func(context.Context) (string, error) {
			l.effects.Add(1)
			panic("boom")
		})
		if got != "boom" {
			l.Fatalf("the panic was raised again as %v, want the same value", got)
		}
		l.wantState(driver.StateUnknown)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantEffects(1)
	}},
	{"FM31_PanicWithAFinalError", func(l *lab) {
		// A panic is not a business outcome, whatever its value.
		l.panics(func(context.Context) (string, error) { panic(idempotent.Final("declined", "no funds")) })
		l.wantState(driver.StateUnknown)
	}},
	{"FM31_PanicUnderRerun", func(l *lab) {
		l.panics(func(context.Context) (string, error) { panic("boom") }, rerun)
		l.wantState(driver.StateRetryable)
		l.worker(rerun).wantRuns("ch_b")
	}},
	{"FM31_GoroutineEnds", func(l *lab) {
		l.exits(l.worker(), func(context.Context) {})
		l.wantState(driver.StateUnknown)
	}},
	{"FM56_StoreDownAfterTheClaim", func(l *lab) {
		a := l.worker()
		a.inject(func(c Call) Fault {
			if c.N > 1 {
				return LostRequest
			}
			return NoFault
		})
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if out.Stored {
			l.Fatal("A got Stored, but its result is not stored")
		}
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantEffects(1)
	}},
	// G01: a late owner does not overwrite another owner's record.
	{"FM13_TakenOverAndCompleted", func(l *lab) {
		a := l.worker(rerun)
		var version driver.Version
		out, err := a.do(func(ctx context.Context) (string, error) {
			l.endLease() // A stalls
			l.worker(rerun).wantRuns("ch_b")
			version = l.record().Version
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_b" || !out.Replayed {
			l.Fatalf("A got %+v, want B's stored outcome", out)
		}
		if l.record().Version != version {
			l.Fatal("A overwrote B's record")
		}
		l.wantEvents(event.LeaseLost)
		l.worker(rerun).wantReplay("ch_b")
	}},
	{"FM13_TakenOverAndRunning", func(l *lab) {
		l.twoOwners(func(a handler) handler { return a }, nil)
	}},
	{"FM60_OutcomeAgainstTakeover_Error", func(l *lab) {
		own := errors.New("the handler's own error")
		l.twoOwners(func(handler) handler {
			return func(context.Context) (string, error) { return "", own }
		}, own)
	}},
	{"FM60_OutcomeAgainstTakeover_NotExecuted", func(l *lab) {
		own := idempotent.NotExecuted(errors.New("nothing was sent"))
		l.twoOwners(func(handler) handler {
			return func(context.Context) (string, error) { return "", own }
		}, own)
	}},
	// F38: only the handler can report that nothing was executed.
	{"FM32_LyingNotExecuted", func(l *lab) {
		// A documented hazard: the handler's report is trusted, so its effect
		// happens twice. The provider's books show it.
		_, err := l.worker().do(func(context.Context) (string, error) {
			l.effects.Add(1)
			return "", idempotent.NotExecuted(errNoReply)
		})
		l.mustBe(err, errNoReply)
		l.wantState(driver.StateRetryable)
		l.worker().wantRuns("ch_b")
		l.wantEffects(2)
	}},
	{"FM32_LyingNotExecutedAfterAStep", func(l *lab) {
		// If the effect is in a step, the record contradicts such a report.
		_, err := l.worker().do(func(ctx context.Context) (string, error) {
			if _, err := idempotent.Step(ctx, "charge", l.charge("ch_a")); err != nil {
				return "", err
			}
			return "", idempotent.NotExecuted(errNoReply)
		})
		l.mustBe(err, errNoReply)
		l.wantState(driver.StateUnknown)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.wantEffects(1)
	}},
	{"FM14_LateOwnerCompletesUnknown", func(l *lab) {
		a := l.worker()
		out, err := a.do(func(ctx context.Context) (string, error) {
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			l.wantState(driver.StateUnknown)
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_a" || !out.Stored || out.Replayed {
			l.Fatalf("A got %+v, want its own stored result", out)
		}
		l.wantEvents(event.MarkedUnknown, event.LateCompletion)
		l.worker().wantReplay("ch_a")
		l.wantEffects(1)
	}},
	{"FM62_SweptWhileTheCompletionIsOnTheWire", func(l *lab) {
		a := l.worker()
		writes := 0
		a.tap.onReplace = func(_ driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
			if writes++; writes == 1 {
				l.endLease()
				l.worker().wantRefused(new(idempotent.UnresolvedError))
			}
			return write()
		}
		out, err := a.do(l.charge("ch_a"))
		l.must(err)
		if !out.Stored || writes != 2 {
			l.Fatalf("A got %+v after %d writes, want it stored by the second", out, writes)
		}
		l.wantState(driver.StateCompleted)
		l.worker().wantReplay("ch_a")
		l.wantEffects(1)
	}},
	{"FM62_OwnUnknownMeetsTheSweepers", func(l *lab) {
		own := errNoReply
		a := l.worker()
		a.tap.onReplace = func(_ driver.Record, write func() (*driver.Record, error)) (*driver.Record, error) {
			a.tap.onReplace = nil
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			return write()
		}
		_, err := a.do(func(context.Context) (string, error) { return "", own })
		if err != own { //lint:ignore errorlint the error is returned unchanged
			l.Fatalf("A got %v, want its own error unchanged", err)
		}
		l.wantState(driver.StateUnknown)
	}},
}
