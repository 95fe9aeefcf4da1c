// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"math/rand"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/faults"
)

// Outcomes: when the store fails, the process dies, the record is gone or the
// handler panics.
var outcomeScenarios = []scenario{
	{"FM08_CompletionReplyLost", func(l *lab) {
		a := l.worker()
		a.inject(faults.On(driver.OpReplace, faults.Repeated))
		writes := 0
		a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			writes++
			c.Do(ctx)
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
		a.inject(faults.On(driver.OpReplace, faults.Throttled))
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
		l.crashAfterEffect()
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
			a.hooks[driver.OpReplace] = func(_ context.Context, c *StoreCall) { c.Err = idempotent.ErrNoRecord }
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
		a.inject(func(c faults.Call) faults.Fault {
			if c.N > 1 {
				return faults.LostRequest
			}
			return faults.NoFault
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
		l.twoOwners(l.charge("ch_a"), new(idempotent.LeaseLostError))
	}},
	{"FM60_OutcomeAgainstTakeover_Error", func(l *lab) {
		own := errors.New("the handler's own error")
		l.twoOwners(func(context.Context) (string, error) { return "", own }, own)
	}},
	{"FM60_OutcomeAgainstTakeover_NotExecuted", func(l *lab) {
		own := idempotent.NotExecuted(errors.New("nothing was sent"))
		l.twoOwners(func(context.Context) (string, error) { return "", own }, own)
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
		a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			if writes++; writes == 1 {
				l.endLease()
				l.worker().wantRefused(new(idempotent.UnresolvedError))
			}
			c.Do(ctx)
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
		a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
			delete(a.hooks, driver.OpReplace)
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			c.Do(ctx)
		}
		_, err := a.do(func(context.Context) (string, error) { return "", own })
		if err != own { //lint:ignore errorlint the error is returned unchanged
			l.Fatalf("A got %v, want its own error unchanged", err)
		}
		l.wantState(driver.StateUnknown)
	}},
}

// Results: large ones, missing ones, other versions, caches.
var resultScenarios = []scenario{
	// A result of 4 KB is the largest that is stored in its record, and 400 KB
	// is the limit of a DynamoDB item. Sizes are exact: raw results do not
	// compress.
	{"FM34_ResultOf4KB", func(l *lab) { l.largeResult(4 << 10) }},
	{"FM34_ResultOf4KBAndOneByte", func(l *lab) { l.largeResult(4<<10 + 1) }},
	{"FM34_ResultOf399KB", func(l *lab) { l.largeResult(399 << 10) }},
	{"FM34_ResultOf400KB", func(l *lab) { l.largeResult(400 << 10) }},
	{"FM34_ResultOf401KB", func(l *lab) { l.largeResult(401 << 10) }},
	{"FM34_ResultOf1MB", func(l *lab) { l.largeResult(1 << 20) }}, // several pieces
	// G09: the largest response that Lambda can return.
	{"FM34_ResultOf6MB", func(l *lab) { l.largeResult(6 << 20) }},
	{"FM34_NoTimeForAllOfIt", func(l *lab) {
		a := l.worker()
		if !a.chunks {
			a.hooks[driver.OpReplace] = func(ctx context.Context, c *StoreCall) {
				if len(c.Record.Result) > 0 {
					c.Err = driver.ErrTooLarge
					return
				}
				c.Do(ctx)
			}
		} else {
			a.inject(faults.On(driver.OpPutChunks, faults.LostRequest))
		}
		want := noise(400 << 10)
		out, err := a.do(func(context.Context) (string, error) {
			l.effects.Add(1)
			return want, nil
		})
		l.must(err)
		if out.Value != want || out.Stored {
			l.Fatalf("A got %d bytes, stored %v; want its result, not stored", len(out.Value), out.Stored)
		}
		l.wantEvents(event.CompletionFailed)
		l.wantState(driver.StateCompleted)
		l.worker().wantRefused(new(idempotent.ReplayUnavailableError))
		l.wantEffects(1)
	}},
	{"FM35_ChunksWrittenAndTheCompletionLost", func(l *lab) {
		a := l.worker(raw)
		a.inject(faults.On(driver.OpReplace, faults.LostRequest))
		_, err := a.do(func(context.Context) (string, error) { return noise(20 << 10), nil })
		l.must(err)
		l.worker().wantRefused(new(idempotent.InProgressError))
		l.endLease()
		b := l.worker()
		b.wantRefused(new(idempotent.UnresolvedError))
		l.must(b.notExecuted())
		b.wantRuns("ch_b") // the old piece does not disturb the new one
		b.wantReplay("ch_b")
	}},
	{"FM35_ChunkDeletedOrAltered", func(l *lab) {
		want := noise(20 << 10)
		_, err := l.worker(raw).do(func(context.Context) (string, error) { return want, nil })
		l.must(err)
		b := l.worker(raw)
		if !b.chunks {
			b.wantReplay(want)
			return // the result is part of the record, so there is no piece to delete
		}
		b.hooks[driver.OpGetChunks] = func(_ context.Context, c *StoreCall) { c.Err = idempotent.ErrNoRecord }
		b.wantRefused(new(idempotent.ReplayUnavailableError))
		for _, alter := range []func([]byte) []byte{
			func(d []byte) []byte { d[0] ^= 1; return d },
			func(d []byte) []byte { d[len(d)-1] ^= 1; return d },
			func(d []byte) []byte { return d[:len(d)-1] },
			func(d []byte) []byte { return append(d, 0) },
		} {
			b.hooks[driver.OpGetChunks] = func(ctx context.Context, c *StoreCall) {
				if c.Do(ctx); c.Err == nil {
					c.Data = alter(c.Data)
				}
			}
			b.wantRefused(new(idempotent.ReplayUnavailableError))
		}
		delete(b.hooks, driver.OpGetChunks)
		b.inject(faults.On(driver.OpGetChunks, faults.LostReply))
		b.wantRefused(new(idempotent.StoreError)) // a retry may succeed
		b.inject()
		b.wantReplay(want)
	}},
	// A piece beside a record is stored as long as the record, and an hour
	// longer: the store adds the hour (see [driver.ChunkStore]).
	{"FM35_PiecesOutliveTheRecord", func(l *lab) {
		a := l.worker(raw, shortClaims)
		want := noise(20 << 10)
		_, err := a.do(func(context.Context) (string, error) { return want, nil })
		l.must(err)
		a.piecesLive()
		l.worker(raw).wantReplay(want)
	}},
	{"FM35_CommittedPiecesOutliveTheRecord", func(l *lab) {
		a := l.worker(raw, shortClaims)
		want := noise(20 << 10)
		_, err := a.do(func(ctx context.Context) (string, error) { return want, a.commit(ctx, want) })
		l.must(err)
		a.piecesLive()
		l.worker(raw).wantReplay(want)
	}},
	{"FM35_ResolvedPiecesOutliveTheRecord", func(l *lab) {
		_, err := l.worker(raw, shortClaims).do(func(context.Context) (string, error) { return "", errNoReply })
		l.mustBe(err, errNoReply)
		l.endLease()
		b := l.worker(raw, shortClaims)
		want := noise(20 << 10)
		l.must(b.found(want))
		b.piecesLive()
		l.worker(raw).wantReplay(want)
	}},
	{"FM36_OtherCodec", func(l *lab) {
		// The bytes are valid JSON, but another codec wrote them.
		_, err := l.worker(raw).do(func(context.Context) (string, error) { return `"ch_1"`, nil })
		l.must(err)
		l.worker().wantRefused(new(idempotent.ReplayUnavailableError))
		l.worker(raw).wantReplay(`"ch_1"`)
	}},
	// F62: a result records the version of its format.
	{"FM36_OtherResultVersion", func(l *lab) {
		v1 := func(o *idempotent.Options) { o.ResultVersion = "1" }
		v2 := func(o *idempotent.Options) { o.ResultVersion = "2" }
		l.worker(v1).wantRuns("ch_1")
		l.worker(v2).wantRefused(new(idempotent.ReplayUnavailableError))
		l.worker().wantRefused(new(idempotent.ReplayUnavailableError))
		l.worker(v1).wantReplay("ch_1")
	}},
	{"FM36_FinalErrorsHaveNoVersion", func(l *lab) {
		declined := idempotent.Final("declined", "no funds")
		_, err := l.worker(func(o *idempotent.Options) { o.ResultVersion = "1" }).do(func(context.Context) (string, error) {
			return "", declined
		})
		l.mustBe(err, declined)
		_, err = l.worker(func(o *idempotent.Options) { o.ResultVersion = "2" }).do(l.never())
		var final *idempotent.FinalError
		if !errors.As(err, &final) || final.Code != "declined" {
			l.Fatalf("a retry got %v, want the Final error", err)
		}
	}},
	{"FM38_CacheKnowsTheExpiry", func(l *lab) {
		a := l.worker(cached, func(o *idempotent.Options) { o.CacheAge, o.Retention = 48*time.Hour, time.Hour })
		a.wantRuns("ch_1")
		calls := a.calls.Load()
		a.wantReplay("ch_1")
		if a.calls.Load() != calls {
			l.Fatal("a cached replay called the store")
		}
		l.clock.advanceTo(l.record().Expires)
		a.wantRuns("ch_2")
		a.wantReplay("ch_2")
	}},
	{"FM38_CacheBindsThePayload", func(l *lab) {
		a := l.worker(cached)
		a.wantRuns("ch_1")
		other := l.key
		other.Fingerprint = idempotent.FingerprintBytes([]byte("another request"))
		_, err := a.doKey(other, l.never())
		l.mustBe(err, new(idempotent.MismatchError))
	}},
	{"FM38_OnlyCompletedRecordsAreCached", func(l *lab) {
		a := l.worker(cached)
		_, err := a.do(func(context.Context) (string, error) { return "", errNoReply })
		l.mustBe(err, errNoReply)
		a.wantRefused(new(idempotent.UnresolvedError))
		l.endLease()
		l.must(l.worker().found("ch_resolved"))
		a.wantReplay("ch_resolved")
	}},
	{"FM38_CacheAges", func(l *lab) {
		a := l.worker(cached)
		a.wantRuns("ch_1")
		l.clock.Advance(time.Minute)
		calls := a.calls.Load()
		a.wantReplay("ch_1")
		if a.calls.Load() == calls {
			l.Fatal("a record older than CacheAge was served from the cache")
		}
	}},
	{"FM63_LateChunksAgainstAResolution", func(l *lab) {
		resolved, late := noise(30<<10), noise(32<<10)
		a := l.worker(raw)
		out, err := a.do(func(context.Context) (string, error) {
			l.endLease()
			l.worker().wantRefused(new(idempotent.UnresolvedError))
			l.must(l.worker(raw).found(resolved))
			return late, nil
		})
		l.must(err)
		if a.chunks && len(a.puts) != 1 {
			l.Fatalf("A put %d results beside the record, want its late one", len(a.puts))
		}
		if out.Value != resolved || !out.Replayed {
			l.Fatalf("A got %d bytes, want the resolver's", len(out.Value))
		}
		l.worker(raw).wantReplay(resolved)
	}},
}

func cached(o *idempotent.Options) { o.CacheEntries = 16 }

func raw(o *idempotent.Options) { o.Codec = rawCodec{} }

// shortClaims lets a claim expire long before an outcome.
func shortClaims(o *idempotent.Options) { o.UnresolvedRetention = time.Minute }

// noise returns bytes that do not compress, the same ones every time.
func noise(size int) string {
	b := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(b)
	return string(b)
}

// largeResult stores a result that does not compress and checks that a retry
// gets all of it from the store itself. Megabytes take real time, and more on a
// busy machine.
func (l *lab) largeResult(size int) {
	l.Helper()
	want := noise(size)
	a := l.worker(raw)
	out, err := a.doIn(l.clock.Invocation(context.Background(), 5*time.Minute), l.key, func(context.Context) (string, error) {
		l.effects.Add(1)
		return want, nil
	})
	l.must(err)
	if !out.Stored || out.Value != want {
		l.Fatalf("A got %d bytes, stored %v; want its stored result", len(out.Value), out.Stored)
	}
	if beside := l.record().Chunks.Count > 0; beside != (a.chunks && size > 4<<10) {
		l.Fatalf("a result of %d bytes stored beside its record: %t", size, beside)
	}
	l.worker(raw).wantReplay(want)
	l.wantEffects(1)
}

// piecesLive checks until when the worker asked the store to hold the current
// result: until its record expires, which is long after the claim would.
func (w *worker) piecesLive() {
	w.Helper()
	r, retention := w.record(), w.clock.Now().Add(24*time.Hour).Truncate(time.Millisecond) // the default
	put := slices.ContainsFunc(w.puts, func(p driver.Record) bool { return p.Expires.Equal(retention) })
	if !r.Expires.Equal(retention) || put != w.chunks {
		w.Fatalf("the record expires at %s, want %s, and a result until then was put beside it: %t", r.Expires, retention, put)
	}
}
