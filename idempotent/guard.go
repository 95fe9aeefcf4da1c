// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
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

// hint logs, once per guard and kind, that the guard ignored a declaration in a
// handler's error, or that an error without a declaration left the record
// unknown. It logs the text of an error of this toolkit, and only the type of
// another, because its text may contain a secret.
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

// warn logs text, once. err may be nil.
func (g *Guard) warn(ctx context.Context, o *Options, once *atomic.Bool, id RecordID, err error, text string) {
	if once.Swap(true) {
		return
	}
	attrs := []slog.Attr{slog.String("operation", id.Operation()), slog.String("key_hash", id.KeyHash())}
	if err != nil {
		attrs = append(attrs, logs.OfError(bare(err))...)
	}
	o.logger().LogAttrs(ctx, slog.LevelWarn, text, attrs...)
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
	g.opts.observe(ctx, event.StoreError, id.Operation(), nil, err)
	return err
}

// remember stores a completed record with its result in the cache.
func (g *Guard) remember(r *driver.Record, out outcome, now time.Time) {
	if g.cache == nil {
		return
	}
	whole := *r
	whole.Result = out.result
	g.cache.put(&whole, now)
}

// inlineResult is the size in bytes up to which a result stays in its record even
// if the store could store it beside: a read of a record is billed by its size,
// and one read unit covers 4 KB.
const inlineResult = 4 << 10

// keepsBeside reports whether to store the result of out beside its record: it is
// large, the store supports it, and it is not stored there yet.
func (g *Guard) keepsBeside(out outcome) bool {
	return len(out.result) > inlineResult && g.chunks != nil && out.chunks.Count == 0
}

// prepare returns out as it is written with the record next: sealed, and with its
// chunks stored.
func (g *Guard) prepare(ctx context.Context, o *Options, next *driver.Record, out outcome) (outcome, error) {
	if out.encoding != driver.EncodingOmitted && !out.sealed {
		var err error
		if out.encoding, out.result, err = seal(ctx, o.Seal, site{record: next.ID}, out.encoding, out.result); err != nil {
			return out, err
		}
		out.sealed = true
	}
	if !g.keepsBeside(out) {
		return out, nil
	}
	return g.putChunks(ctx, next, out)
}

// holds reports whether the completed record r holds the outcome out. It opens a
// sealed result, because sealing equal results gives different bytes. The error
// is a [*StoreError] if a later try may succeed; a result that cannot be read is
// another outcome.
func (g *Guard) holds(ctx context.Context, o *Options, r *driver.Record, out outcome) (bool, error) {
	if out.encoding == driver.EncodingOmitted || !r.Sealed() {
		return out.equals(r), nil
	}
	whole, err := g.withChunks(ctx, r)
	if err == nil {
		opened := *r
		opened.Chunks = driver.Chunks{}
		if opened.Encoding, opened.Result, err = unseal(ctx, o.Seal, site{record: r.ID}, whole.Encoding, whole.Result); err == nil {
			return out.equals(&opened), nil
		}
	}
	if errors.As(err, new(*StoreError)) {
		return false, err
	}
	return false, nil
}

// putChunks stores the result of out beside the record next, which is written
// afterwards, and returns out with a description of the chunks. It uses at most
// two thirds of the time left; the rest is for the record.
func (g *Guard) putChunks(ctx context.Context, next *driver.Record, out outcome) (outcome, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*2/3)
		defer cancel()
	}
	count, err := g.chunks.PutChunks(ctx, next.ID, next.Version, out.result, next.Expires)
	if err != nil {
		return out, storeError(next.ID, driver.OpPutChunks, err)
	}
	out.chunks = driver.Chunks{Count: count, Length: len(out.result), Sum: sha256.Sum256(out.result)}
	return out, nil
}

// withChunks returns r with its result, fetching it if it is stored beside the
// record. The error is [*ReplayUnavailableError] if the result is missing or
// altered, and [*StoreError] if the store fails; a retry may then succeed.
func (g *Guard) withChunks(ctx context.Context, r *driver.Record) (*driver.Record, error) {
	if r.Chunks.Count == 0 || r.Result != nil {
		return r, nil
	}
	unavailable := &ReplayUnavailableError{RecordID: r.ID, Ref: r.Ref}
	if g.chunks == nil {
		unavailable.Reason = "it is stored in chunks, which this store does not support"
		return r, unavailable
	}
	data, err := g.chunks.GetChunks(ctx, r.ID, r.Version, r.Chunks.Count)
	switch {
	case errors.Is(err, ErrNoRecord):
		unavailable.Reason = "a chunk of the stored result is missing"
		return r, unavailable
	case err != nil:
		return r, storeError(r.ID, driver.OpGetChunks, err)
	case !matches(r.Chunks, data):
		unavailable.Reason = "the stored result was altered"
		return r, unavailable
	}
	whole := *r
	whole.Result = data
	return &whole, nil
}
