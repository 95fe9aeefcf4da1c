package lambdabatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// engine is the rules, for every source. It is immutable and safe for
// concurrent use.
type engine struct {
	opts   Options
	source source
	guard  *idempotent.Guard
	now    func() time.Time
}

func newEngine(g *idempotent.Guard, s source, optFns []func(*Options)) (*engine, error) {
	if g == nil {
		return nil, fmt.Errorf("lambdabatch: %s wants a guard, got nil", s.name)
	}
	e := &engine{source: s}
	for _, f := range optFns {
		f(&e.opts)
	}
	e.opts.setDefaults(&e.source)
	if err := e.opts.validate(&e.source); err != nil {
		return nil, err
	}
	var err error
	e.guard, err = g.With(func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.Retention = recoveries[e.opts.Recovery], e.opts.Steps, e.opts.Retention
		if e.opts.Guard != nil {
			e.opts.Guard(o)
		}
		if e.now = o.Now; e.now == nil {
			e.now = time.Now
		}
		e.opts.Retention = o.Retention
	})
	if err == nil {
		err = e.opts.validate(&e.source) // Guard may have shortened the retention
	}
	return e, err
}

// message is one message on its way.
type message struct {
	record Record
	// open decodes the message and returns the call of the handler.
	open    func() (func(context.Context) error, error)
	key     idempotent.Key
	viewErr error // why the record cannot be looked at
	keyErr  error // why there is no key
	failed  bool
}

// run works on a batch and marks what failed. Nothing that happens in it is an
// error of its own: whatever is not known to be done has failed.
func (e *engine) run(ctx context.Context, batch []message) {
	names := make([]string, len(batch))
	for i := range batch {
		m := &batch[i]
		m.failed = true
		e.setKey(ctx, m)
		names[i] = e.lane(m, i)
	}
	var (
		mu      sync.Mutex
		free    = sync.NewCond(&mu)
		l       = newLanes(names)
		working int
		workers sync.WaitGroup
	)
	mu.Lock()
	defer mu.Unlock()
	for {
		if !e.timeFor(ctx) {
			l.stop()
		}
		i, lane, ok := 0, 0, false
		if working < e.opts.Concurrency {
			i, lane, ok = l.next()
		}
		switch {
		case ok:
			working++
			workers.Go(func() {
				done := e.one(ctx, &batch[i])
				mu.Lock()
				defer mu.Unlock()
				working--
				batch[i].failed = !done
				if !done {
					e.afterFailure(l, lane)
				}
				l.done(lane)
				free.Signal()
			})
		case working > 0:
			free.Wait()
		default:
			return
		}
	}
}

// setKey computes the key of a message, but for its fingerprint. What is wrong
// with it is said when its turn comes.
func (e *engine) setKey(ctx context.Context, m *message) {
	m.key.Operation = e.opts.Operation
	if m.keyErr = m.viewErr; m.keyErr != nil {
		return
	}
	if m.key.ID, m.keyErr = e.opts.ID(ctx, &m.record); m.keyErr == nil {
		m.key.Scope, m.keyErr = e.opts.Scope(ctx, &m.record)
	}
}

// lane returns what a message must not overtake. Two copies of one piece of
// work come one after the other everywhere: the second one is a replay then,
// and not refused because the first one is running.
func (e *engine) lane(m *message, i int) string {
	switch {
	case e.source.fifo && !e.opts.PerGroup:
		return ""
	case e.source.fifo, e.source.streams:
		return m.record.Lane
	case m.keyErr != nil || m.key.ID == "":
		return fmt.Sprintf("message\x00%d", i)
	default:
		return string(m.key.RecordID())
	}
}

// afterFailure keeps what must not overtake a failed message from running.
func (e *engine) afterFailure(l *lanes, lane int) {
	switch {
	case e.source.fifo && !e.opts.PerGroup:
		l.stop()
	case e.source.fifo, e.source.streams:
		l.drop(lane)
	}
}

// timeFor reports whether another message can be begun.
func (e *engine) timeFor(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(e.now()) >= e.opts.Reserve
}

// one works on a message and reports whether it is done with. A panic is this
// message's failure: the others keep their outcomes. The guard has recorded it.
func (e *engine) one(ctx context.Context, m *message) (done bool) {
	defer func() {
		if p := recover(); p != nil {
			e.opts.logger().LogAttrs(ctx, slog.LevelError, "lambdabatch: the handler panicked",
				append(e.named(m), slog.String("panic_type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))...)
		}
	}()
	err := e.do(ctx, m)
	var unresolved *idempotent.UnresolvedError
	if errors.As(err, &unresolved) && e.opts.HandOver != nil {
		err = e.opts.HandOver(ctx, &m.record, unresolved)
	}
	switch err.(type) {
	case nil, *idempotent.FinalError: // as in package idempotent, only the outermost error declares
		return true
	}
	e.opts.logger().LogAttrs(ctx, slog.LevelWarn, "lambdabatch: a message comes again",
		append(e.named(m), slog.String("error_type", fmt.Sprintf("%T", err)))...)
	return false
}

// do runs the handler once for the message's key.
func (e *engine) do(ctx context.Context, m *message) error {
	if m.keyErr != nil {
		return m.keyErr
	}
	var err error
	if m.key.Fingerprint, err = e.opts.Fingerprint(&m.record); err != nil {
		return err
	}
	work, err := m.open() // before the claim: what cannot be read leaves no record
	if err != nil {
		return err
	}
	_, err = idempotent.Do(ctx, e.guard, m.key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, work(ctx)
	})
	return err
}

func (e *engine) named(m *message) []slog.Attr {
	attrs := []slog.Attr{slog.String("operation", e.opts.Operation), slog.String("item", m.record.ItemID)}
	if m.keyErr == nil && m.key.ID != "" {
		attrs = append(attrs, slog.String("key_hash", m.key.RecordID().KeyHash()))
	}
	return attrs
}
