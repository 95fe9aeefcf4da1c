// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"fmt"
	"reflect"
	"slices"

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
// batch must be redelivered, or that the event comes from another source: an answer
// without failures would acknowledge it.
func (b *batchOf[R, T]) run(ctx context.Context, records []R) ([]string, error) {
	s := &b.engine.source
	if records == nil {
		return nil, s.refused("the event has no list of %T", *new(R))
	}
	ctx = timing.Within(ctx, b.engine.now, b.engine.reserved, 0)
	batch := make([]message, len(records))
	for i := range records {
		r := &records[i]
		m := &batch[i]
		m.record, m.keyErr = b.look(ctx, r)
		_, whole := any(*new(T)).(R) // the handler takes the record itself
		m.unread = m.keyErr != nil && !whole
		switch sentBy := m.record.sentBy; {
		case sentBy != "" && !slices.Contains(s.sentBy, sentBy):
			return nil, s.refused("record %d of the event has the eventSource %q", i, sentBy)
		case m.record.ItemID == "" || m.record.EventID == "":
			return nil, s.refused("record %d of the event has no %s", i, s.ids)
		case piped(ctx):
			m.record.ItemID = m.record.EventID
		}
		m.open = func(ctx context.Context) (func(context.Context) error, error) {
			v, err := b.decode(ctx, r, m.record.Body)
			return func(ctx context.Context) error { return b.handler(ctx, v) }, err
		}
	}
	b.engine.run(ctx, batch)
	b.engine.hide(ctx, batch)
	return b.failures(batch, piped(ctx))
}

// refused returns the error for an event of another source or form, which nothing
// acknowledges.
func (s *source) refused(why string, args ...any) error {
	return logs.Error(fmt.Sprintf("lambdabatch: "+s.name+": "+why+"; it comes from another source, so check what invokes the function, and wrap the handler of a pipe of EventBridge in Pipe", args...))
}

// pipeKey is the context key of an event that [Pipe] has read.
type pipeKey struct{}

func piped(ctx context.Context) bool { return ctx.Value(pipeKey{}) != nil }

// look returns the view of r that the rules get. The content of records comes
// from outside: a panic on one record must not fail the others.
func (b *batchOf[R, T]) look(ctx context.Context, r *R) (view Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			b.engine.panicked(ctx, &message{record: view, keyErr: err}, p)
		}
	}()
	if err = b.view(r, &view); err != nil {
		err = &DecodeError{err}
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
		if len(body) == 0 && b.engine.source.kafka && reflect.TypeFor[T]().Kind() == reflect.Pointer {
			return v, nil
		}
		err = timing.Do(ctx, b.engine.now, func(ctx context.Context) error { return b.engine.opts.Decode(ctx, body, &v) })
	}
	return v, err
}

// failures returns the ids that the response names. From a stream Lambda redelivers
// everything from the first failed record on. A pipe redelivers the named records of a
// stream, and a batch of Kafka only as a whole.
func (b *batchOf[R, T]) failures(batch []message, piped bool) ([]string, error) {
	s := &b.engine.source
	ids := []string{}
	named := map[string]bool{}
	failed := 0
	for i := range batch {
		if m := &batch[i]; m.failed {
			failed++
			if id := m.record.ItemID; !named[id] {
				named[id] = true
				ids = append(ids, id)
			}
		}
	}
	if fail := b.engine.opts.Fail; failed > 0 && (fail == FailIfAny || fail == FailIfAll && failed == len(batch) || piped && s.kafka) {
		return nil, logs.Error(fmt.Sprintf("lambdabatch: %d of %d messages of the batch failed; the log has a line for each that was reached", failed, len(batch)))
	}
	if s.streams && !s.kafka && !piped && failed > 0 {
		ids = ids[:1]
	}
	return ids, nil
}
