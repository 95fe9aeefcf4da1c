package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrInjected is what a call fails with that a [Fault] was planned for. Its
// text is that of a reset connection, which the AWS SDK knows to be worth a
// retry.
var ErrInjected = errors.New("idempotenttest: injected fault: connection reset by peer")

// Faults makes calls go wrong: those to a store, see [Faults.Store], or those
// of an AWS SDK, see [Faults.Transport]. Tests of code that has to survive
// them use it in place of an unreliable network:
//
//	faults := &idempotenttest.Faults{Plan: idempotenttest.On(idempotenttest.OpReplace, idempotenttest.LostReply, 1)}
//	guard, err := idempotent.New(faults.Store(memstore.New()))
//
// It counts what it did, so that a test can tell that it was put to the test.
// The zero Faults lets everything through. It is safe for concurrent use; its
// fields are set before.
type Faults struct {
	// Plan says what goes wrong. Default: nothing.
	Plan Plan

	// Slow takes the time of a SlowRequest or a SlowReply. It may also move a
	// clock instead, or let somebody else go first. Default: Pause(100ms).
	Slow func(context.Context, Call)

	planning sync.Mutex // one call at a time is planned

	mu       sync.Mutex
	calls    map[Op]int
	injected map[Injection]int
}

// Injection is a fault that a call of an operation really met.
type Injection struct {
	Op    Op
	Fault Fault
}

// Injected returns how often which fault really happened. A reply that did not
// come for another reason is not counted as lost.
func (f *Faults) Injected() map[Injection]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.injected)
}

// Calls returns how many calls of op there were, or of all operations if op is
// empty. A repeated call counts once.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Pause returns a function for [Faults.Slow] that takes d, or until the context
// ends.
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

// plan counts a call and says what goes wrong with it.
func (f *Faults) plan(op Op) (Call, Fault) {
	f.planning.Lock()
	defer f.planning.Unlock()
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[Op]int{}
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

// wait takes the time of a slow call.
func (f *Faults) wait(ctx context.Context, c Call) {
	if f.Slow == nil {
		Pause(100*time.Millisecond)(ctx, c)
		return
	}
	f.Slow(ctx, c)
}

// line is how calls of one kind are made, and how they fail.
type line[T any] struct {
	make   func() (T, error)
	heard  func(error) bool       // is this error an answer, rather than none?
	lose   func(T)                // takes an answer that nobody will hear
	refuse func(Fault) (T, error) // answers in place of whom was called
}

// through makes one call of op, with what was planned going wrong.
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

// refused is the error of a call that was refused by the name of a fault.
func refused(fault Fault) error { return fmt.Errorf("%s: %w", fault, ErrInjected) }
