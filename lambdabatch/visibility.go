// SPDX-License-Identifier: Apache-2.0

package lambdabatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/timing"
)

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
