package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrInjected is the error of a call that failed because of a [Fault]. Its text
// is that of a reset connection, which the AWS SDK retries.
var ErrInjected = errors.New("idempotenttest: injected fault: connection reset by peer")

// Faults injects faults into the calls to a store, see [Faults.Store], or into
// the requests of an AWS SDK, see [Faults.Transport]. Use it to test code under
// an unreliable network:
//
//	faults := &idempotenttest.Faults{Plan: idempotenttest.On(idempotenttest.OpReplace, idempotenttest.LostReply, 1)}
//	guard, err := idempotent.New(faults.Store(memstore.New()))
//
// It counts what it injected, so that a test can check that the faults
// happened. The zero Faults injects nothing. It is safe for concurrent use, but
// set its fields before the first call.
type Faults struct {
	// Plan decides which call gets which fault. Default: no faults.
	Plan Plan

	// Slow delays a SlowRequest or a SlowReply. It can also advance a clock
	// instead, or wait for another goroutine. Default: Pause(100ms).
	Slow func(context.Context, Call)

	planning sync.Mutex // plans one call at a time

	mu       sync.Mutex
	calls    map[Op]int
	injected map[Injection]int
}

// Injection is a fault that was injected into a call of an operation.
type Injection struct {
	Op    Op
	Fault Fault
}

// Injected returns how often each fault was injected. If a call gets no reply
// for another reason, its reply does not count as lost.
func (f *Faults) Injected() map[Injection]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.injected)
}

// Calls returns the number of calls of op, or of all operations if op is empty.
// A repeated call counts once.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Pause returns a function for [Faults.Slow] that waits for d, or until the
// context ends.
func Pause(d time.Duration) func(context.Context, Call) {
	return func(ctx context.Context, _ Call) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// plan counts a call and returns its fault.
func (f *Faults) plan(op Op) (Call, Fault) {
	f.planning.Lock()
	defer f.planning.Unlock()
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[Op]int)
	}
	f.calls[op]++
	f.calls[""]++
	c := Call{Op: op, N: f.calls[""], Nth: f.calls[op]}
	f.mu.Unlock()
	if f.Plan == nil {
		return c, NoFault
	}
	return c, f.Plan(c)
}

func (f *Faults) count(c Call, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.injected == nil {
		f.injected = map[Injection]int{}
	}
	f.injected[Injection{c.Op, fault}]++
}

// wait delays a slow call.
func (f *Faults) wait(ctx context.Context, c Call) {
	if f.Slow == nil {
		Pause(100*time.Millisecond)(ctx, c)
		return
	}
	f.Slow(ctx, c)
}

// line describes how calls of one kind are made, and how they fail.
type line[T any] struct {
	make   func() (T, error)
	heard  func(error) bool       // reports whether an error is a reply
	lose   func(T)                // consumes a reply that is lost
	refuse func(Fault) (T, error) // makes the reply of a refused call
}

// through makes one call of op, with its planned fault.
func through[T any](ctx context.Context, f *Faults, op Op, l line[T]) (T, error) {
	c, fault := f.plan(op)
	var none T
	switch fault {
	case NoFault:
		return l.make()
	case LostRequest:
		f.count(c, fault)
		return none, ErrInjected
	case SlowRequest:
		f.count(c, fault)
		f.wait(ctx, c)
		return l.make()
	case SlowReply:
		v, err := l.make()
		f.count(c, fault)
		f.wait(ctx, c)
		return v, err
	case LostReply, Repeated:
		v, err := l.make()
		if err != nil && !l.heard(err) {
			return v, err // there is no reply to lose
		}
		l.lose(v)
		f.count(c, fault)
		if fault == Repeated {
			return l.make()
		}
		return none, ErrInjected
	default:
		f.count(c, fault)
		return l.refuse(fault)
	}
}

// refused returns the error of a call that a fault refused by its name.
func refused(fault Fault) error { return fmt.Errorf("%s: %w", fault, ErrInjected) }
