// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Evidence: reconcilers and webhooks, against each other and the owner.
var evidenceScenarios = []scenario{
	{"FM46_TwoReconcilers_TwoResults", func(l *lab) {
		l.unknown()
		first, second := l.worker(), l.worker()
		second.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			delete(second.hooks, driver.OpReplace)
			l.must(first.found("ch_first"))
			c.Do(ctx)
		}
		l.mustBe(second.found("ch_second"), new(idempotent.SettledError))
		l.wantEvents(event.Resolved, event.Contradicted)
		l.worker().wantReplay("ch_first")
	}},
	{"FM46_TwoReconcilers_ResultThenNothing", func(l *lab) {
		l.unknown()
		l.must(l.worker().resolve(idempotent.ResolvedFinal("declined", "The card was declined.")))
		l.mustBe(l.worker().notExecuted(), new(idempotent.SettledError))
		_, err := l.worker().do(l.never())
		var final *idempotent.FinalError
		if !errors.As(err, &final) || final.Code != "declined" {
			l.Fatalf("a retry got %v, want the Final error", err)
		}
	}},
	{"FM46_TwoReconcilers_NothingThenResult", func(l *lab) {
		// Evidence of an effect is stronger than evidence of no effect: it is
		// accepted, and the contradiction is reported.
		l.unknown()
		l.must(l.worker().notExecuted())
		l.must(l.worker().found("ch_found"))
		l.wantEvents(event.Contradicted)
		l.worker().wantReplay("ch_found")
	}},
	{"FM46_TheSameEvidenceTwice", func(l *lab) {
		l.unknown()
		for range 2 {
			l.must(l.worker().notExecuted())
		}
		for range 2 {
			l.must(l.worker().found("ch_found"))
		}
		if n := l.events.Count(event.Resolved); n != 2 {
			l.Fatalf("%d events resolved, want one per fact", n)
		}
	}},
	// A webhook that arrives while the handler may be running is refused, so
	// the provider sends it again.
	{"FM47_WebhookWhileTheHandlerRuns", func(l *lab) {
		out, err := l.worker().do(func(ctx context.Context) (string, error) {
			l.mustBe(l.worker().found("ch_webhook"), new(idempotent.InProgressError))
			l.wantState(driver.StateInProgress)
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_a" || !out.Stored {
			l.Fatalf("A got %+v, want its own stored result", out)
		}
		l.must(l.worker().found("ch_a"))
		l.worker().wantReplay("ch_a")
	}},
	// A webhook about the first attempt must not release a second one.
	{"FM48_NotExecutedNamesAnAttempt", func(l *lab) {
		l.crash(func(context.Context) {})
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		first := l.record().Token()
		l.must(l.worker().notExecuted())
		l.crash(func(context.Context) { l.effects.Add(1) })
		l.endLease()
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.mustBe(l.worker().resolve(idempotent.ProvenNotExecuted(first)), new(idempotent.StaleEvidenceError))
		l.worker().wantRefused(new(idempotent.UnresolvedError))
		l.must(l.worker().found("ch_b"))
		l.worker().wantReplay("ch_b")
	}},
	{"FM47_WebhookBeforeTheOwner_SameResult", func(l *lab) {
		out, err := l.worker().do(func(ctx context.Context) (string, error) {
			l.endLease()
			l.must(l.worker().found("ch_a"))
			l.worker().wantReplay("ch_a")
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_a" || !out.Stored {
			l.Fatalf("A got %+v, want the stored result", out)
		}
		if n := l.events.Count(event.Contradicted); n != 0 {
			l.Fatalf("%d events contradicted about the same result", n)
		}
		l.worker().wantReplay("ch_a")
	}},
	{"FM47_WebhookBeforeTheOwner_OtherResult", func(l *lab) {
		out, err := l.worker().do(func(ctx context.Context) (string, error) {
			l.endLease()
			l.must(l.worker().found("ch_webhook"))
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if out.Value != "ch_webhook" || !out.Replayed {
			l.Fatalf("A got %+v, want the stored outcome", out)
		}
		l.wantEvents(event.Contradicted)
		l.worker().wantReplay("ch_webhook")
	}},
	{"FM47_WebhookBeforeTheOwner_OwnerFails", func(l *lab) {
		out, err := l.worker().do(func(context.Context) (string, error) {
			l.endLease()
			l.must(l.worker().found("ch_webhook"))
			return "", errNoReply
		})
		l.must(err)
		if out.Value != "ch_webhook" || !out.Replayed {
			l.Fatalf("A got %+v, want the stored outcome", out)
		}
		l.wantEvents(event.Contradicted)
	}},
	// F42: evidence of no effect is not accepted while a handler may be
	// running.
	{"FM48_NotExecutedWhileTheWorkerMayLive", func(l *lab) {
		a := l.worker()
		_, err := a.do(func(context.Context) (string, error) {
			l.mustBe(l.worker().notExecuted(), new(idempotent.InProgressError))
			l.wantState(driver.StateInProgress)
			return "", errNoReply
		})
		l.mustBe(err, errNoReply)
		// The record is unknown and the lease is still live: a call may be in
		// progress.
		l.wantState(driver.StateUnknown)
		l.mustBe(l.worker().notExecuted(), new(idempotent.InProgressError))
		l.wantState(driver.StateUnknown)
		l.endLease()
		l.must(l.worker().notExecuted())
		l.worker().wantRuns("ch_b")
	}},
	// A wrong outcome is discarded once: the operator's second try, or a slow one,
	// does not discard the outcome of the run that follows.
	{"FM68_WrongOutcomeForgotten", func(l *lab) {
		l.unknown()
		l.must(l.worker().found("ch_wrong"))
		l.worker().wantReplay("ch_wrong")
		token := l.record().Token()
		l.mustBe(l.worker().forget("another attempt's"), new(idempotent.StaleEvidenceError))
		l.worker().wantReplay("ch_wrong")
		for range 2 {
			l.must(l.worker().forget(token))
			l.wantState(driver.StateRetryable)
		}
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		_, err := l.worker().doKey(other, l.never())
		l.mustBe(err, new(idempotent.MismatchError))
		l.worker().wantRuns("ch_b")
		l.mustBe(l.worker().forget(token), new(idempotent.StaleEvidenceError))
		l.worker().wantReplay("ch_b")
		if n := l.events.Count(event.Forgotten); n != 1 {
			l.Fatalf("%d events forgotten, want one", n)
		}
	}},
	// The handler may be running after its transaction has stored the outcome.
	{"FM68_ForgetWhileTheHandlerRuns", func(l *lab) {
		out, err := l.worker().do(func(context.Context) (string, error) {
			l.mustBe(l.worker().forget(l.record().Token()), new(idempotent.InProgressError))
			return l.charge("ch_a")(context.Background())
		})
		l.must(err)
		token := l.record().Token()
		l.mustBe(l.worker().forget(token), new(idempotent.InProgressError))
		l.worker().wantReplay(out.Value)
		l.endLease()
		l.must(l.worker().forget(token))
		l.worker().wantRuns("ch_b")
		l.wantEffects(2)
	}},
	{"FM61_NotExecutedButItWas", func(l *lab) {
		out, err := l.worker().do(func(ctx context.Context) (string, error) {
			l.endLease()
			l.must(l.worker().notExecuted())
			l.wantState(driver.StateRetryable)
			return l.charge("ch_a")(ctx)
		})
		l.must(err)
		if !out.Stored || out.Value != "ch_a" {
			l.Fatalf("A got %+v, want its own stored result", out)
		}
		l.wantEvents(event.Contradicted, event.LateCompletion)
		l.worker().wantReplay("ch_a")
		l.wantEffects(1)
	}},
	{"FM61_NotExecutedButNobodyKnows", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			l.endLease()
			l.must(l.worker().notExecuted())
			l.effects.Add(1)
			return "", errNoReply
		})
		l.mustBe(err, errNoReply)
		l.wantEvents(event.Contradicted)
		l.wantState(driver.StateUnknown)
		l.worker().wantRefused(new(idempotent.UnresolvedError))
	}},
}

