// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/timing"
)

// Options configure a guard: see [New]. The zero value of each field selects its
// documented default.
type Options struct {
	// Operation is what the guard's operations have in common: the default of each, which
	// [Wrap], [Do], [DoOutcome], [Lookup] and the adapters can change for one of them.
	Operation

	// Disabled runs every request unguarded, for example in a test of the handler
	// alone. Default: false.
	Disabled bool

	// Shadow runs every request as if there were no guard, and reports what the guard would
	// have done: one event for each request, such as [event.ShadowRun], to the Observer, or
	// to the Logger without one. A request gets the answer of its handler, whatever the
	// store does. New warns that the guard is in shadow mode.
	//
	// The insert runs beside the handler. When the handler has returned, what is left of it,
	// its outcome and the comparison with an earlier outcome take at most 250 ms, and never
	// more than a tenth of the time left. What does not end by then is [event.ShadowFailed].
	//
	// The guard writes separate records, under Rerun and without steps, and does not change
	// others. A guard that enforces later replays those that are completed, waits for those
	// that are running, and runs again those that failed. There is no cache, Predecessor or
	// WaitFor, and no [Execution]: Commit, CommitStep and package lambdadurable fail, and
	// every [DownstreamKey] is new. Handlers with these are not for it.
	//
	// The variable ONCE_SHADOW, "true" or "false", takes precedence when New is called. New
	// returns an error for another value, and if Disabled is set too. Default: false.
	Shadow bool

	// CacheEntries is how many completed records the guard holds in memory, so that
	// repeated retries need no store call. A cached record is checked like one from
	// the store. Default: no cache.
	CacheEntries int

	// CacheBytes limits the size of the results in the cache. Default: 16 MiB.
	CacheBytes int

	// CacheAge is how long a record stays in the cache. Default: 1 min.
	CacheAge time.Duration

	// Observer receives every event. If it has a method Reconciled(context.Context,
	// Report), as the observers of package telemetry have, it also receives the report of
	// each run of [Reconciler]; so does each part of
	// [event.Observers]. Default: none.
	Observer event.Observer

	// Logger receives warnings for developers, each logged once, and errors that are
	// not reported elsewhere: without an Observer, each failure of the store and each
	// outcome that contradicts a stored one too. Default: slog.Default at the time of
	// the call.
	Logger *slog.Logger

	// RequestID returns an identifier of the request for events and records, for
	// people to read; at most 1,024 bytes of it are stored. A panic of it is logged.
	// Default: no identifier.
	RequestID func(context.Context) string

	// TraceParent returns the W3C trace parent of the request, such as
	// otelonce.TraceParent. It is stored in the record, which becomes 60 bytes larger,
	// and is in the events about it, so that a replay can be linked to the request
	// that ran. Text of another format than version 00 is not stored. A panic of it is
	// logged. Default: not stored.
	TraceParent func(context.Context) string

	// Now returns the current time. It must use the same clock as the context's
	// deadline, and the clocks of all machines must agree to within LeaseMargin.
	// Default: time.Now.
	Now func() time.Time
}

// shadowVariable sets Options.Shadow.
const shadowVariable = "ONCE_SHADOW"

// shadowSetting returns an option that sets Shadow as the environment says.
func shadowSetting() (func(*Options), error) {
	switch value := os.Getenv(shadowVariable); value {
	case "":
		return func(*Options) {}, nil
	case "true", "false":
		return func(o *Options) { o.Shadow = value == "true" }, nil
	default:
		return nil, fmt.Errorf("idempotent: New: the variable %s is %q; set it to true or false, or remove it", shadowVariable, value)
	}
}

