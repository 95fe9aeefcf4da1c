package lambdabatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/once-lambda/once/idempotent"
)

// message is one message of a batch.
type message struct {
	record Record
	// open decodes the message and returns the call of the handler.
	open   func() (func(context.Context) error, error)
	key    idempotent.Key
	keyErr error // why there is no key: the record cannot be read, or has no id
	failed bool
}

var (
	errPanicked    = errors.New("lambdabatch: reading the message panicked")
	errNotRecorded = errors.New("lambdabatch: the handler succeeded but its outcome was not stored")
)

// setKey computes the key of a message, without its fingerprint. An error is
// reported when the message is processed.
func (e *engine) setKey(ctx context.Context, m *message) {
	m.key.Operation = e.opts.Operation
	if m.keyErr != nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			m.keyErr = errPanicked
			e.panicked(ctx, m, p)
		}
	}()
	if m.key.ID, m.keyErr = e.opts.ID(ctx, &m.record); m.keyErr == nil {
		m.key.Scope, m.keyErr = e.opts.Scope(ctx, &m.record)
	}
}

// one processes a message and reports whether it is done. A panic fails only
// this message; the others keep their outcomes. The guard has recorded the
// panic.
func (e *engine) one(ctx context.Context, m *message) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			e.panicked(ctx, m, p)
		}
	}()
	err := e.do(ctx, m)
	if err == nil {
		return true
	}
	e.opts.logger().LogAttrs(ctx, slog.LevelWarn, "lambdabatch: message failed and will be redelivered",
		append(e.named(m), slog.String("error_type", fmt.Sprintf("%T", err)))...)
	return false
}

// do runs the handler once for the message's key. It returns nil if the message
// is done.
func (e *engine) do(ctx context.Context, m *message) error {
	if m.keyErr != nil {
		return m.keyErr
	}
	var err error
	if m.key.Fingerprint, err = e.opts.Fingerprint(&m.record); err != nil {
		return err
	}
	work, err := m.open() // before the claim: an unreadable message leaves no record
	if err != nil {
		return err
	}
	out, err := idempotent.DoOutcome(ctx, e.guard, m.key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, work(ctx)
	})
	return e.settled(ctx, m, out, err)
}

// settled returns nil if the source may delete the message, because its record
// or HandOver covers it from now on. An error about another record was returned
// by the handler and does not describe this one.
func (e *engine) settled(ctx context.Context, m *message, out idempotent.Outcome[struct{}], err error) error {
	if out.Stored { // a success, or a Final error
		return nil
	}
	if _, final := idempotent.AsFinal(err); out.RecordID == "" && final {
		return nil // it ran unguarded: there is no record
	}
	if err == nil && out.RecordID != "" {
		// The success is not recorded, so the source must redeliver the message. The
		// recovery then decides whether it runs again.
		return errNotRecorded
	}
	if known, ok := errors.AsType[*idempotent.ReplayUnavailableError](err); ok && known.RecordID == out.RecordID && !known.Uncompared {
		return nil // the message is done and needs no result
	}
	// An unresolved record with a cause is not unknown: other code can continue it.
	known, ok := errors.AsType[*idempotent.UnresolvedError](err)
	if ok && known.RecordID == out.RecordID && known.Err == nil && e.opts.HandOver != nil {
		return e.opts.HandOver(ctx, &m.record, known)
	}
	return err
}

// panicked logs a panic without its value, which may contain parts of the
// message.
func (e *engine) panicked(ctx context.Context, m *message, p any) {
	e.opts.logger().LogAttrs(ctx, slog.LevelError, "lambdabatch: message panicked and will be redelivered",
		append(e.named(m), slog.String("panic_type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))...)
}

func (e *engine) named(m *message) []slog.Attr {
	attrs := []slog.Attr{slog.String("operation", e.opts.Operation), slog.String("item", m.record.ItemID)}
	if m.keyErr == nil && m.key.ID != "" {
		attrs = append(attrs, slog.String("key_hash", m.key.RecordID().KeyHash()))
	}
	return attrs
}
