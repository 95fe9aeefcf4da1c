// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/timing"
)

// engine applies the rules for every source. It is safe for concurrent use.
type engine struct {
	opts      Options
	source    source
	guard     *idempotent.Guard
	shadow    bool // idempotent.Options.Shadow
	now       func() time.Time
	reserved  time.Duration // idempotent.Operation.DeadlineReserve
	log       *slog.Logger
	notHidden sync.Once // whose log line is written once
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
		if e.opts.Guard != nil {
			e.opts.Guard(&o.Operation)
		}
		if o.Retention >= 0 { // a negative one is refused
			o.Retention = max(o.Retention, e.opts.Redelivery)
		}
		if o.UnresolvedRetention > 0 { // zero: no limit
			o.UnresolvedRetention = max(o.UnresolvedRetention, e.opts.Redelivery)
		}
		e.now, e.shadow = o.Now, o.Shadow
		e.reserved = cmp.Or(o.DeadlineReserve, timing.DefaultReserve)
		if e.log = o.Logger; e.log == nil {
			e.log = slog.Default()
		}
	})
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
	reserve := e.reserve(ctx)
	mu.Lock()
	defer mu.Unlock()
	for {
		if !l.stopped && !e.timeFor(ctx, reserve) {
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

// reserve returns the reserve of a batch that begins now.
func (e *engine) reserve(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline() // without one, there is time
	return min(e.opts.Reserve, deadline.Sub(e.now())/5)
}

// timeFor reports whether there is time for another message.
func (e *engine) timeFor(ctx context.Context, reserve time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(e.now()) >= reserve
}

// outOfTime stops handing out messages. The log line is the only sign of a
// batch that is too long for its function, because no message failed.
func (e *engine) outOfTime(ctx context.Context, l *lanes) {
	if n := l.left(); n > 0 {
		e.log.LogAttrs(ctx, slog.LevelWarn, "lambdabatch: out of time, the remaining messages will be redelivered",
			slog.String("operation", e.opts.Operation), slog.Int("messages", n))
	}
	l.stop()
}

// message is one message of a batch.
type message struct {
	record Message
	// open decodes the message and returns the call of the handler.
	open    func(context.Context) (func(context.Context) error, error)
	key     idempotent.Key
	keyErr  error // why there is no key: the record cannot be read, or has no id
	unread  bool  // the handler cannot get the message, because of keyErr
	err     error // of the attempt
	entered bool  // the handler ran
	failed  bool
}

var (
	errPanicked    error = logs.Error("lambdabatch: reading the message panicked")
	errNotRecorded error = logs.Error("lambdabatch: the handler succeeded but its outcome was not stored")
)

// setKey unwraps a message and computes its key, without the fingerprint. An error is
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
	if e.opts.Unwrap != nil {
		m.unread = true // also if it panics
		m.keyErr = timing.Do(ctx, e.now, func(ctx context.Context) error { return e.opts.Unwrap(ctx, &m.record) })
		m.unread = m.keyErr != nil
	}
	if m.keyErr == nil {
		m.key.ID, m.keyErr = timing.Call(ctx, e.now, func(ctx context.Context) (string, error) { return e.opts.ID(ctx, &m.record) })
	}
	if m.keyErr == nil && m.key.ID == m.record.ItemID && m.key.ID != "" && e.opts.redriven(&e.source) {
		m.keyErr = errItemID
	}
	if m.keyErr == nil {
		m.key.Scope, m.keyErr = timing.Call(ctx, e.now, func(ctx context.Context) (string, error) { return e.opts.Scope(ctx, &m.record) })
	}
	if e.opts.Ref != nil && m.keyErr == nil {
		logs.Shield(ctx, e.log, "lambdabatch: Options.Ref", func() {
			ref, err := timing.Call(ctx, e.now, func(ctx context.Context) (string, error) { return e.opts.Ref(ctx, &m.record) })
			if err != nil {
				e.log.LogAttrs(ctx, slog.LevelWarn, "lambdabatch: message has no reference", append(e.named(m), logs.OfError(err)...)...)
				return
			}
			m.key.Ref = ref
		}, e.named(m)...)
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
	if m.err = e.do(ctx, m); m.err == nil {
		return true
	}
	e.log.LogAttrs(ctx, slog.LevelWarn, "lambdabatch: message failed and will be redelivered",
		append(e.named(m), logs.OfError(m.err)...)...)
	return false
}

// do runs the handler once for the message's key. It returns nil if the message is
// done, or if HandOver took it because it is refused and no retry can change that.
func (e *engine) do(ctx context.Context, m *message) error {
	if e.shadow {
		return e.watched(ctx, m)
	}
	refused, err := e.attempt(ctx, m)
	if !refused || e.opts.HandOver == nil {
		return err
	}
	e.log.LogAttrs(ctx, slog.LevelWarn, "lambdabatch: message is handed over, because no retry can change its refusal", append(e.named(m), logs.OfError(err)...)...)
	return timing.Do(ctx, e.now, func(ctx context.Context) error { return e.opts.HandOver(ctx, &m.record, err) })
}

// attempt is do without HandOver. It reports whether the error refuses the message
// for as long as the code is the same. An error of a function that reads the message can
// pass, unless it is a [*DecodeError].
func (e *engine) attempt(ctx context.Context, m *message) (refused bool, err error) {
	if m.keyErr != nil {
		return lasts(m.keyErr), m.keyErr
	}
	m.key.Fingerprint, err = e.fingerprint(ctx, m)
	if err != nil {
		return lasts(err), err
	}
	work, err := m.open(ctx) // before the claim: an unreadable message leaves no record
	if err != nil {
		return lasts(err), err
	}
	out, err := idempotent.DoOutcome(context.WithValue(ctx, messageKey{}, &m.record), e.guard, m.key, func(ctx context.Context) (struct{}, error) {
		m.entered = true
		return struct{}{}, work(ctx)
	})
	err = settled(out, err)
	return !m.entered && refuses(err), err
}

// watched calls the handler as if there were no guard, and lets the guard find out what it
// would have done with the message: see idempotent.Options.Shadow. A message that the
// handler cannot get fails, as it would without a guard.
func (e *engine) watched(ctx context.Context, m *message) error {
	if m.unread {
		return m.keyErr
	}
	work, err := m.open(ctx)
	if err != nil {
		return err
	}
	key := m.key
	if m.keyErr != nil {
		key.ID = ""
	}
	logs.Shield(ctx, e.log, "lambdabatch: Options.Fingerprint", func() {
		key.Fingerprint, _ = e.fingerprint(ctx, m)
	}, e.named(m)...)
	_, err = idempotent.Do(context.WithValue(ctx, messageKey{}, &m.record), e.guard, key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, work(ctx)
	})
	return err
}

// fingerprint returns the fingerprint of a message.
func (e *engine) fingerprint(ctx context.Context, m *message) (idempotent.Fingerprint, error) {
	return timing.Call(ctx, e.now, func(ctx context.Context) (idempotent.Fingerprint, error) { return e.opts.Fingerprint(ctx, &m.record) })
}

// lasts reports whether err, of a function that reads a message, is about its content, and
// not about a function that ran out of time.
func lasts(err error) bool {
	return errors.As(err, new(*DecodeError)) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// refuses reports whether err, of a guard that did not enter the handler, returns with
// every retry by the same code. A request in progress, a store that failed, or too
// little time do not. Neither does an unresolved record with a cause: other code can
// continue it.
func refuses(err error) bool {
	if unknown, ok := errors.AsType[*idempotent.UnresolvedError](err); ok {
		return unknown.Err == nil
	}
	return errors.As(err, new(*idempotent.MismatchError)) || errors.As(err, new(*idempotent.InvalidKeyError))
}

// settled returns nil if the source may delete the message, because its record covers
// it from now on. An error about another record was returned by the handler and does
// not describe this one.
func settled(out idempotent.Outcome[struct{}], err error) error {
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
	return err
}

// panicked logs a panic without its value, which may contain parts of the
// message.
func (e *engine) panicked(ctx context.Context, m *message, p any) {
	e.log.LogAttrs(ctx, slog.LevelError, "lambdabatch: message panicked and will be redelivered",
		append(e.named(m), slog.String("panic_type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))...)
}

func (e *engine) named(m *message) []slog.Attr {
	attrs := []slog.Attr{slog.String("operation", e.opts.Operation), slog.String("item", m.record.ItemID)}
	if m.keyErr == nil && m.key.ID != "" {
		attrs = append(attrs, slog.String("key_hash", m.key.RecordID().KeyHash()))
	}
	return attrs
}

// lanes hands out the messages of a batch, earliest first. Messages of one lane
// are handed out one after the other. It is not safe for concurrent use.
type lanes struct {
	waiting [][]int // by lane: the messages that are not handed out yet
	idle    order   // lanes with a message to hand out, by their first message
	stopped bool
}

// newLanes returns the messages 0 to len(lane)-1, each in its lane.
func newLanes(lane []string) *lanes {
	l := &lanes{}
	numbers := map[string]int{}
	for i, name := range lane {
		n, found := numbers[name]
		if !found {
			n = len(l.waiting)
			numbers[name] = n
			l.waiting = append(l.waiting, nil)
		}
		l.waiting[n] = append(l.waiting[n], i)
	}
	for n, messages := range l.waiting {
		l.idle = append(l.idle, head{messages[0], n})
	}
	return l // idle is in order, and so a heap
}

// next returns the earliest message whose lane is idle, and its lane, which is
// busy from then on. It returns false if no lane is idle or the lanes are
// stopped.
func (l *lanes) next() (message, lane int, ok bool) {
	if l.stopped || len(l.idle) == 0 {
		return 0, 0, false
	}
	h := heap.Pop(&l.idle).(head)
	l.waiting[h.lane] = l.waiting[h.lane][1:]
	return h.message, h.lane, true
}

// done reports that the last message of that lane was processed.
func (l *lanes) done(lane int) {
	if rest := l.waiting[lane]; len(rest) > 0 {
		heap.Push(&l.idle, head{rest[0], lane})
	}
}

// drop removes the remaining messages of a busy lane.
func (l *lanes) drop(lane int) { l.waiting[lane] = nil }

// left returns how many messages are not handed out yet.
func (l *lanes) left() (n int) {
	for _, messages := range l.waiting {
		n += len(messages)
	}
	return n
}

// stop makes next return false.
func (l *lanes) stop() { l.stopped = true }

// head is the first waiting message of a lane.
type head struct{ message, lane int }

// order is a heap of lanes by their first message.
type order []head

func (o order) Len() int           { return len(o) }
func (o order) Less(i, j int) bool { return o[i].message < o[j].message }
func (o order) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }
func (o *order) Push(x any)        { *o = append(*o, x.(head)) }
func (o *order) Pop() any {
	last := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return last
}
