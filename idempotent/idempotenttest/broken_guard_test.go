// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/faults"
)

// brokenGuards are faults in a guard.
var brokenGuards = []broken{
	{name: "A lease has no margin", caught: "FM15_HandlerIgnoresItsDeadline FM18_SkewAroundTheLeaseEnd FM18_SkewAroundTheExpiry",
		guard: options(func(o *idempotent.Options) { o.LeaseMargin = time.Millisecond })},
	{name: "Every lease has the default length", caught: "FM17_NoDeadline",
		guard: options(func(o *idempotent.Options) { o.DefaultLease = 15 * time.Minute })},
	{name: "Every lease has expired", caught: `FM03_RetryUnderTheSameRequestID FM47_WebhookWhileTheHandlerRuns
		FM48_NotExecutedWhileTheWorkerMayLive FM68_ForgetWhileTheHandlerRuns FM15_HandlerIgnoresItsDeadline`,
		guard: reads(func(r *driver.Record) { r.LeaseEnd = time.UnixMilli(1).UTC() })},
	{name: "Every second guard is disabled", caught: "FM05_SimultaneousRequests", says: "got error <nil>, want",
		guard: options(everySecond(func(o *idempotent.Options) { o.Disabled = true }))},
	{name: "Every second invocation has no time", caught: "FM05_SimultaneousRequests", says: "got error .*, want",
		guard: asking(everySecond(func(a *asked) { a.ctx = invocation{a.ctx, time.UnixMilli(1)} }))},
	{name: "A handler is called twice", caught: `FM05_SimultaneousRequests FM34_ResultOf4KB FM51_ManyLoopsOneProcess
		FM65_ClaimTookLongerThanTheLease`, says: "the provider saw 2 effects, want 1", guard: asking(func(a *asked) {
		inner := a.handler
		a.handler = func(ctx context.Context) (string, error) {
			if value, err := inner(ctx); err != nil {
				return value, err
			}
			return inner(ctx)
		}
	})},
	{name: "A takeover fails", caught: "FM13_TakenOverAndRunning",
		guard: refuses(func(r *driver.Record) bool { return r.Attempt > 1 && r.State == driver.StateInProgress })},

	{name: "A replay is not marked", caught: `FM01_InsertReplyLost FM13_TakenOverAndRunning FM34_ResultOf4KB FM51_ManyLoopsOneProcess`,
		says:  "replayed: false, and error <nil>; want the replay of",
		guard: replays(func(out *idempotent.Outcome[string], _ *error) { out.Replayed = false })},
	{name: "A replay has no value", caught: "FM01_InsertReplyLost", says: `a retry got "", replayed: true, and error <nil>`,
		guard: replays(func(out *idempotent.Outcome[string], _ *error) { out.Value = "" })},
	{name: "A replay is refused", caught: "FM01_InsertReplyLost", says: "replayed: true, and error refused",
		guard: replays(func(_ *idempotent.Outcome[string], err *error) { *err = errWrong })},
	{name: "A run is marked as a replay", caught: "FM01_TakeoverReplyLost FM65_ClaimTookLongerThanTheLease", says: "want it to run",
		guard: runs(func(out *idempotent.Outcome[string], _ *error) { out.Replayed = true })},
	{name: "A run has no value", caught: "FM01_TakeoverReplyLost FM34_ResultOf4KB", says: `a retry got "", replayed: false, and error <nil>|A got 0 bytes`,
		guard: runs(func(out *idempotent.Outcome[string], _ *error) { out.Value = "" })},
	{name: "A run is not marked as stored", caught: "FM34_ResultOf4KB", says: "A got 4096 bytes, stored false",
		guard: runs(func(out *idempotent.Outcome[string], _ *error) { out.Stored = false })},
	{name: "A caller is refused after its run", caught: `FM01_TakeoverReplyLost FM05_SimultaneousRequests FM13_TakenOverAndRunning
		FM34_ResultOf4KB FM51_ManyLoopsOneProcess FM59_CrashedNeverExpires`, says: `go:\d+: refused|a loop got error refused|refused; want it to run`,
		guard: runs(func(_ *idempotent.Outcome[string], err *error) { *err = errWrong })},
	{name: "Every error is another one", caught: `FM01_TakeoverReplyLost FM05_SimultaneousRequests FM13_TakenOverAndRunning
		FM46_TheSameEvidenceTwice FM51_ManyLoopsOneProcess FM65_ClaimTookLongerThanTheLease`, says: "error refused[,;] want|a loop got error refused",
		guard: &mutation{answer: func(_ *idempotent.Outcome[string], err *error) {
			if *err != nil {
				*err = errWrong
			}
		}}},

	{name: "A run does not announce itself", caught: "FM11_KilledAtItsDeadline", guard: writes(func(r *driver.Record) { r.Announced = false })},
	{name: "The invocation has no deadline", caught: "FM16_NoTimeAtEntry", guard: asking(func(a *asked) { a.ctx = context.WithoutCancel(a.ctx) })},
	{name: "The deadline is two seconds late", caught: "FM37_OwnDeadline", guard: asking(func(a *asked) {
		if deadline, ok := a.ctx.Deadline(); ok {
			a.ctx = invocation{a.ctx, deadline.Add(2 * time.Second)}
		}
	})},
	{name: "A caller's cancellation is not noticed", caught: "FM37_CallerGoesAway", guard: &mutation{
		options: hasty,
		request: func(a *asked) {
			deadline, _ := a.ctx.Deadline()
			a.ctx = invocation{context.WithoutCancel(a.ctx), deadline}
		},
	}},
	{name: "The clock does not advance", caught: "FM38_CacheKnowsTheExpiry FM65_ClaimTookLongerThanTheLease FM65_ClaimLeftLessThanTheReserve",
		guard: options(func(o *idempotent.Options) {
			at := o.Now()
			o.Now = func() time.Time { return at }
		})},

	{name: "Every operation runs again", caught: `FM02_InsertGivenUp_NotReleased FM04_OwnRecordBecameUnknownMeanwhile FM09_CompletionRejected
		FM10_CrashBeforeCompletion FM11_CrashAfterTheClaim FM12_CrashBetweenEffectAndReturn FM31_PanicAfterTheEffect
		FM31_PanicProvesNothing FM32_LyingNotExecutedAfterAStep FM35_ChunksWrittenAndTheCompletionLost
		FM37_TwinCrashes FM56_StoreDownAfterTheClaim FM59_CrashedNeverExpires`, guard: options(func(o *idempotent.Options) {
		if o.Recovery == idempotent.Reconcile {
			o.Recovery = idempotent.Rerun
		}
	})},
	{name: "Every attempt has the same token", caught: "FM48_NotExecutedNamesAnAttempt FM68_WrongOutcomeForgotten",
		guard: writes(func(r *driver.Record) { r.Owner = driver.Owner{1} })},
	{name: "Every outcome expires at the end of the lease", caught: "FM18_ShortRetentionIsHonoured",
		guard: writes(func(r *driver.Record) {
			if r.Expires.Before(r.LeaseEnd) {
				r.Expires = r.LeaseEnd
			}
		})},
	{name: "NotExecuted is ignored", caught: "FM32_LyingNotExecuted FM33_SimultaneousTakeovers", guard: writes(func(r *driver.Record) {
		if r.Reason == driver.ReasonNotExecuted {
			r.State, r.Reason = driver.StateUnknown, driver.ReasonHandlerError
		}
	})},
	{name: "An abandoned claim is not released", caught: "FM02_InsertGivenUp_Released FM65_ClaimTookLongerThanTheLease", says: "want retryable",
		guard: refuses(func(r *driver.Record) bool {
			return r.Reason == driver.ReasonReleased || r.Reason == driver.ReasonNoTime
		})},
	{name: "A claim is recognised by its request id", caught: "FM03_RetryUnderTheSameRequestID",
		guard: owns(func(met *driver.Record, r driver.Record) bool {
			return met.RequestID != "" && met.RequestID == r.RequestID
		})},
	{name: "A claim is recognised by its owner", caught: "FM04_OwnRecordBecameUnknownMeanwhile",
		guard: owns(func(met *driver.Record, r driver.Record) bool { return met.Owner == r.Owner })},
	{name: "Every request has the same fingerprint", caught: "FM06_OtherRequestWhileInProgress FM07_OtherRequestAfterCompletion FM38_CacheBindsThePayload",
		guard: asking(func(a *asked) { a.key.Fingerprint = idempotent.FingerprintBytes(nil) })},
	{name: "The expiry is checked after the insert", caught: "FM66_ExpiryBetweenInsertAndJudgement",
		guard: &mutation{calls: judgesLate}},

	{name: "A panic or Goexit of the handler is swallowed", caught: `FM31_PanicProvesNothing FM31_PanicAfterTheEffect
		FM31_PanicWithAFinalError FM31_PanicUnderRerun FM31_GoroutineEnds`, says: "was swallowed", guard: asking(func(a *asked) { a.handler = swallowing(a.handler) })},
	{name: "A handler's context carries no execution", caught: "FM28_ResumeAfterACrash FM32_LyingNotExecutedAfterAStep FM64_LeakedGoroutine",
		guard: asking(func(a *asked) {
			inner := a.handler
			a.handler = func(ctx context.Context) (string, error) { return idempotent.Do(ctx, unguarded, a.key, inner) }
		})},
	{name: "Steps are not stored", caught: "FM28_ResumeAfterACrash FM29_InterruptedAtMostOnce FM30_UnknownRecoveryPoint",
		guard: writes(func(r *driver.Record) { r.Steps = nil })},

	{name: "Unresolved records expire", caught: "FM59_UnknownNeverExpires FM59_CrashedNeverExpires FM59_UnknownUnderRerunNeverExpires",
		guard: options(func(o *idempotent.Options) { o.UnresolvedRetention = 24 * time.Hour })},
	{name: "UnresolvedRetention is ignored", caught: "FM59_UnlessItWasAskedFor",
		guard: options(func(o *idempotent.Options) { o.UnresolvedRetention = 0 })},

	{name: "Contradictions are not reported", caught: `FM46_TwoReconcilers_TwoResults FM46_TwoReconcilers_NothingThenResult
		FM47_WebhookBeforeTheOwner_OtherResult FM47_WebhookBeforeTheOwner_OwnerFails FM61_NotExecutedButItWas FM61_NotExecutedButNobodyKnows`,
		guard: unreported(event.Contradicted)},
	{name: "A lost lease is not reported", caught: "FM13_TakenOverAndRunning", says: "no event", guard: unreported(event.LeaseLost)},
	{name: "Evidence overrides an outcome", caught: "FM46_TwoReconcilers_ResultThenNothing FM46_TheSameEvidenceTwice",
		guard: reads(func(r *driver.Record) {
			if r.State == driver.StateCompleted {
				r.State = driver.StateUnknown
			}
		})},

	{name: "An outcome without its result is not stored", caught: "FM34_NoTimeForAllOfIt",
		guard: refuses(func(r *driver.Record) bool { return r.Encoding == driver.EncodingOmitted })},
	{name: "A large result is verified by its first 4 KB only", caught: "FM35_ChunkDeletedOrAltered",
		guard: always(checksPartly)},
	{name: "A large result never expires", caught: "FM34_ResultOf4KBAndOneByte FM35_PiecesOutliveTheRecord FM35_CommittedPiecesOutliveTheRecord FM35_ResolvedPiecesOutliveTheRecord",
		guard: puts(func(time.Time) time.Time { return time.Time{} })},
	{name: "A large result expires with the claim", caught: "FM35_PiecesOutliveTheRecord FM35_CommittedPiecesOutliveTheRecord FM35_ResolvedPiecesOutliveTheRecord",
		says: "beside it: false", guard: &mutation{calls: putsForTheClaim}},
	{name: "A record expires before its large result", caught: "FM35_PiecesOutliveTheRecord", says: "beside it: true",
		guard: writes(func(r *driver.Record) {
			if r.State == driver.StateCompleted {
				r.Expires = r.Expires.Add(-time.Hour)
			}
		})},
	{name: "A large result and its record expire early", caught: "FM35_PiecesOutliveTheRecord FM35_CommittedPiecesOutliveTheRecord",
		guard: always(func(ctx context.Context, c *StoreCall) {
			if c.Op == driver.OpPutChunks || c.Record.State == driver.StateCompleted {
				c.Record.Expires = c.Record.Expires.Add(-time.Hour)
			}
			c.Do(ctx)
		})},
	{name: "A lost lease is not in the error", caught: "FM60_OutcomeAgainstTakeover_Error", says: "got error the handler's own error, want",
		guard: &mutation{answer: func(_ *idempotent.Outcome[string], err *error) {
			if lost, ok := errors.AsType[*idempotent.LeaseLostError](*err); ok {
				*err = lost.Err
			}
		}}},
	{name: "A handler's error is copied", caught: "FM60_OutcomeAgainstTakeover_Error FM62_OwnUnknownMeetsTheSweepers",
		guard: asking(func(a *asked) {
			inner := a.handler
			a.handler = func(ctx context.Context) (string, error) {
				value, err := inner(ctx)
				if err != nil {
					err = errors.New(err.Error())
				}
				return value, err
			}
		})},
	{name: "The codec's name is not checked", caught: "FM36_OtherCodec", guard: options(func(o *idempotent.Options) {
		if o.Codec == nil {
			o.Codec = rawCodec{}
		}
		o.Codec = renamed{o.Codec}
	})},
	{name: "ResultVersion is ignored", caught: "FM36_OtherResultVersion",
		guard: options(func(o *idempotent.Options) { o.ResultVersion = "" })},
	{name: "A Final error is stored as a result", caught: "FM36_FinalErrorsHaveNoVersion", guard: writes(func(r *driver.Record) {
		if r.Encoding == driver.EncodingFinal {
			r.Encoding = "json"
		}
	})},

	{name: "There is no cache", caught: "FM38_CacheKnowsTheExpiry",
		guard: options(func(o *idempotent.Options) { o.CacheEntries = 0 })},
	{name: "Cached records do not expire", caught: "FM38_CacheAges",
		guard: options(func(o *idempotent.Options) { o.CacheAge = 24 * time.Hour })},
	{name: "Every record is cached", caught: "FM38_OnlyCompletedRecordsAreCached",
		guard: &mutation{calls: remembers}},
	{name: "WaitFor is ignored", caught: "FM37_TwinCompletes FM37_TwinCrashes FM37_StoreFailsWhileWaiting",
		guard: options(func(o *idempotent.Options) { o.WaitFor = 0 })},
}

