// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// pace spreads the calls for all segments over the time.
type pace struct {
	units float64       // of a usual call
	every time.Duration // between two usual calls

	mu   sync.Mutex
	next time.Time // of the next call
}

// wait waits until the next call may be made, and reports whether the time of ctx
// is enough for that.
func (p *pace) wait(ctx context.Context) bool {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	delay := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	p.mu.Unlock()
	return timeLeft(ctx) > delay && sleep(ctx, delay) == nil
}

// spent corrects the time of the next call after one that took other units. A reply
// without its units is that of a usual call.
func (p *pace) spent(c *types.ConsumedCapacity) {
	if c == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.next.Add(-time.Duration(float64(p.every) * (1 - unitsOf(c)/p.units)))
}

// timeLeft returns the time until the deadline of ctx, which has one.
func timeLeft(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

// unlessEnded returns the error of a request, or nil if ctx has ended: what that cuts
// off is repeated by the next call.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
