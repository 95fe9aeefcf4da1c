package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Options are given to [New] for all operations of a guard, and to [Wrap], [Do]
// and [DoOutcome] for one. The zero value of each field is its documented
// default.
type Options struct {
	// Recovery is the promise of the operation. Default: Reconcile.
	Recovery Recovery

	// Steps names the steps of the operation, and has to under [Resume]: a
	// record that holds a step this code does not know is not continued, and a
	// step that is not named here does not run. A name covers what follows it
	// behind a slash: "ship" covers "ship/1" and "ship/2". Default: any step, and
	// none under Resume.
	Steps []string

	// Retention is how long an outcome is kept and replayed, from the moment it
	// is stored. It has to be longer than any client or event source retries.
	// Records that money may hang on never expire: unknown ones, those in
	// progress under Reconcile and Resume, and those with a step behind them
	// that wait to be resumed. Default: 24 h.
	Retention time.Duration

	// UnresolvedRetention bounds how long a record is kept that Retention does
	// not bound: from the end of its lease, or from when it was settled. When it
	// ends the key counts as new, whatever happened to the effect. Default: for
	// ever.
	UnresolvedRetention time.Duration

	// DownstreamRetention is how long a provider remembers a downstream key, from
	// the first attempt on. Under Resume a step that an earlier run may have begun
	// is not run again after it: the record becomes unknown instead. Default: 24 h.
	DownstreamRetention time.Duration

	// WaitFor lets a request that finds another one running wait for its
	// outcome, for at most this long, and never past its own deadline. It looks
	// again after 50 ms, then ever less often; each look is one Get. Default:
	// InProgressError at once.
	WaitFor time.Duration

	// LeaseMargin is added to the context's deadline to give the end of the
	// lease: before it nobody else may run the key. It covers the platform that
	// kills late and the difference between two clocks. Lambda was seen to kill
	// 0.68 s after the deadline (aws-powertools/powertools-lambda-python#4759).
	// Default: 2 s.
	LeaseMargin time.Duration

	// DeadlineReserve is how long before its deadline the handler's context
	// ends, so that the outcome can still be written; at most a fifth of the
	// time left. Default: 500 ms.
	DeadlineReserve time.Duration

	// DefaultLease is the length of the lease, margin included, where the
	// context has no deadline. The handler's context then ends LeaseMargin and
	// DeadlineReserve before it. Default: 15 min.
	DefaultLease time.Duration

	// ReconcileAfter is how long after a record became unknown reconciliation
	// is first due, and what a caller is told to wait. Default: 1 min.
	ReconcileAfter time.Duration

	// AllowMissingKey runs a request without a key unguarded instead of
	// refusing it with NoKeyError. Default: refuse.
	AllowMissingKey bool

	// Disabled runs every request unguarded, for example in a test of the
	// handler alone. Default: guarded.
	Disabled bool

	// Codec turns results into bytes and back. Default: JSON.
	Codec Codec

	// ResultVersion names the shape of the result. It is stored with every
	// result, and one of another version is not replayed: a field that was
	// renamed would come back as its zero value. Change it with the shape.
	// Default: the empty version.
	ResultVersion string

	// CacheEntries is how many completed records the guard keeps in memory, so
	// that a storm of retries costs no call. A cached record is judged as one
	// from the store is. The cache belongs to the guard: options of a single
	// Wrap or Do do not change it. Default: no cache.
	CacheEntries int

	// CacheBytes bounds the results in the cache. Default: 16 MiB.
	CacheBytes int

	// CacheAge is how long a record is kept in the cache. Default: 60 s.
	CacheAge time.Duration

	// Observer is told every fact. Default: nobody.
	Observer event.Observer

	// Logger gets what a developer should see once, and what would otherwise be
	// lost. Default: slog.Default at the time of the call.
	Logger *slog.Logger

	// RequestID names the request in events and records, for people. Default:
	// no name.
	RequestID func(context.Context) string

	// Now is the clock. It has to be the clock that the context's deadline is
	// told in, and on all machines the same up to LeaseMargin. Default: time.Now.
	Now func() time.Time
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.Retention, defaultRetention},
		{&o.DownstreamRetention, 24 * time.Hour},
		{&o.LeaseMargin, 2 * time.Second},
		{&o.DeadlineReserve, 500 * time.Millisecond},
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

func (o *Options) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"Retention", o.Retention},
		{"DownstreamRetention", o.DownstreamRetention},
		{"LeaseMargin", o.LeaseMargin},
		{"DeadlineReserve", o.DeadlineReserve},
		{"DefaultLease", o.DefaultLease},
		{"ReconcileAfter", o.ReconcileAfter},
		{"CacheAge", o.CacheAge},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("idempotent: Options.%s is %s; it must be at least 1ms (or zero for the default)", d.name, d.value)
		}
	}
	if o.UnresolvedRetention < 0 || o.WaitFor < 0 || o.CacheEntries < 0 || o.CacheBytes < 0 {
		return errors.New("idempotent: Options.UnresolvedRetention, WaitFor, CacheEntries and CacheBytes must not be negative")
	}
	if o.Recovery > driver.Rerun {
		return fmt.Errorf("idempotent: Options.Recovery is %d; use Reconcile, Resume or Rerun", o.Recovery)
	}
	if o.Recovery == Resume && len(o.Steps) == 0 {
		return errors.New("idempotent: Options.Recovery is Resume and Options.Steps is empty; name the steps, or choose another recovery for an operation that has none")
	}
	for _, name := range o.Steps {
		if err := checkStepName(name); err != nil {
			return fmt.Errorf("idempotent: Options.Steps: %w", err)
		}
	}
	if o.DefaultLease <= o.LeaseMargin {
		return fmt.Errorf("idempotent: Options.DefaultLease (%s) must be longer than Options.LeaseMargin (%s), which is part of it", o.DefaultLease, o.LeaseMargin)
	}
	return validateCodecName(o.Codec.Name())
}

// with returns o changed by optFns, with defaults filled in and validated.
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

// now reads the clock in the form that records keep.
func (o *Options) now() time.Time {
	return o.Now().UTC().Truncate(time.Millisecond)
}

func (o *Options) logger() *slog.Logger {
	if o.Logger != nil {
		return o.Logger
	}
	return slog.Default()
}

// observe tells the observer one fact about record r, which may be nil.
func (o *Options) observe(ctx context.Context, kind event.Kind, operation string, r *driver.Record, err error) {
	if o.Observer != nil {
		o.emit(ctx, o.event(ctx, kind, operation, r, err))
	}
}

func (o *Options) event(ctx context.Context, kind event.Kind, operation string, r *driver.Record, err error) event.Event {
	e := event.Event{Kind: kind, Time: o.now(), Operation: operation, Recovery: o.Recovery, Err: err}
	if r != nil {
		e.KeyHash, e.Attempt, e.Recovery, e.Reason = r.ID.KeyHash(), r.Attempt, r.Recovery, r.Reason
	}
	if o.RequestID != nil {
		e.RequestID = o.RequestID(ctx)
	}
	return e
}

// emit hands the observer e. A panic of the observer cannot change an outcome.
func (o *Options) emit(ctx context.Context, e event.Event) {
	if o.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			o.logger().LogAttrs(ctx, slog.LevelError, "idempotent: the observer panicked",
				slog.String("event", string(e.Kind)), slog.String("operation", e.Operation))
		}
	}()
	o.Observer.Observe(ctx, e)
}
