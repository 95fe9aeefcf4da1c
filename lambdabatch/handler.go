// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/timing"
)

// batchOf is a handler for records of type R, whose messages are of type T.
type batchOf[R, T any] struct {
	engine  *engine
	handler func(context.Context, T) error
	view    func(*R, *Message) error
}

// newBatch panics if an argument is invalid, so that a programming error
// surfaces at start-up.
func newBatch[R, T any](g *idempotent.Guard, s source, h func(context.Context, T) error,
	view func(*R, *Message) error, optFns []func(*Options)) *batchOf[R, T] {
	if h == nil {
		panic(fmt.Errorf("lambdabatch: %s: the handler is nil", s.name))
	}
	e, err := newEngine(g, s, optFns)
	if err != nil {
		panic(err)
	}
	return &batchOf[R, T]{e, h, view}
}

// run processes the records and returns the ids of those that must be
// redelivered, in their order, without duplicates. The error means that the whole
// batch must be redelivered, or that the event has no list of records: an answer
// without failures would acknowledge it.
func (b *batchOf[R, T]) run(ctx context.Context, records []R) ([]string, error) {
	if records == nil {
		return nil, logs.Error(fmt.Sprintf("lambdabatch: %s: the event has no list of %T; it comes from another source, so check what invokes the function", b.engine.source.name, *new(R)))
	}
	ctx = timing.Within(ctx, b.engine.now, b.engine.reserved, 0)
	batch := make([]message, len(records))
	for i := range records {
		r := &records[i]
		m := &batch[i]
		m.record, m.keyErr = b.look(ctx, r)
		m.open = func(ctx context.Context) (func(context.Context) error, error) {
			v, err := b.decode(ctx, r, m.record.Body)
			return func(ctx context.Context) error { return b.handler(ctx, v) }, err
		}
	}
	b.engine.run(ctx, batch)
	b.engine.hide(ctx, batch)
	return b.failures(batch)
}

// look returns the view of r that the rules get. The content of records comes
// from outside: a panic on one record must not fail the others.
func (b *batchOf[R, T]) look(ctx context.Context, r *R) (view Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			b.engine.panicked(ctx, &message{record: view, keyErr: err}, p)
		}
	}()
	if err = b.view(r, &view); err == nil && b.engine.opts.Unwrap != nil {
		err = timing.Do(ctx, b.engine.now, func(ctx context.Context) error { return b.engine.opts.Unwrap(ctx, &view) })
	}
	return view, err
}

// decode returns the value that the handler takes.
func (b *batchOf[R, T]) decode(ctx context.Context, r *R, body []byte) (v T, err error) {
	switch p := any(&v).(type) {
	case *R:
		*p = *r
	case *[]byte:
		*p = body
	case *string:
		*p = string(body)
	default:
		if len(body) == 0 && b.engine.source.tombstones && reflect.TypeFor[T]().Kind() == reflect.Pointer {
			return v, nil
		}
		err = timing.Do(ctx, b.engine.now, func(ctx context.Context) error { return b.engine.opts.Decode(ctx, body, &v) })
		if err != nil {
			err = &DecodeError{Err: err}
		}
	}
	return v, err
}

// DecodeError reports a message that cannot be decoded into the handler's type. It is
// redelivered until the source gives up, unless [Options.HandOver] takes it.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string {
	text := "lambdabatch: the message cannot be decoded"
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](e.Err); ok { // its path can have keys of a map, which are content
		text += fmt.Sprintf(": a value is no %v", wrong.Type)
	}
	return text
}

// LogValue returns the text, which contains nothing of the message.
func (e *DecodeError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Unwrap returns the decoder's error, whose text may contain parts of the
// message.
func (e *DecodeError) Unwrap() error { return e.Err }

// UnnamedError reports that a message without an id failed, so that the
// response cannot name it. It is returned to Lambda, which redelivers the whole
// batch.
type UnnamedError struct{ Index int }

func (e *UnnamedError) Error() string {
	return fmt.Sprintf("lambdabatch: record %d of the event failed and has no id; the whole batch is redelivered", e.Index)
}

func (b *batchOf[R, T]) failures(batch []message) ([]string, error) {
	ids := []string{}
	named := map[string]bool{}
	failed := 0
	for i := range batch {
		if batch[i].failed {
			failed++
		}
	}
	if fail := b.engine.opts.Fail; failed > 0 && (fail == FailIfAny || fail == FailIfAll && failed == len(batch)) {
		return nil, logs.Error(fmt.Sprintf("lambdabatch: %d of %d messages of the batch failed; the log has a line for each that was reached", failed, len(batch)))
	}
	for i := range batch {
		m := &batch[i]
		switch id := m.record.ItemID; {
		case !m.failed || named[id]:
		case id == "":
			return nil, &UnnamedError{Index: i}
		default:
			named[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
