package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent/driver"
)

// Guard lets the work of a key run once. Make one at start-up and share it; it
// is safe for concurrent use.
type Guard struct {
	store  driver.Store
	chunks driver.ChunkStore // nil: the store keeps large results in their records
	opts   Options
	cache  *cache // nil: none

	// hinted notes what was logged already.
	hinted struct{ unknown, ignored, notApplied, disabled atomic.Bool }
}

// New returns a guard over store. The error says which option is wrong.
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

// With returns a guard over the same store with changed options: for an
// adapter that wants them checked once, when it is built. Its cache is its own.
func (g *Guard) With(optFns ...func(*Options)) (*Guard, error) {
	g.mustExist("With")
	opts, err := g.opts.with(optFns)
	if err != nil {
		return nil, err
	}
	return newGuard(g.store, opts), nil
}

// mustExist panics with a text that helps if g is nil.
func (g *Guard) mustExist(function string) {
	if g == nil {
		panic("idempotent: " + function + ": the guard is nil; make one with New")
	}
}

// options returns the guard's options changed by optFns.
func (g *Guard) options(optFns []func(*Options)) (*Options, error) {
	g.mustExist("Do")
	if len(optFns) == 0 {
		return &g.opts, nil
	}
	return g.opts.with(optFns)
}

// hint logs, once per guard and kind, that what a handler declared with its error
// was ignored, or that an error without a declaration left the record unknown.
// It logs the error's type only: its text may hold a secret.
func (g *Guard) hint(ctx context.Context, o *Options, r *driver.Record, out outcome, err error) {
	switch {
	case out.reason != driver.ReasonNotExecuted && reachesNotExecuted(err):
		g.warn(ctx, o, &g.hinted.ignored, r.ID, err,
			"idempotent: a handler's error holds idempotent.NotExecuted, which was ignored: it counts only as the outermost error of the handler itself, "+
				"before any step has begun. Where no effect can have happened, return idempotent.NotExecuted(err). This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError && errors.Is(err, ErrNotApplied):
		g.warn(ctx, o, &g.hinted.notApplied, r.ID, err,
			"idempotent: a transaction was refused and the handler returned its error, so the record is unknown under Reconcile: the refusal says nothing of what the handler did before. "+
				"If the transaction is the handler's only effect, declare Rerun, or return idempotent.NotExecuted(err). This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError:
		g.warn(ctx, o, &g.hinted.unknown, r.ID, err,
			"idempotent: a handler's error left its record unknown, because an effect may have happened. "+
				"Where none can have, return idempotent.NotExecuted(err), and for a business outcome idempotent.Final(code, message). This is logged once.")
	}
}

func (g *Guard) warn(ctx context.Context, o *Options, once *atomic.Bool, id RecordID, err error, text string) {
	if once.Swap(true) {
		return
	}
	o.logger().LogAttrs(ctx, slog.LevelWarn, text,
		slog.String("operation", id.Operation()),
		slog.String("key_hash", id.KeyHash()),
		slog.String("error_type", fmt.Sprintf("%T", bare(err))))
}

// warnDisabled logs once per guard that requests run unguarded.
func (g *Guard) warnDisabled(ctx context.Context, o *Options) {
	if !g.hinted.disabled.Swap(true) {
		o.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: Options.Disabled is set: every request runs unguarded, and a retry repeats its effects. This is logged once.")
	}
}

var warnedOutside atomic.Bool

// warnOutside logs once per process that a function of a guarded handler was
// called outside of one. A request that a guard lets run unguarded is none.
func warnOutside(ctx context.Context, function string) {
	if _, unguarded := ctx.Value(executionKey{}).(*Execution); unguarded || warnedOutside.Swap(true) {
		return
	}
	slog.LogAttrs(ctx, slog.LevelWarn, "idempotent: "+function+" was called with a context that belongs to no guarded handler: nothing is recorded and the downstream key is random. "+
		"Pass on the context that the handler gets. This is logged once.")
}
