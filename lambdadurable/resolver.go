// SPDX-License-Identifier: Apache-2.0

package lambdadurable

import (
	"context"

	"github.com/once-lambda/once/idempotent"
)

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