// unknown makes the lab's record unknown, with an expired lease.
func (l *lab) unknown() {
	l.Helper()
	l.crashAfterEffect()
	l.endLease()
	l.worker().wantRefused(new(idempotent.UnresolvedError))
}

// Steps: which steps of an earlier attempt a later attempt reuses, and which it
// does not.
var stepScenarios = []scenario{
	// INV-2, F37, F43, F90: it continues after the last finished step, with the
	// same key for the provider.
	{"FM28_ResumeAfterACrash", func(l *lab) {
		// The first attempt dies in its second step, after the effect.
		var first, again string
		l.crash(func(ctx context.Context) {
			_, _ = idempotent.Step(ctx, "reserve", returns("r_a"))
			_, _ = idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				l.effects.Add(1)
				first = idempotent.DownstreamKey(ctx)
				return "", errNoReply
			})
		}, resume)
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
		l.crash(func(ctx context.Context) {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
				l.effects.Add(1)
				return "", errNoReply
			}, atMostOnce)
		}, resume)
		l.endLease()
		l.worker(resume).wantRefused(new(idempotent.UnresolvedError))
		l.wantState(driver.StateUnknown)
		l.wantEffects(1)
		l.must(l.worker(resume).found("ch_a"))
		l.worker(resume).wantReplay("ch_a")
	}},
	{"FM30_UnknownRecoveryPoint", func(l *lab) {
		l.crash(func(ctx context.Context) { _, _ = idempotent.Step(ctx, "reserve", returns("r_a")) }, resume)
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

func resume(o *idempotent.Options) {
	o.Recovery, o.Steps = idempotent.Resume, []string{"reserve", "charge"}
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

// returns is a handler without an effect at the provider.
func returns(value string) handler {
	return func(context.Context) (string, error) { return value, nil }
}
