// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/once-lambda/once/idempotent/event"
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
	// not reported elsewhere: without an Observer, each failure of the store too.
	// Default: slog.Default at the time of the call.
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