// unguarded runs every request without a record.
var unguarded, _ = idempotent.New(newShelf(), func(o *idempotent.Options) { o.Disabled = true })

func options(f func(*idempotent.Options)) *mutation { return &mutation{options: f} }
func asking(f func(*asked)) *mutation               { return &mutation{request: f} }

var errWrong = errors.New("refused")

// runs changes the answer of a request that ran, and replays that of one that did not.
func runs(f func(*idempotent.Outcome[string], *error)) *mutation {
	return &mutation{answer: func(out *idempotent.Outcome[string], err *error) {
		if *err == nil && !out.Replayed {
			f(out, err)
		}
	}}
}

func replays(f func(*idempotent.Outcome[string], *error)) *mutation {
	return &mutation{answer: func(out *idempotent.Outcome[string], err *error) {
		if out.Replayed {
			f(out, err)
		}
	}}
}

// everySecond changes every second one.
func everySecond[T any](f func(T)) func(T) {
	var n atomic.Int32
	return func(of T) {
		if n.Add(1)%2 == 0 {
			f(of)
		}
	}
}

// unreported drops the events of a kind.
func unreported(kind event.Kind) *mutation {
	return options(func(o *idempotent.Options) {
		all := o.Observer
		o.Observer = event.ObserverFunc(func(ctx context.Context, e event.Event) {
			if e.Kind != kind {
				all.Observe(ctx, e)
			}
		})
	})
}

