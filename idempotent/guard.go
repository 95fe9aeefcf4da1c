// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/timing"
)

// Guard runs the work of each key once. Create it at start-up and share it; it is
// safe for concurrent use.
type Guard struct {
	store  driver.Store
	chunks driver.ChunkStore // nil: large results are stored in their records
	opts   Options
	cache  *cache // nil: no cache

	waiting waiting // requests that wait for a running one

	// hinted records which warnings were already logged.
	hinted struct{ unknown, ignored, notApplied, steps, disabled atomic.Bool }
}

// New returns a guard over store. It returns an error if an option is invalid.
func New(store driver.Store, optFns ...func(*Options)) (*Guard, error) {
	if store == nil {
		return nil, errors.New("idempotent: New: the store is nil")
	}
	opts, err := Options{}.with(optFns)
	if err != nil {
		return nil, err
	}
	return newGuard(store, opts), nil
}

func newGuard(store driver.Store, opts *Options) *Guard {
	chunks, _ := store.(driver.ChunkStore)
	return &Guard{store: store, chunks: chunks, opts: *opts, cache: newCache(opts)}
}

// With returns a guard over the same store with changed options. An adapter uses
// it to validate its options once, when it is built. The new guard has its own
// cache.
func (g *Guard) With(optFns ...func(*Options)) (*Guard, error) {
	g.mustExist("With")
	opts, err := g.opts.with(optFns)
	if err != nil {
		return nil, err
	}
	return newGuard(g.store, opts), nil
}

// mustExist panics with a helpful message if g is nil.
func (g *Guard) mustExist(function string) {
	if g == nil {
		panic("idempotent: " + function + ": the guard is nil; create one with New")
	}
}

// options returns the guard's options with optFns applied, for one operation. The
// guard has one cache for all operations.
func (g *Guard) options(optFns []func(*Options)) (*Options, error) {
	g.mustExist("Do")
	if len(optFns) == 0 {
		return &g.opts, nil
	}
	o, err := g.opts.with(optFns)
	if err != nil {
		return nil, err
	}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"CacheEntries", o.CacheEntries != g.opts.CacheEntries},
		{"CacheBytes", o.CacheBytes != g.opts.CacheBytes},
		{"CacheAge", o.CacheAge != g.opts.CacheAge},
	} {
		if option.set {
			return nil, fmt.Errorf("idempotent: Options.%s is an option of the guard: pass it to New or Guard.With", option.name)
		}
	}
	return o, nil
}

func (o *Options) setDefaults() {
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
		{&o.CacheAge, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 16 << 20
	}
	if o.Codec == nil {
		o.Codec = &jsonCodec{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// leastReserve is the least Options.DeadlineReserve.
const leastReserve = 100 * time.Millisecond

// maxStepNames is the maximum length of all names of Options.Steps together, in bytes.
const maxStepNames = 16 << 10

// maxResultVersion is the maximum length of Options.ResultVersion, in bytes.
const maxResultVersion = 1024

func (o *Options) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Retention", o.Retention},
		{"DownstreamRetention", o.DownstreamRetention},
		{"LeaseMargin", o.LeaseMargin},
		{"DefaultLease", o.DefaultLease},
		{"ReconcileAfter", o.ReconcileAfter},
		{"CacheAge", o.CacheAge},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("idempotent: Options.%s is %s; it must be at least 1ms (or zero for the default)", d.name, d.value)
		}
	}
	if o.DeadlineReserve < leastReserve {
		return fmt.Errorf("idempotent: Options.DeadlineReserve is %s; it must be at least %s (or zero for the default), because half of it is for the answer", o.DeadlineReserve, leastReserve)
	}
	if o.UnresolvedRetention < 0 || o.WaitFor < 0 || o.CacheEntries < 0 || o.CacheBytes < 0 {
		return errors.New("idempotent: Options.UnresolvedRetention, WaitFor, CacheEntries and CacheBytes must not be negative")
	}
	if o.Recovery > driver.Rerun {
		return fmt.Errorf("idempotent: Options.Recovery is %d; use Reconcile, Resume or Rerun", o.Recovery)
	}
	if o.Recovery == Resume && len(o.Steps) == 0 {
		return errors.New("idempotent: Options.Recovery is Resume but Options.Steps is empty; list the step names, or use another recovery for an operation without steps")
	}
	names := 0
	for _, name := range o.Steps {
		if err := checkStepName(name); err != nil {
			return fmt.Errorf("idempotent: Options.Steps: %w", err)
		}
		names += len(name)
	}
	if names > maxStepNames {
		return fmt.Errorf("idempotent: Options.Steps: %d names have %d bytes together; the limit is %d, because each record stores them; a name also covers names that extend it after a slash", len(o.Steps), names, maxStepNames)
	}
	if o.DefaultLease <= o.LeaseMargin {
		return fmt.Errorf("idempotent: Options.DefaultLease (%s) must be longer than Options.LeaseMargin (%s), which it includes", o.DefaultLease, o.LeaseMargin)
	}
	if len(o.ResultVersion) > maxResultVersion || !utf8.ValidString(o.ResultVersion) {
		return fmt.Errorf("idempotent: invalid Options.ResultVersion: want at most %d bytes of valid UTF-8", maxResultVersion)
	}
	return validateCodecName(o.Codec.Name())
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

// warnDisabled logs, once per guard, that requests run unguarded.
func (g *Guard) warnDisabled(ctx context.Context, o *Options) {
	if !g.hinted.disabled.Swap(true) {
		o.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: Options.Disabled is set: every request runs unguarded, and a retry repeats its effects. This is logged once.")
	}
}

// storeFailed returns the caller's error for a failed store call outside a request,
// and reports it.
func (g *Guard) storeFailed(ctx context.Context, id RecordID, op driver.Op, err error) error {
	if errors.Is(err, ErrNoRecord) {
		return fmt.Errorf("%w: %s", ErrNoRecord, short(id))
	}
	err = storeError(id, op, err)
	g.opts.observe(ctx, event.StoreError, id, nil, err)
	return err
}
