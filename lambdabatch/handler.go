package lambdabatch

import (
	"context"
	"fmt"

	"github.com/once-lambda/once/idempotent"
)

// batchOf is a handler for records of type R, whose messages are of type T.
type batchOf[R, T any] struct {
	engine  *engine
	handler func(context.Context, T) error
	view    func(*R, *Record) error
}

// newBatch panics where a constructor does: a mistake in the program is found
// out at start-up.
func newBatch[R, T any](g *idempotent.Guard, s source, h func(context.Context, T) error, view func(*R, *Record) error, optFns []func(*Options)) *batchOf[R, T] {
	if h == nil {
		panic(fmt.Errorf("lambdabatch: %s wants a handler, got nil", s.name))
	}
	e, err := newEngine(g, s, optFns)
	if err != nil {
		panic(err)
	}
	return &batchOf[R, T]{e, h, view}
}

// run works on the records and returns the ids of those that have to come
// again, in their order, each once. The error says that one of them has none:
// then the whole batch has to.
func (b *batchOf[R, T]) run(ctx context.Context, records []R) ([]string, error) {
	batch := make([]message, len(records))
	for i := range records {
		r := &records[i]
		m := &batch[i]
		m.record, m.keyErr = b.look(ctx, r)
		m.open = func() (func(context.Context) error, error) {
			v, err := b.decode(r, m.record.Body)
			return func(ctx context.Context) error { return b.handler(ctx, v) }, err
		}
	}
	b.engine.run(ctx, batch)
	return failures(batch)
}

// look returns what the rules see of r. Records come from outside: one that
// makes its view panic must not take the others with it.
func (b *batchOf[R, T]) look(ctx context.Context, r *R) (view Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			b.engine.panicked(ctx, &message{record: view, keyErr: err}, p)
		}
	}()
	return view, b.view(r, &view)
}

// decode returns what the handler takes.
func (b *batchOf[R, T]) decode(r *R, body []byte) (v T, err error) {
	switch p := any(&v).(type) {
	case *R:
		*p = *r
	case *[]byte:
		*p = body
	case *string:
		*p = string(body)
	default:
		if err = b.engine.opts.Decode(body, &v); err != nil {
			err = &DecodeError{Err: err}
		}
	}
	return v, err
}

// DecodeError says that a message is not what the handler takes. It comes again
// until its queue gives it up: give the queue a dead-letter queue.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "lambdabatch: the message cannot be decoded" }

// Unwrap returns the decoder's error, whose text may show what is in the
// message.
func (e *DecodeError) Unwrap() error { return e.Err }

// UnnamedError says that a message failed that has no id, so that it cannot be
// named. Returned to Lambda it brings the whole batch again.
type UnnamedError struct{ Index int }

func (e *UnnamedError) Error() string {
	return fmt.Sprintf("lambdabatch: record %d of the event failed and has no id to be named by; the whole batch has to come again", e.Index)
}

func failures(batch []message) ([]string, error) {
	ids := []string{}
	named := map[string]bool{}
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
