// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// brokenGuards are faults in a guard.
var brokenGuards = []broken{
	{name: "A lease has no margin", guard: &mutation{options: func(o *idempotent.Options) {
		o.LeaseMargin = time.Millisecond
	}}, caught: []string{"FM15_HandlerIgnoresItsDeadline", "FM18_SkewAroundTheLeaseEnd", "FM18_SkewAroundTheExpiry"}},
	{name: "Every lease has the default length", guard: &mutation{options: func(o *idempotent.Options) {
		o.DefaultLease = 15 * time.Minute
	}}, caught: []string{"FM17_NoDeadline"}},
	{name: "Every lease has expired", guard: &mutation{calls: reads(func(r *driver.Record) {
		r.LeaseEnd = time.UnixMilli(1).UTC()
	})}, caught: []string{"FM03_RetryUnderTheSameRequestID", "FM47_WebhookWhileTheHandlerRuns", "FM48_NotExecutedWhileTheWorkerMayLive", "FM68_ForgetWhileTheHandlerRuns", "FM15_HandlerIgnoresItsDeadline"}},
	{name: "A run does not announce itself", guard: &mutation{calls: writes(func(r *driver.Record) error {
		r.Announced = false
		return nil
	})}, caught: []string{"FM11_KilledAtItsDeadline"}},
	{name: "The invocation has no deadline", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		return context.WithoutCancel(ctx), key, h
	}}, caught: []string{"FM16_NoTimeAtEntry"}},
	{name: "The deadline is two seconds late", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		if deadline, ok := ctx.Deadline(); ok {
			ctx = invocation{ctx, deadline.Add(2 * time.Second)}
		}
		return ctx, key, h
	}}, caught: []string{"FM37_OwnDeadline"}},
	{name: "A caller's cancellation is not noticed", guard: &mutation{
		options: hasty,
		request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
			deadline, _ := ctx.Deadline()
			return invocation{context.WithoutCancel(ctx), deadline}, key, h
		},
	}, caught: []string{"FM37_CallerGoesAway"}},
	{name: "The clock does not advance", guard: &mutation{options: func(o *idempotent.Options) {
		at := o.Now()
		o.Now = func() time.Time { return at }
	}}, caught: []string{"FM38_CacheKnowsTheExpiry", "FM65_ClaimTookLongerThanTheLease", "FM65_ClaimLeftLessThanTheReserve"}},

	{name: "Every operation runs again", guard: &mutation{options: func(o *idempotent.Options) {
		if o.Recovery == idempotent.Reconcile {
			o.Recovery = idempotent.Rerun
		}
	}}, caught: []string{
		"FM02_InsertGivenUp_NotReleased", "FM04_OwnRecordBecameUnknownMeanwhile", "FM09_CompletionRejected",
		"FM10_CrashBeforeCompletion", "FM11_CrashAfterTheClaim", "FM12_CrashBetweenEffectAndReturn",
		"FM31_PanicAfterTheEffect", "FM31_PanicProvesNothing", "FM32_LyingNotExecutedAfterAStep", "FM35_ChunksWrittenAndTheCompletionLost",
		"FM37_TwinCrashes", "FM56_StoreDownAfterTheClaim", "FM59_CrashedNeverExpires",
	}},
	{name: "Every attempt has the same token", guard: &mutation{calls: writes(func(r *driver.Record) error {
		r.Owner = driver.Owner{1}
		return nil
	})}, caught: []string{"FM48_NotExecutedNamesAnAttempt", "FM68_WrongOutcomeForgotten"}},
	{name: "Every outcome expires at the end of the lease", guard: &mutation{calls: writes(func(r *driver.Record) error {
		if r.Expires.Before(r.LeaseEnd) {
			r.Expires = r.LeaseEnd
		}
		return nil
	})}, caught: []string{"FM18_ShortRetentionIsHonoured"}},
	{name: "NotExecuted is ignored", guard: &mutation{calls: writes(func(r *driver.Record) error {
		if r.Reason == driver.ReasonNotExecuted {
			r.State, r.Reason = driver.StateUnknown, driver.ReasonHandlerError
		}
		return nil
	})}, caught: []string{"FM32_LyingNotExecuted", "FM33_SimultaneousTakeovers"}},
	{name: "An abandoned claim is not released", guard: &mutation{calls: writes(func(r *driver.Record) error {
		if r.Reason == driver.ReasonReleased || r.Reason == driver.ReasonNoTime {
			return ErrInjected
		}
		return nil
	})}, caught: []string{"FM02_InsertGivenUp_Released", "FM65_ClaimTookLongerThanTheLease"}},
	{name: "A claim is recognised by its request id", guard: &mutation{calls: owns(func(met *driver.Record, r driver.Record) bool {
		return met.RequestID != "" && met.RequestID == r.RequestID
	})}, caught: []string{"FM03_RetryUnderTheSameRequestID"}},
	{name: "A claim is recognised by its owner", guard: &mutation{calls: owns(func(met *driver.Record, r driver.Record) bool {
		return met.Owner == r.Owner
	})}, caught: []string{"FM04_OwnRecordBecameUnknownMeanwhile"}},
	{name: "Every request has the same fingerprint", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		key.Fingerprint = idempotent.FingerprintBytes(nil)
		return ctx, key, h
	}}, caught: []string{"FM06_OtherRequestWhileInProgress", "FM07_OtherRequestAfterCompletion", "FM38_CacheBindsThePayload"}},
	{name: "The expiry is checked after the insert", guard: &mutation{calls: judgesLate}, caught: []string{"FM66_ExpiryBetweenInsertAndJudgement"}},

	{name: "A panic or Goexit of the handler is swallowed", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		return ctx, key, swallowing(h)
	}}, caught: []string{
		"FM31_PanicProvesNothing", "FM31_PanicAfterTheEffect", "FM31_PanicWithAFinalError", "FM31_PanicUnderRerun", "FM31_GoroutineEnds",
	}},
	{name: "A handler's context carries no execution", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		return ctx, key, func(ctx context.Context) (string, error) {
			return idempotent.Do(ctx, unguarded, key, h)
		}
	}}, caught: []string{"FM28_ResumeAfterACrash", "FM32_LyingNotExecutedAfterAStep", "FM64_LeakedGoroutine"}},
	{name: "Steps are not stored", guard: &mutation{calls: writes(func(r *driver.Record) error {
		r.Steps = nil
		return nil
	})}, caught: []string{"FM28_ResumeAfterACrash", "FM29_InterruptedAtMostOnce", "FM30_UnknownRecoveryPoint"}},

	{name: "Unresolved records expire", guard: &mutation{options: func(o *idempotent.Options) {
		o.UnresolvedRetention = 24 * time.Hour
	}}, caught: []string{"FM59_UnknownNeverExpires", "FM59_CrashedNeverExpires", "FM59_UnknownUnderRerunNeverExpires"}},
	{name: "UnresolvedRetention is ignored", guard: &mutation{options: func(o *idempotent.Options) {
		o.UnresolvedRetention = 0
	}}, caught: []string{"FM59_UnlessItWasAskedFor"}},

	{name: "Contradictions are not reported", guard: &mutation{options: func(o *idempotent.Options) {
		all := o.Observer
		o.Observer = event.ObserverFunc(func(ctx context.Context, e event.Event) {
			if e.Kind != event.Contradicted {
				all.Observe(ctx, e)
			}
		})
	}}, caught: []string{
		"FM46_TwoReconcilers_TwoResults", "FM46_TwoReconcilers_NothingThenResult", "FM47_WebhookBeforeTheOwner_OtherResult",
		"FM47_WebhookBeforeTheOwner_OwnerFails", "FM61_NotExecutedButItWas", "FM61_NotExecutedButNobodyKnows",
	}},
	{name: "Evidence overrides an outcome", guard: &mutation{calls: reads(func(r *driver.Record) {
		if r.State == driver.StateCompleted {
			r.State = driver.StateUnknown
		}
	})}, caught: []string{"FM46_TwoReconcilers_ResultThenNothing", "FM46_TheSameEvidenceTwice"}},

	{name: "An outcome without its result is not stored", guard: &mutation{calls: writes(func(r *driver.Record) error {
		if r.Encoding == driver.EncodingOmitted {
			return ErrInjected
		}
		return nil
	})}, caught: []string{"FM34_NoTimeForAllOfIt"}},
	{name: "A large result is verified by its first 4 KB only", guard: &mutation{calls: always(checksPartly)}, caught: []string{"FM35_ChunkDeletedOrAltered"}},
	{name: "A large result never expires", guard: &mutation{calls: puts(func(time.Time) time.Time { return time.Time{} })}, caught: []string{"FM35_PiecesOutliveTheRecord", "FM35_CommittedPiecesOutliveTheRecord", "FM35_ResolvedPiecesOutliveTheRecord"}},
	{name: "A large result expires with the claim", guard: &mutation{calls: puts(func(t time.Time) time.Time { return t.Add(-24*time.Hour + lease + time.Minute) })}, caught: []string{"FM35_PiecesOutliveTheRecord", "FM35_CommittedPiecesOutliveTheRecord", "FM35_ResolvedPiecesOutliveTheRecord"}},
	{name: "The codec's name is not checked", guard: &mutation{options: func(o *idempotent.Options) {
		if o.Codec == nil {
			o.Codec = rawCodec{}
		}
		o.Codec = renamed{o.Codec}
	}}, caught: []string{"FM36_OtherCodec"}},
	{name: "ResultVersion is ignored", guard: &mutation{options: func(o *idempotent.Options) {
		o.ResultVersion = ""
	}}, caught: []string{"FM36_OtherResultVersion"}},
	{name: "A Final error is stored as a result", guard: &mutation{calls: writes(func(r *driver.Record) error {
		if r.Encoding == driver.EncodingFinal {
			r.Encoding = "json"
		}
		return nil
	})}, caught: []string{"FM36_FinalErrorsHaveNoVersion"}},

	{name: "There is no cache", guard: &mutation{options: func(o *idempotent.Options) {
		o.CacheEntries = 0
	}}, caught: []string{"FM38_CacheKnowsTheExpiry"}},
	{name: "Cached records do not expire", guard: &mutation{options: func(o *idempotent.Options) {
		o.CacheAge = 24 * time.Hour
	}}, caught: []string{"FM38_CacheAges"}},
	{name: "Every record is cached", guard: &mutation{calls: remembers}, caught: []string{"FM38_OnlyCompletedRecordsAreCached"}},
	{name: "WaitFor is ignored", guard: &mutation{options: func(o *idempotent.Options) {
		o.WaitFor = 0
	}}, caught: []string{"FM37_TwinCompletes", "FM37_TwinCrashes", "FM37_StoreFailsWhileWaiting"}},
}

