// SPDX-License-Identifier: Apache-2.0

package lambdadurable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// RunningError reports that the execution has started and has no outcome yet. It
// wraps an [*idempotent.InProgressError], so lambdahttp answers with 409 in-progress,
// or with 202 accepted if its Options.Accepted is set.
type RunningError struct {
	ARN        string        // of the execution
	RetryAfter time.Duration // how long to wait before the next try
	recordID   idempotent.RecordID
}

func (e *RunningError) Error() string {
	return fmt.Sprintf("lambdadurable: the durable execution is running; retry after %s, with the same key", e.RetryAfter)
}

// Unwrap returns the error as the guard returns it for a request in progress.
func (e *RunningError) Unwrap() error {
	return &idempotent.InProgressError{RecordID: e.recordID, RetryAfter: e.RetryAfter}
}

// LogValue returns the text of the error, which contains no key and no payload.
func (e *RunningError) LogValue() slog.Value { return slog.StringValue(e.Error()) }

// Run starts an execution of f once for the record of the guarded handler that ctx
// belongs to, and returns its result. While the execution is running, it returns
// [*RunningError]; the handler returns that error, and the next request with the
// key asks again. An execution that failed, timed out or was stopped is a Final
// error, see [Options.Final]: it is stored and replayed, and the key starts no
// other execution. If Lambda has no such execution a day after the start, the
// outcome is [idempotent.Unknown]: Lambda has removed or never started it.
//
// The input is encoded as JSON; a json.RawMessage is sent as it is. Lambda accepts
// 1 MB, also for the result. T must survive a JSON round trip. A result that is
// null or missing is an error unless T is struct{}, a pointer, map, slice or
// interface.
//
// A handler can start one execution. Everything else that it does with an effect
// belongs into other steps, because it runs again with each request.
func Run[T any](ctx context.Context, f *Function, input any) (T, error) {
	var none T
	s, now, err := f.start(ctx, input)
	if err != nil {
		return none, err
	}
	var outcome *ended
	if !now {
		if outcome, err = f.ask(ctx, s); err != nil {
			return none, err
		}
	}
	switch {
	case outcome == nil:
		own, _ := idempotent.FromContext(ctx)
		return none, &RunningError{ARN: s.ARN, RetryAfter: f.opts.RetryAfter, recordID: own.RecordID()}
	case outcome.result == nil:
		return none, idempotent.Final(f.opts.Final(outcome.failure))
	}
	return decode[T](f, outcome.result)
}

// Start starts an execution of f once for the record of the guarded handler that
// ctx belongs to, and returns its ARN. It does not wait for the outcome: use it for
// a message of a queue, which is done once Lambda has accepted the event. Lambda can
// discard it: give the durable function a failure destination. See [Run] for the
// input.
func Start(ctx context.Context, f *Function, input any) (arn string, err error) {
	s, _, err := f.start(ctx, input)
	return s.ARN, err
}

// start runs the step, and reports whether it started the execution now.
func (f *Function) start(ctx context.Context, input any) (s started, now bool, err error) {
	own, guarded := idempotent.FromContext(ctx)
	switch {
	case !guarded:
		return started{}, false, errors.New("lambdadurable: the context is not that of a guarded handler, so another request could start a second execution: pass the context that the guard passes to the handler, and do not use shadow mode (idempotent.Options.Shadow)")
	case own.Recovery() != idempotent.Resume:
		return started{}, false, errors.New("lambdadurable: the operation does not declare Resume, so a retry could not continue it: set idempotent.Operation.Recovery to Resume, and Steps to lambdadurable.Step")
	}
	payload, err := encode(input)
	if err != nil {
		return started{}, false, fmt.Errorf("lambdadurable: encode the input for %s: %w", f.name, err)
	}
	s, err = idempotent.Step(ctx, Step, func(ctx context.Context) (started, error) {
		now = true
		return f.invoke(ctx, f.ExecutionName(own.RecordID()), payload)
	})
	return s, now, err
}

func encode(input any) ([]byte, error) {
	raw, ok := input.(json.RawMessage)
	switch {
	case !ok:
		return json.Marshal(input)
	case !json.Valid(raw):
		return nil, errors.New("the json.RawMessage is not a JSON document")
	}
	return raw, nil
}

// Resolver returns the resolver for an operation that calls [Run] with the result
// type T. It asks Lambda for the execution of a record: by its ARN, or by its name
// if the handler was killed before it recorded the ARN.
//
//   - A result is passed to resolved, which returns the evidence for the record.
//     Nil means [idempotent.Resolved]. Records of lambdahttp contain responses: use
//     lambdahttp.Resolved with the response that the handler would have returned.
//   - A failure is the Final error that Run would have returned.
//   - A running execution is asked about again later, until its own time-out ends it:
//     [idempotent.ReconcileOptions].ReleasedFor does not apply meanwhile.
//   - If Lambda has no such execution a day after its start, the record becomes
//     unknown: the execution may have succeeded or failed, or never begun.
//   - If no execution is listed, that proves nothing. A record that was released
//     waits for its next request, which invokes again with the same name. Another
//     one stays unknown.
func Resolver[T any](f *Function, resolved func(T) idempotent.Resolution) idempotent.ResolveFunc {
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		var s started
		recorded, err := r.Step(ctx, Step, &s)
		if err != nil {
			return idempotent.Resolution{}, err
		}
		if !recorded {
			if s, err = f.find(ctx, f.ExecutionName(r.ID)); s.ARN == "" {
				return idempotent.Later(0), err
			}
		}
		outcome, err := f.ask(ctx, s)
		switch {
		case err != nil:
			return idempotent.Resolution{}, err
		case outcome == nil && !recorded:
			return idempotent.ResolvedStep(Step, s), nil
		case outcome == nil:
			return idempotent.Resolution{}, &idempotent.InProgressError{RecordID: r.ID}
		case outcome.result == nil:
			return idempotent.ResolvedFinal(f.opts.Final(outcome.failure)), nil
		}
		result, err := decode[T](f, outcome.result)
		switch {
		case err != nil:
			return idempotent.Resolution{}, err
		case resolved == nil:
			return idempotent.Resolved(result), nil
		}
		return resolved(result), nil
	}
}
