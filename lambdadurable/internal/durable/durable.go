// SPDX-License-Identifier: Apache-2.0

// Package durable is a stand-in, for tests, for the parts of the SDK for durable
// functions that the documentation shows
// (github.com/aws/aws-durable-execution-sdk-go/durable). It has the names of the
// SDK and follows its published rules:
//
//   - A step whose result was checkpointed returns it, and does not run.
//   - A step that was interrupted runs again.
//   - A step that returned an error is retried by its strategy: the invocation ends
//     with PENDING, and a later one runs the step again.
//   - An operation that waits returns an error, and the invocation ends with PENDING,
//     whatever the handler does with that error.
package durable

import (
	"context"
	"errors"
	"math"
	"time"
)

// Context is the context of a durable handler.
type Context interface {
	context.Context
	invocation() *invocation
}

// StepContext is the context of a step.
type StepContext interface {
	context.Context
	Attempt() int
}

// RetryAttempt describes an attempt of a step that failed.
type RetryAttempt struct {
	Err     error
	Attempt int // from 1
}

// RetryDecision is what a strategy decides.
type RetryDecision struct {
	Retry bool
	Delay time.Duration
}

// RetryStrategy decides when a step runs again.
type RetryStrategy func(RetryAttempt) RetryDecision

// ExponentialBackoff returns the default strategy, without its jitter: 6 attempts,
// after 5, 10, 20, 40 and 60 s.
func ExponentialBackoff() RetryStrategy {
	return func(a RetryAttempt) RetryDecision {
		delay := min(5*math.Pow(2, float64(a.Attempt-1)), 60)
		return RetryDecision{Retry: a.Attempt < 6, Delay: time.Duration(delay) * time.Second}
	}
}

// StepOption configures a step.
type StepOption func(*RetryStrategy)

// WithRetry sets the strategy of a step.
func WithRetry(s RetryStrategy) StepOption { return func(set *RetryStrategy) { *set = s } }

// Execution is a durable execution, with its checkpoints. It is not safe for
// concurrent use.
type Execution struct {
	Now   func() time.Time
	steps map[string]*step
	waits map[string]time.Time
}

type step struct {
	attempt  int
	done     bool
	result   any
	err      error
	retryAt  time.Time
	retrying bool
}

// Status is the status of an invocation's output.
type Status string

// The statuses of an output.
const (
	Pending   Status = "PENDING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
)

type invocation struct {
	context.Context
	execution *Execution
	suspended time.Time // when it continues; zero: not suspended
}

func (i *invocation) invocation() *invocation { return i }

var errSuspended = errors.New("durable: execution suspended")

// Invoke runs one invocation. If it is suspended, next is when Lambda invokes
// again.
func (e *Execution) Invoke(ctx context.Context, handler func(Context) error) (status Status, next time.Time, err error) {
	i := &invocation{Context: ctx, execution: e}
	err = handler(i)
	switch {
	case !i.suspended.IsZero():
		return Pending, i.suspended, nil
	case err != nil:
		return Failed, time.Time{}, err
	}
	return Succeeded, time.Time{}, nil
}

type stepContext struct {
	context.Context
	attempt int
}

func (s stepContext) Attempt() int { return s.attempt }

// Step runs fn as a step.
func Step[O any](ctx Context, name string, fn func(StepContext) (O, error), opts ...StepOption) (O, error) {
	var none O
	i := ctx.invocation()
	retry := ExponentialBackoff()
	for _, o := range opts {
		o(&retry)
	}
	if i.execution.steps == nil {
		i.execution.steps = map[string]*step{}
	}
	s := i.execution.steps[name]
	if s == nil {
		s = &step{attempt: 1}
		i.execution.steps[name] = s
	}
	switch {
	case s.done && s.err != nil:
		return none, s.err
	case s.done:
		return s.result.(O), nil
	case s.retrying && i.execution.Now().Before(s.retryAt):
		i.suspended = s.retryAt
		return none, errSuspended
	}
	s.retrying = false
	result, err := fn(stepContext{ctx, s.attempt}) // if the process is killed here, the step runs again
	if ctx.Err() != nil {
		return none, ctx.Err() // this process is killed: nothing is checkpointed
	}
	if err == nil {
		s.done, s.result = true, result
		return result, nil
	}
	decision := retry(RetryAttempt{Err: err, Attempt: s.attempt})
	if !decision.Retry {
		s.done, s.err = true, err
		return none, err
	}
	s.attempt++
	s.retrying, s.retryAt = true, i.execution.Now().Add(max(decision.Delay, time.Second))
	i.suspended = s.retryAt
	return none, errSuspended
}

// Wait suspends the execution for d.
func Wait(ctx Context, name string, d time.Duration) error {
	i := ctx.invocation()
	if i.execution.waits == nil {
		i.execution.waits = map[string]time.Time{}
	}
	until, found := i.execution.waits[name]
	if !found {
		until = i.execution.Now().Add(d)
		i.execution.waits[name] = until
	}
	if i.execution.Now().Before(until) {
		i.suspended = until
		return errSuspended
	}
	return nil
}
