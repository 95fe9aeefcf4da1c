// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

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

const (
	// longestVisibility is the longest time for which a message is hidden. SQS
	// rejects more than 12 hours from its receipt (SQS API reference,
	// "ChangeMessageVisibility"). An hour is left for the time that has passed since
	// then: the batching window, retries of a throttled function, this invocation.
	longestVisibility = 11 * time.Hour

	// longestGrown is where a wait that doubles stops growing.
	longestGrown = time.Hour

	// hideTime is the longest time that hide takes, and hideCalls the number of
	// calls that it makes at the same time.
	hideTime, hideCalls = 2 * time.Second, 10
)

// hide changes the visibility timeout of messages that their records refused, so
// that each returns when its record can have changed, and of those whose handler
// failed. It does not change the
// response: a message whose timeout was not changed returns after the queue's.
func (e *engine) hide(ctx context.Context, batch []message) {
	half, cancel := timing.Half(ctx, e.now)
	defer cancel()
	ctx, stop := context.WithTimeout(half, hideTime)
	defer stop()
	if e.opts.Visibility.Change == nil || ctx.Err() != nil {
		return
	}
	refused := make(chan []message, len(batch)) // each with those behind it
	for i := range batch {
		if e.wait(&batch[i]) > 0 {
			refused <- batch[i:]
		}
	}
	close(refused)
	var calls sync.WaitGroup
	for range min(len(refused), hideCalls) {
		calls.Go(func() {
			for rest := range refused {
				e.hideGroup(ctx, rest)
			}
		})
	}
	calls.Wait()
}

// hideGroup changes the visibility timeout of the first message, and in a FIFO
// queue of those behind it in its group, one after the other. SQS returns no
// message of a group while another one is hidden, so with the queue's own timeout
// they would hold the group for longer.
func (e *engine) hideGroup(ctx context.Context, rest []message) {
	wait := e.wait(&rest[0])
	wait = min(wait+rand.N(wait/10+1), longestVisibility) // messages of one key return one after the other
	seconds := int32((wait + time.Second - 1) / time.Second)
	for i := range rest {
		if i > 0 && !e.source.fifo {
			return
		}
		if m := &rest[i]; m.record.Lane == rest[0].record.Lane && !e.hideOne(ctx, m, seconds) {
			return
		}
	}
}

// wait returns how long to hide m, or zero if neither its record refused it nor its
// handler failed.
func (e *engine) wait(m *message) time.Duration {
	if running, ok := errors.AsType[*idempotent.InProgressError](m.err); ok && running.RecordID == m.key.RecordID() {
		// To the end of the lease, and not RetryAfter, which is an estimate for a
		// caller who waits. Each delivery brings the message nearer to the dead-letter
		// queue, and before that end only the running request can finish its work.
		return max(running.Until.Sub(e.now()), time.Second)
	}
	if unknown, ok := errors.AsType[*idempotent.UnresolvedError](m.err); ok && unknown.RecordID == m.key.RecordID() {
		return m.grown(unknown.RetryAfter) // evidence can exist then, but need not
	}
	if m.failed && m.entered {
		return m.grown(e.opts.Visibility.Backoff)
	}
	return 0
}

// grown returns wait, doubled with each receipt of m up to longestGrown.
func (m *message) grown(wait time.Duration) time.Duration {
	receives, _ := strconv.Atoi(m.record.Event.(*events.SQSMessage).Attributes["ApproximateReceiveCount"])
	for range receives - 1 {
		wait = max(wait, min(2*wait, longestGrown))
	}
	return wait
}

// hideOne changes the visibility timeout of one message, and reports whether it
// did. The first failure is logged, without the text of the error, which may
// contain the receipt handle.
func (e *engine) hideOne(ctx context.Context, m *message, seconds int32) (hidden bool) {
	defer func() {
		if p := recover(); p != nil {
			e.panicked(ctx, m, p)
		}
	}()
	r := m.record.Event.(*events.SQSMessage)
	err := ctx.Err()
	if err == nil {
		err = e.opts.Visibility.Change(ctx, queueURL(r.EventSourceARN), r.ReceiptHandle, seconds)
	}
	if err == nil {
		return true
	}
	reason := slog.String("error_type", fmt.Sprintf("%T", err))
	if api, ok := errors.AsType[interface {
		error
		ErrorCode() string // of the AWS SDK
	}](err); ok {
		reason = slog.String("error_code", api.ErrorCode())
	}
	e.notHidden.Do(func() {
		e.log.LogAttrs(ctx, slog.LevelWarn, "lambdabatch: the visibility timeout of a message was not changed, it returns after the queue's;"+
			" further failures are not logged", append(e.named(m), reason)...)
	})
	return false
}

// queueURL returns the URL of the queue with that ARN.
func queueURL(arn string) string {
	parts := strings.SplitN(arn, ":", 6) // arn, partition, sqs, region, account, name
	if len(parts) != 6 {
		return ""
	}
	suffix := "amazonaws.com"
	if parts[1] == "aws-cn" {
		suffix += ".cn"
	}
	return "https://sqs." + parts[3] + "." + suffix + "/" + parts[4] + "/" + parts[5]
}
