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
	{name: "Every lease has expired", guard: &mutation{store: reads(func(r *driver.Record) {
		r.LeaseEnd = time.UnixMilli(1).UTC()
	})}, caught: []string{"FM03_RetryUnderTheSameRequestID", "FM47_WebhookWhileTheHandlerRuns", "FM48_NotExecutedWhileTheWorkerMayLive", "FM68_ForgetWhileTheHandlerRuns", "FM15_HandlerIgnoresItsDeadline"}},
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
	{name: "Every attempt has the same token", guard: &mutation{store: writes(func(r *driver.Record) error {
		r.Owner = driver.Owner{1}
		return nil
	})}, caught: []string{"FM48_NotExecutedNamesAnAttempt", "FM68_WrongOutcomeForgotten"}},
	{name: "Every outcome expires at the end of the lease", guard: &mutation{store: writes(func(r *driver.Record) error {
		if r.Expires.Before(r.LeaseEnd) {
			r.Expires = r.LeaseEnd
		}
		return nil
	})}, caught: []string{"FM18_ShortRetentionIsHonoured"}},
	{name: "NotExecuted is ignored", guard: &mutation{store: writes(func(r *driver.Record) error {
		if r.Reason == driver.ReasonNotExecuted {
			r.State, r.Reason = driver.StateUnknown, driver.ReasonHandlerError
		}
		return nil
	})}, caught: []string{"FM32_LyingNotExecuted", "FM33_SimultaneousTakeovers"}},
	{name: "An abandoned claim is not released", guard: &mutation{store: writes(func(r *driver.Record) error {
		if r.Reason == driver.ReasonReleased || r.Reason == driver.ReasonNoTime {
			return ErrInjected
		}
		return nil
	})}, caught: []string{"FM02_InsertGivenUp_Released", "FM65_ClaimTookLongerThanTheLease"}},
	{name: "A claim is recognised by its request id", guard: &mutation{store: owns(func(met *driver.Record, r driver.Record) bool {
		return met.RequestID != "" && met.RequestID == r.RequestID
	})}, caught: []string{"FM03_RetryUnderTheSameRequestID"}},
	{name: "A claim is recognised by its owner", guard: &mutation{store: owns(func(met *driver.Record, r driver.Record) bool {
		return met.Owner == r.Owner
	})}, caught: []string{"FM04_OwnRecordBecameUnknownMeanwhile"}},
	{name: "Every request has the same fingerprint", guard: &mutation{request: func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler) {
		key.Fingerprint = idempotent.FingerprintBytes(nil)
		return ctx, key, h
	}}, caught: []string{"FM06_OtherRequestWhileInProgress", "FM07_OtherRequestAfterCompletion", "FM38_CacheBindsThePayload"}},
	{name: "The expiry is checked after the insert", guard: &mutation{store: func(now func() time.Time, s driver.Store) driver.Store {
		return beside(s, lateJudge{s, now})
	}}, caught: []string{"FM66_ExpiryBetweenInsertAndJudgement"}},

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
	{name: "Steps are not stored", guard: &mutation{store: writes(func(r *driver.Record) error {
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
	{name: "Evidence overrides an outcome", guard: &mutation{store: reads(func(r *driver.Record) {
		if r.State == driver.StateCompleted {
			r.State = driver.StateUnknown
		}
	})}, caught: []string{"FM46_TwoReconcilers_ResultThenNothing", "FM46_TheSameEvidenceTwice"}},

	{name: "An outcome without its result is not stored", guard: &mutation{store: writes(func(r *driver.Record) error {
		if r.Encoding == driver.EncodingOmitted {
			return ErrInjected
		}
		return nil
	})}, caught: []string{"FM34_NoTimeForAllOfIt"}},
	{name: "A large result is verified by its first 4 KB only", guard: &mutation{store: func(_ func() time.Time, s driver.Store) driver.Store {
		return partlyChecked{s, s.(driver.ChunkStore)}
	}}, caught: []string{"FM35_ChunkDeletedOrAltered"}},
	{name: "A large result never expires", guard: &mutation{store: func(_ func() time.Time, s driver.Store) driver.Store {
		return putting{s, s.(driver.ChunkStore), func(time.Time) time.Time { return time.Time{} }}
	}}, caught: []string{"FM35_PiecesOutliveTheRecord", "FM35_CommittedPiecesOutliveTheRecord", "FM35_ResolvedPiecesOutliveTheRecord"}},
	{name: "A large result expires with the claim", guard: &mutation{store: func(_ func() time.Time, s driver.Store) driver.Store {
		return putting{s, s.(driver.ChunkStore), func(t time.Time) time.Time { return t.Add(-24*time.Hour + lease + time.Minute) }}
	}}, caught: []string{"FM35_PiecesOutliveTheRecord", "FM35_CommittedPiecesOutliveTheRecord", "FM35_ResolvedPiecesOutliveTheRecord"}},
	{name: "The codec's name is not checked", guard: &mutation{options: func(o *idempotent.Options) {
		if o.Codec == nil {
			o.Codec = rawCodec{}
		}
		o.Codec = renamed{o.Codec}
	}}, caught: []string{"FM36_OtherCodec"}},
	{name: "ResultVersion is ignored", guard: &mutation{options: func(o *idempotent.Options) {
		o.ResultVersion = ""
	}}, caught: []string{"FM36_OtherResultVersion"}},
	{name: "A Final error is stored as a result", guard: &mutation{store: writes(func(r *driver.Record) error {
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
	{name: "Every record is cached", guard: &mutation{store: func(_ func() time.Time, s driver.Store) driver.Store {
		return beside(s, &remembering{Store: s})
	}}, caught: []string{"FM38_OnlyCompletedRecordsAreCached"}},
	{name: "WaitFor is ignored", guard: &mutation{options: func(o *idempotent.Options) {
		o.WaitFor = 0
	}}, caught: []string{"FM37_TwinCompletes", "FM37_TwinCrashes", "FM37_StoreFailsWhileWaiting"}},
}

// unguarded runs every request without a record.
var unguarded, _ = idempotent.New(newShelf(), func(o *idempotent.Options) { o.Disabled = true })

// between wraps the store of a guard and changes what passes between them.
type between struct {
	driver.Store
	write func(r *driver.Record) error                   // called before a write
	owns  func(met *driver.Record, r driver.Record) bool // treats a returned record as r
	read  func(r *driver.Record)                         // changes what the store returned
}

func (b *between) around(r driver.Record, write func(driver.Record) (*driver.Record, error)) (*driver.Record, error) {
	if b.write != nil {
		if err := b.write(&r); err != nil {
			return nil, err
		}
	}
	met, err := write(r)
	if met != nil && b.owns != nil && b.owns(met, r) {
		met = nil
	}
	return b.seen(met), err
}

func (b *between) seen(r *driver.Record) *driver.Record {
	if r != nil && b.read != nil {
		b.read(r)
	}
	return r
}

func (b *between) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return b.around(r, func(r driver.Record) (*driver.Record, error) { return b.Store.Insert(ctx, r, now) })
}

func (b *between) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return b.around(r, func(r driver.Record) (*driver.Record, error) { return b.Store.Replace(ctx, r, was) })
}

func (b *between) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	r, err := b.Store.Get(ctx, id)
	return b.seen(r), err
}

func writes(write func(*driver.Record) error) func(func() time.Time, driver.Store) driver.Store {
	return func(_ func() time.Time, s driver.Store) driver.Store {
		return beside(s, &between{Store: s, write: write})
	}
}

func owns(owns func(*driver.Record, driver.Record) bool) func(func() time.Time, driver.Store) driver.Store {
	return func(_ func() time.Time, s driver.Store) driver.Store {
		return beside(s, &between{Store: s, owns: owns})
	}
}

func reads(read func(*driver.Record)) func(func() time.Time, driver.Store) driver.Store {
	return func(_ func() time.Time, s driver.Store) driver.Store {
		return beside(s, &between{Store: s, read: read})
	}
}

// beside returns records, with the ChunkStore methods of s if s has them.
func beside(s, records driver.Store) driver.Store {
	return struct {
		driver.Store
		driver.ChunkStore
	}{records, s.(driver.ChunkStore)}
}

// lateJudge replaces a record that expired while it was being read.
type lateJudge struct {
	driver.Store
	now func() time.Time
}

func (s lateJudge) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	met, err := s.Store.Insert(ctx, r, now)
	if met != nil && !met.Expires.IsZero() && !met.Expires.After(s.now()) {
		return s.Store.Insert(ctx, r, s.now())
	}
	return met, err
}

// remembering always returns the first record it returned for a key.
type remembering struct {
	driver.Store
	met *driver.Record
}

func (s *remembering) Insert(ctx context.Context, r driver.Record, now time.Time) (met *driver.Record, err error) {
	if s.met == nil {
		if s.met, err = s.Store.Insert(ctx, r, now); s.met == nil {
			return nil, err
		}
	}
	return s.met.Clone(), err
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

// putting changes when a large result expires.
type putting struct {
	driver.Store
	driver.ChunkStore
	until func(time.Time) time.Time
}

func (s putting) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	return s.ChunkStore.PutChunks(ctx, id, v, data, s.until(expires))
}

// partlyChecked simulates a guard that checks only the first 4 KB of a large
// result: it replaces everything after them by what was put.
type partlyChecked struct {
	driver.Store
	driver.ChunkStore
}

// putChunks are the large results of partlyChecked, by version.
var putChunks sync.Map

func (s partlyChecked) PutChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, data []byte, expires time.Time) (int, error) {
	putChunks.Store(v, bytes.Clone(data))
	return s.ChunkStore.PutChunks(ctx, id, v, data, expires)
}

func (s partlyChecked) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	data, err := s.ChunkStore.GetChunks(ctx, id, v, count)
	right, ok := putChunks.Load(v)
	if err != nil || !ok || len(right.([]byte)) != len(data) {
		return data, err
	}
	return append(data[:4<<10:4<<10], right.([]byte)[4<<10:]...), nil
}

// renamed is a codec with the same name as every other codec.
type renamed struct{ idempotent.Codec }

func (renamed) Name() string { return "one" }
