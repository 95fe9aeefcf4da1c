package lambdabatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// engine applies the rules for every source. It is immutable and safe for
// concurrent use.
type engine struct {
	opts   Options
	source source
	guard  *idempotent.Guard
	now    func() time.Time
}

func newEngine(g *idempotent.Guard, s source, optFns []func(*Options)) (*engine, error) {
	if g == nil {
		return nil, fmt.Errorf("lambdabatch: %s: the guard is nil", s.name)
	}
	e := &engine{source: s}
	for _, f := range optFns {
		e.opts.change(f)
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
		e.opts.Retention, e.opts.unresolved = o.Retention, o.UnresolvedRetention
		if e.opts.Logger == nil {
			e.opts.Logger = o.Logger
		}
	})
	if err == nil {
		err = e.opts.validate(&e.source) // Guard may have shortened a retention
	}
	return e, err
}

// run processes a batch and marks the failed messages. It returns no error: a
// message that is not known to be done has failed.
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
	)
	work := func(i, lane int) {
		done := false
		defer func() { // also when the handler ends its goroutine
			mu.Lock()
			defer mu.Unlock()
			working--
			batch[i].failed = !done
			if !done {
				e.afterFailure(l, lane)
			}
			l.done(lane)
			free.Signal()
		}()
		done = e.one(ctx, &batch[i])
	}
	mu.Lock()
	defer mu.Unlock()
	for {
		if !l.stopped && !e.timeFor(ctx) {
			e.outOfTime(ctx, l)
		}
		i, lane, ok := 0, 0, false
		if working < e.opts.Concurrency {
			i, lane, ok = l.next()
		}
		switch {
		case ok:
			working++
			go work(i, lane)
		case working > 0:
			free.Wait()
		default:
			return
		}
	}
}

// lane returns the lane of a message, which preserves the order of its
// messages: its group or partition, or its unit of work if the source has
// neither. The second of two copies is then a replay, and is not refused
// because the first one is running.
func (e *engine) lane(m *message, i int) string {
	switch {
	case e.source.fifo && !e.opts.PerGroup:
		return ""
	case e.source.fifo, e.source.streams:
		return m.record.Lane
	case m.key.ID == "": // without an id it is no copy of another message
		return fmt.Sprintf("message\x00%d", i)
	default:
		return string(m.key.RecordID())
	}
}

// afterFailure prevents the messages behind a failed one from overtaking it.
func (e *engine) afterFailure(l *lanes, lane int) {
	if e.source.fifo || e.source.streams {
		l.drop(lane)
	}
}

// timeFor reports whether there is time for another message.
func (e *engine) timeFor(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(e.now()) >= e.opts.Reserve
}

// outOfTime stops handing out messages. The log line is the only sign of a
// batch that is too long for its function, because no message failed.
func (e *engine) outOfTime(ctx context.Context, l *lanes) {
	if n := l.left(); n > 0 {
		e.opts.logger().LogAttrs(ctx, slog.LevelWarn, "lambdabatch: out of time, the remaining messages will be redelivered",
			slog.String("operation", e.opts.Operation), slog.Int("messages", n))
	}
	l.stop()
}
