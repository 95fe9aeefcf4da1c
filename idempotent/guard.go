// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Guard runs the work of each key once. Create it at start-up and share it; it is
// safe for concurrent use.
type Guard struct {
	store  driver.Store
	chunks driver.ChunkStore // nil: large results are stored in their records
	opts   Options
	cache  *cache // nil: no cache

	// waiting counts the requests that wait for a running one, by key.
	waiting struct {
		mu    sync.Mutex
		count map[RecordID]int
	}

	// hinted records which warnings were already logged.
	hinted struct{ unknown, ignored, notApplied, steps, disabled atomic.Bool }
}

// New returns a guard over store. It returns an error if an option is invalid.
func New(store driver.Store, optFns ...func(*Options)) (*Guard, error) {
	if store == nil {
		return nil, errors.New("idempotent: New: the store is nil")
	}
	inShadow, err := shadowSetting()
	if err != nil {
		return nil, err
	}
	opts, err := Options{}.with(append(slices.Clip(optFns), inShadow))
	if err != nil {
		return nil, err
	}
	opts.warnShadow()
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

// options returns the guard's options with optFns applied to its Operation.
func (g *Guard) options(optFns []func(*Operation)) (*Options, error) {
	g.mustExist("Do")
	if len(optFns) == 0 {
		return &g.opts, nil
	}
	return g.opts.with([]func(*Options){func(o *Options) {
		for _, f := range optFns {
			f(&o.Operation)
		}
	}})
}

// warnDisabled logs, once per guard, that requests run unguarded.
func (g *Guard) warnDisabled(ctx context.Context, o *Options) {
	if !g.hinted.disabled.Swap(true) {
		o.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: Options.Disabled is set: every request runs unguarded, and a retry repeats its effects. This is logged once.")
	}
}

// warnShadow logs that the guard that o describes is in shadow mode.
func (o *Options) warnShadow() {
	if o.Shadow {
		o.logger().Warn("idempotent: the guard is in shadow mode: every request runs unguarded, and a retry repeats its effects. " +
			"To enforce, remove Options.Shadow, or the variable " + shadowVariable + ".")
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