// unguarded runs every request without a record.
var unguarded, _ = idempotent.New(newShelf(), func(o *idempotent.Options) { o.Disabled = true })

// mutatesCalls is a mutation of the calls between a guard and its store.
type mutatesCalls = func(now func() time.Time) func(context.Context, *StoreCall)

// writes changes a record before it is written, or refuses it.
func writes(write func(*driver.Record) error) mutatesCalls {
	return always(func(ctx context.Context, c *StoreCall) {
		if c.Op == driver.OpInsert || c.Op == driver.OpReplace {
			c.Err = write(&c.Record)
		}
		if c.Err == nil {
			c.Do(ctx)
		}
	})
}

// owns takes a record that a write met for its own.
func owns(owns func(met *driver.Record, r driver.Record) bool) mutatesCalls {
	return always(func(ctx context.Context, c *StoreCall) {
		c.Do(ctx)
		if c.Op != driver.OpGet && c.Current != nil && owns(c.Current, c.Record) {
			c.Current = nil
		}
	})
}

// reads changes what the store returned.
func reads(read func(*driver.Record)) mutatesCalls {
	return always(func(ctx context.Context, c *StoreCall) {
		if c.Do(ctx); c.Current != nil {
			read(c.Current)
		}
	})
}

// puts changes when a large result expires.
func puts(until func(time.Time) time.Time) mutatesCalls {
	return always(func(ctx context.Context, c *StoreCall) {
		if c.Op == driver.OpPutChunks {
			c.Record.Expires = until(c.Record.Expires)
		}
		c.Do(ctx)
	})
}

func always(f func(context.Context, *StoreCall)) mutatesCalls {
	return func(func() time.Time) func(context.Context, *StoreCall) { return f }
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