// always is a mutation of the calls between a guard and its store.
func always(f func(context.Context, *StoreCall)) *mutation {
	return &mutation{calls: func(func() time.Time) func(context.Context, *StoreCall) { return f }}
}

// writes changes a record before it is written.
func writes(write func(*driver.Record)) *mutation {
	return refuses(func(r *driver.Record) bool {
		write(r)
		return false
	})
}

// refuses makes writes fail.
func refuses(refuse func(*driver.Record) bool) *mutation {
	return always(func(ctx context.Context, c *StoreCall) {
		if (c.Op == driver.OpInsert || c.Op == driver.OpReplace) && refuse(&c.Record) {
			c.Err = faults.ErrInjected
			return
		}
		c.Do(ctx)
	})
}

// owns takes a record that a write met for its own.
func owns(owns func(met *driver.Record, r driver.Record) bool) *mutation {
	return always(func(ctx context.Context, c *StoreCall) {
		c.Do(ctx)
		if c.Op != driver.OpGet && c.Current != nil && owns(c.Current, c.Record) {
			c.Current = nil
		}
	})
}

// reads changes what the store returned.
func reads(read func(*driver.Record)) *mutation {
	return always(func(ctx context.Context, c *StoreCall) {
		if c.Do(ctx); c.Current != nil {
			read(c.Current)
		}
	})
}

