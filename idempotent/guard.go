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

	// hinted is set once a developer was told what NotExecuted is for.
	hinted atomic.Bool
}

// New returns a guard over store. The error says which option is wrong.
func New(store driver.Store, optFns ...func(*Options)) (*Guard, error) {
	if store == nil {
		return nil, errors.New("idempotent: New wants a Store, got nil")
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
	opts, err := g.opts.with(optFns)
	if err != nil {
		return nil, err
	}
	return newGuard(g.store, opts), nil
}

// options returns the guard's options changed by optFns.
func (g *Guard) options(optFns []func(*Options)) (*Options, error) {
	if len(optFns) == 0 {
		return &g.opts, nil
	}
	return g.opts.with(optFns)
}

// hint tells the developer, once per guard, what would have kept a failed
// request from becoming unknown. It logs the error's type only: its text may
// hold what must not be logged.
func (g *Guard) hint(ctx context.Context, o *Options, r *driver.Record, err error) {
	if g.hinted.Swap(true) {
		return
	}
	o.logger().LogAttrs(ctx, slog.LevelWarn,
		"idempotent: a handler's error left its record unknown, because an effect may have happened; "+
			"where none can have, return idempotent.NotExecuted(err), and for a business outcome idempotent.Final(code, message). "+
			"This is logged once.",
		slog.String("operation", r.ID.Operation()),
		slog.String("key_hash", r.ID.KeyHash()),
		slog.String("error_type", fmt.Sprintf("%T", err)))
}
