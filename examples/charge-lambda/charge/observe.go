// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/once-lambda/once/idempotent/event"
)

// LogEvents returns an observer that logs every event with its record. It never
// logs a key, a payload or an error's text, because these may contain sensitive
// data.
func LogEvents(logger *slog.Logger) event.Observer {
	return event.ObserverFunc(func(ctx context.Context, e event.Event) {
		attrs := []slog.Attr{slog.String("operation", e.Operation)}
		if e.KeyHash != "" {
			attrs = append(attrs, slog.String("key_hash", e.KeyHash), slog.Int("attempt", e.Attempt))
		}
		if e.Reason != "" {
			attrs = append(attrs, slog.String("reason", string(e.Reason)))
		}
		if e.RequestID != "" {
			attrs = append(attrs, slog.String("request_id", e.RequestID))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("error_type", fmt.Sprintf("%T", e.Err)))
		}
		logger.LogAttrs(ctx, slog.LevelInfo, string(e.Kind), attrs...)
	})
}