// puts changes when a large result expires.
func puts(until func(time.Time) time.Time) *mutation {
	return always(func(ctx context.Context, c *StoreCall) {
		if c.Op == driver.OpPutChunks {
			c.Record.Expires = until(c.Record.Expires)
		}
		c.Do(ctx)
	})
}

// putsForTheClaim puts a large result until the claim expires, if it does.
func putsForTheClaim(func() time.Time) func(context.Context, *StoreCall) {
	var claim time.Time
	return func(ctx context.Context, c *StoreCall) {
		if c.Op == driver.OpPutChunks && !claim.IsZero() {
			c.Record.Expires = claim
		}
		c.Do(ctx)
		if r := cmp.Or(c.Current, &c.Record); r.State == driver.StateInProgress || r.State == driver.StateUnknown {
			claim = r.Expires
		}
	}
}

// judgesLate replaces a record that expired while it was being read.
func judgesLate(now func() time.Time) func(context.Context, *StoreCall) {
	return func(ctx context.Context, c *StoreCall) {
		c.Do(ctx)
		if met := c.Current; c.Op == driver.OpInsert && met != nil && !met.Expires.IsZero() && !met.Expires.After(now()) {
			c.Now = now()
			c.Do(ctx)
		}
	}
}

// remembers returns the first record that it returned for a key to every insert.
func remembers(func() time.Time) func(context.Context, *StoreCall) {
	var met *driver.Record
	return func(ctx context.Context, c *StoreCall) {
		if c.Op != driver.OpInsert || met == nil {
			c.Do(ctx)
		}
		if c.Op == driver.OpInsert && met == nil {
			met = c.Current
		}
		if c.Op == driver.OpInsert && met != nil {
			c.Current = met.Clone()
		}
	}
}

// putChunks are the large results that checksPartly saw, by version.
var putChunks sync.Map

// checksPartly simulates a guard that checks only the first 4 KB of a large
// result: it replaces everything after them by what was put.
func checksPartly(ctx context.Context, c *StoreCall) {
	if c.Op == driver.OpPutChunks {
		putChunks.Store(c.Record.Version, bytes.Clone(c.Data))
	}
	c.Do(ctx)
	right, ok := putChunks.Load(c.Record.Version)
	if c.Op == driver.OpGetChunks && c.Err == nil && ok && len(right.([]byte)) == len(c.Data) {
		c.Data = append(c.Data[:4<<10:4<<10], right.([]byte)[4<<10:]...)
	}
}

// swallowing runs a handler in its own goroutine and turns a panic or Goexit
// into an error.
func swallowing(h handler) handler {
	return func(ctx context.Context) (value string, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					if err, _ = p.(error); err == nil {
						err = fmt.Errorf("%v", p)
					}
				}
			}()
			err = errPanicked
			value, err = h(ctx)
		}()
		<-done
		return value, err
	}
}

// renamed is a codec with the same name as every other codec.
type renamed struct{ idempotent.Codec }

func (renamed) Name() string { return "one" }
