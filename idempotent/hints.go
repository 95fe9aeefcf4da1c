// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/logs"
)

// hint logs, once per guard and kind, that the guard ignored a declaration in a
// handler's error, or that an error without a declaration left the record
// unknown. It logs the text of an error of this toolkit, and only the type of
// another, because its text may contain a secret.
func (g *Guard) hint(ctx context.Context, o *Options, r *driver.Record, out outcome, err error) {
	switch {
	case out.reason != driver.ReasonNotExecuted && reachesNotExecuted(err):
		g.warn(ctx, o, &g.hinted.ignored, r.ID, err,
			"idempotent: the idempotent.NotExecuted in a handler's error was ignored: it counts only as the outermost error of the handler itself, "+
				"before any step has begun. Without a step, return idempotent.NotExecuted(err) as it is; after a step, return err. This is logged once.")
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
