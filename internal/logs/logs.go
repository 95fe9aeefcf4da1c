// SPDX-License-Identifier: Apache-2.0

// Package logs decides what a log line contains of an error, and which level a line has
// that must not be dropped.
package logs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
)

// Error is an error of this toolkit whose text contains no key, payload or result.
type Error string

func (e Error) Error() string { return string(e) }

// LogValue returns the text.
func (e Error) LogValue() slog.Value { return slog.StringValue(string(e)) }

// OfError returns the fields of a log line about err: its type as error_type, and
// as error the text of the first error in its tree that implements
// slog.LogValuer. Errors of this toolkit implement it. The text of another error
// may contain a secret, so it is left out.
func OfError(err error) []slog.Attr {
	attrs := []slog.Attr{slog.String("error_type", fmt.Sprintf("%T", err))}
	if text, ok := errors.AsType[loggable](err); ok {
		attrs = append(attrs, slog.Any("error", text))
	}
	return attrs
}

type loggable interface {
	error
	slog.LogValuer
}

// Shield calls f, a function of the user that decides nothing. It recovers a panic of f,
// which would end a process in which no handler recovers it, and logs it without its
// value, which may contain a payload. what names f.
func Shield(ctx context.Context, l *slog.Logger, what string, f func(), attrs ...slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			l.LogAttrs(ctx, slog.LevelError, what+" panicked", append(attrs, slog.String("panic_type", fmt.Sprintf("%T", p)))...)
		}
	}()
	f()
}

// Kept returns the level of a log line that Lambda must not drop: INFO, or the
// level of the function's filter if that is above INFO. It reads the variables
// AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL, which Lambda sets; only lines of
// the format JSON are filtered. Lambda reads a line's level only if the line also has
// a time in RFC 3339 (Lambda developer guide, "Log-level filtering"): without one it
// counts as INFO.
func Kept() string {
	level := os.Getenv("AWS_LAMBDA_LOG_LEVEL")
	if os.Getenv("AWS_LAMBDA_LOG_FORMAT") == "JSON" && (level == "WARN" || level == "ERROR" || level == "FATAL") {
		return level
	}
	return "INFO"
}
