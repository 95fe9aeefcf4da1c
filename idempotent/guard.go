package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent/driver"
)

// Guard runs the work of each key once. Create it at start-up and share it; it is
// safe for concurrent use.
type Guard struct {
	store  driver.Store
	chunks driver.ChunkStore // nil: large results are stored in their records
	opts   Options
	cache  *cache // nil: no cache

	// hinted records which warnings were already logged.
	hinted struct{ unknown, ignored, notApplied, disabled atomic.Bool }
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

// options returns the guard's options with optFns applied.
func (g *Guard) options(optFns []func(*Options)) (*Options, error) {
	g.mustExist("Do")
	if len(optFns) == 0 {
		return &g.opts, nil
	}
	return g.opts.with(optFns)
}

// hint logs, once per guard and kind, that the guard ignored a declaration in a
// handler's error, or that an error without a declaration left the record
// unknown. It logs only the error's type, because the text may contain a secret.
func (g *Guard) hint(ctx context.Context, o *Options, r *driver.Record, out outcome, err error) {
	switch {
	case out.reason != driver.ReasonNotExecuted && reachesNotExecuted(err):
		g.warn(ctx, o, &g.hinted.ignored, r.ID, err,
			"idempotent: the idempotent.NotExecuted in a handler's error was ignored: it counts only as the outermost error of the handler itself, "+
				"before any step has begun. If no effect can have happened, return idempotent.NotExecuted(err). This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError && errors.Is(err, ErrNotApplied):
		g.warn(ctx, o, &g.hinted.notApplied, r.ID, err,
			"idempotent: a transaction was refused and the handler returned its error, so the record is unknown under Reconcile: the handler may have had other effects before it. "+
				"If the transaction is the handler's only effect, declare Rerun, or return idempotent.NotExecuted(err). This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError:
		g.warn(ctx, o, &g.hinted.unknown, r.ID, err,
			"idempotent: a handler's error left its record unknown, because an effect may have happened. "+
				"If no effect can have happened, return idempotent.NotExecuted(err). For a business outcome, return idempotent.Final(code, message). This is logged once.")
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

// warnDisabled logs, once per guard, that requests run unguarded.
func (g *Guard) warnDisabled(ctx context.Context, o *Options) {
	if !g.hinted.disabled.Swap(true) {
		o.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: Options.Disabled is set: every request runs unguarded, and a retry repeats its effects. This is logged once.")
	}
}

var warnedOutside atomic.Bool

// warnOutside logs, once per process, that function was called outside a guarded
// handler. It does not log for a request that a guard runs unguarded.
func warnOutside(ctx context.Context, function string) {
	if _, unguarded := ctx.Value(executionKey{}).(*Execution); unguarded || warnedOutside.Swap(true) {
		return
	}
	slog.LogAttrs(ctx, slog.LevelWarn, "idempotent: "+function+" was called with a context that is not from a guarded handler: nothing is recorded and the downstream key is random. "+
		"Pass the handler's context. This is logged once.")
}