// with returns a copy of o with optFns and defaults applied, validated.
func (o Options) with(optFns []func(*Options)) (*Options, error) {
	for _, f := range optFns {
		f(&o)
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &o, nil
}

func (o *Options) setDefaults() {
	o.Operation.setDefaults()
	if o.CacheAge == 0 {
		o.CacheAge = time.Minute
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (o *Options) validate() error {
	if o.Shadow && o.Disabled {
		return errors.New("idempotent: Options.Shadow and Options.Disabled are both set; unset one of them, or the variable " + shadowVariable)
	}
	if o.CacheAge < time.Millisecond {
		return tooShort("Options.CacheAge", o.CacheAge, time.Millisecond)
	}
	if o.CacheEntries < 0 || o.CacheBytes < 0 {
		return errors.New("idempotent: Options.CacheEntries and CacheBytes must not be negative")
	}
	return o.Operation.validate()
}

// Operation is the options of one operation: how it recovers, how long its records are
// stored, how long its requests wait and run, and in which form its results are stored.
// The zero value of each field selects its documented default.
type Operation struct {
	// Recovery is the recovery promise of the operation. Default: Reconcile.
	Recovery Recovery

	// Steps lists the step names of the operation; it is required with [Resume]. A
	// record that contains an undeclared step is not continued, and an undeclared
	// step does not run. A name also covers names that extend it after a slash:
	// "ship" covers "ship/1" and "ship/2". All names together have at most 16 KB, because
	// each record stores them. Default: any step name is allowed.
	Steps []string

	// Retention is how long an outcome is stored and replayed, from the moment it is
	// stored. It must be longer than any client or event source retries. It does not
	// apply to records whose effect may be unresolved: unknown records, records in
	// progress under Reconcile or Resume, and records with steps that wait to be
	// resumed. Those never expire. Default: 24 h.
	Retention time.Duration

	// UnresolvedRetention limits how long a record is stored that Retention does not
	// apply to, from the end of its lease or from when it was settled. After that
	// the key counts as new, whatever happened to the effect. Default: no limit.
	UnresolvedRetention time.Duration

	// DownstreamRetention is how long a provider remembers a downstream key, counted
	// from the first attempt. After that time, a step under Resume that an earlier
	// run may have begun does not run again: the record becomes unknown instead.
	// Default: 24 h.
	DownstreamRetention time.Duration

	// WaitFor is the longest time that a request waits for the outcome of another
	// running request with its key, never past its own deadline. It polls the store
	// with one Get, first after 50 ms, then at growing intervals. At most 100 requests
	// of a guard wait for one key; the others get InProgressError at once. Default:
	// return InProgressError at once.
	WaitFor time.Duration

	// LeaseMargin is added to the context's deadline to get the end of the lease;
	// until then no other request can run the key. It covers a platform that kills
	// late and the difference between two clocks. Lambda has been observed to kill
	// 0.68 s after the deadline (aws-powertools/powertools-lambda-python#4759). With an
	// external extension it may take two seconds: so long is the shutdown phase (Lambda
	// developer guide, "Lambda execution environment lifecycle"). Default: 3 s.
	LeaseMargin time.Duration

	// DeadlineReserve is how long before its deadline the handler's context ends, so
	// that time remains to write the outcome and to answer. It is at most a fifth of
	// the time left, and must be at least 100 ms. A fifth of it, 50 to 100 ms, is for
	// the answer alone: no wait of a request lasts longer. Default: 500 ms.
	DeadlineReserve time.Duration

	// DefaultLease is the length of the lease, including the margin, if the context
	// has no deadline. The handler's context then ends LeaseMargin and
	// DeadlineReserve before the lease. Default: 15 min.
	DefaultLease time.Duration

	// ReconcileAfter is how long after a record became unknown its first
	// reconciliation is due. Callers receive it as the time to wait. Default: 1 min.
	ReconcileAfter time.Duration

	// Predecessor asks another system that did the work of these keys before this
	// guard, and may still do it, such as the one that package dynamostore/powertools
	// knows. The guard calls it after it has claimed a key and before the handler
	// runs. It must keep the other system from beginning the work from then on,
	// because the handler may run next, and it returns what that system has done:
	//   - found is false: it has not begun. The handler runs.
	//   - found is true: its result, or a [Final] error. The guard stores it as if the
	//     handler had returned it, and replays it. A [json.RawMessage] is a result
	//     that is encoded already. Whether it decodes into the handler's type is not
	//     proved, as it is for [Execution.Commit].
	//   - an [*InProgressError] or a [*MismatchError]: the caller gets the error, and
	//     the claim is undone, so that the key is bound to no request.
	//   - an error of [Unknown]: it began and was interrupted. The record becomes
	//     unknown, whatever the Recovery.
	//   - any other error: the caller gets [*StoreError], and the claim is undone.
	//
	// It is called again for every later attempt of the key, and must then return the
	// same. It is not called again for a record that has stored its answer, even after
	// [Guard.Forget]. Its context ends when the handler's does, and it must return then.
	// It must be safe for concurrent use. Default: there is no such system.
	Predecessor func(ctx context.Context, key Key) (result any, found bool, err error)

	// AllowMissingKey runs a request without a key unguarded instead of refusing it
	// with InvalidKeyError. Default: false.
	AllowMissingKey bool

	// Codec encodes and decodes results. Default: JSON.
	Codec Codec

	// Seal encrypts the results, Final errors and results of steps that are stored,
	// and decrypts them for a replay. Unencrypted in the store are the record id,
	// times, step names, references (see [Execution.SetRef]) and request ids, which
	// operators need. Results that were stored without Seal remain readable. A guard
	// without Seal does not replay a sealed result, and accepts no result as evidence
	// about a record whose operation has it. If sealing fails, the outcome is stored
	// without its result. Default: results are stored as encoded.
	Seal Sealer

	// ResultVersion names the shape of the result. It is stored with every result,
	// and a result of another version is not replayed, because a renamed field would
	// decode as its zero value. Change it when the shape changes. It has at most 1,024
	// bytes of valid UTF-8. Default: the empty version.
	ResultVersion string
}

func (o *Operation) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Retention, driver.DefaultRetention},
		{&o.DownstreamRetention, 24 * time.Hour},
		{&o.LeaseMargin, 3 * time.Second},
		{&o.DeadlineReserve, timing.DefaultReserve},
		{&o.DefaultLease, 15 * time.Minute},
		{&o.ReconcileAfter, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.Codec == nil {
		o.Codec = &jsonCodec{}
	}
}

const (
	// leastReserve is the least Operation.DeadlineReserve.
	leastReserve = 100 * time.Millisecond
	// maxStepNames is the maximum length of all names of Operation.Steps together, in bytes.
	maxStepNames = 16 << 10
	// maxResultVersion is the maximum length of Operation.ResultVersion, in bytes.
	maxResultVersion = 1024
)

func (o *Operation) validate() error {
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"Retention", o.Retention, time.Millisecond},
		{"DownstreamRetention", o.DownstreamRetention, time.Millisecond},
		{"LeaseMargin", o.LeaseMargin, time.Millisecond},
		{"DeadlineReserve", o.DeadlineReserve, leastReserve}, // half of it is for the answer
		{"DefaultLease", o.DefaultLease, time.Millisecond},
		{"ReconcileAfter", o.ReconcileAfter, time.Millisecond},
	} {
		if d.value < d.least {
			return tooShort("Operation."+d.name, d.value, d.least)
		}
	}
	if o.UnresolvedRetention < 0 || o.WaitFor < 0 {
		return errors.New("idempotent: Operation.UnresolvedRetention and WaitFor must not be negative")
	}
	if o.Recovery > driver.Rerun {
		return fmt.Errorf("idempotent: Operation.Recovery is %d; use Reconcile, Resume or Rerun", o.Recovery)
	}
	if o.Recovery == Resume && len(o.Steps) == 0 {
		return errors.New("idempotent: Operation.Recovery is Resume but Operation.Steps is empty; list the step names, or use another recovery for an operation without steps")
	}
	names := 0
	for _, name := range o.Steps {
		if err := checkStepName(name); err != nil {
			return fmt.Errorf("idempotent: Operation.Steps: %w", err)
		}
		names += len(name)
	}
	if names > maxStepNames {
		return fmt.Errorf("idempotent: Operation.Steps: %d names have %d bytes together; the limit is %d, because each record stores them; a name also covers names that extend it after a slash", len(o.Steps), names, maxStepNames)
	}
	if o.DefaultLease <= o.LeaseMargin {
		return fmt.Errorf("idempotent: Operation.DefaultLease (%s) must be longer than Operation.LeaseMargin (%s), which it includes", o.DefaultLease, o.LeaseMargin)
	}
	if len(o.ResultVersion) > maxResultVersion || !utf8.ValidString(o.ResultVersion) {
		return fmt.Errorf("idempotent: invalid Operation.ResultVersion: want at most %d bytes of valid UTF-8", maxResultVersion)
	}
	return validateCodecName(o.Codec.Name())
}

// tooShort returns the error of an option that is a duration.
func tooShort(option string, value, least time.Duration) error {
	return fmt.Errorf("idempotent: %s is %s; it must be at least %s (or zero for the default)", option, value, least)
}
