// SPDX-License-Identifier: Apache-2.0

package lambdadurable

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// leastRetention is the shortest time for which Lambda has an execution after it
// ended, and so after it was started.
const leastRetention = 24 * time.Hour

// Resolver returns the resolver for an operation that calls [Run] with the result
// type T. It asks Lambda for the execution of a record: by its ARN, or by its name
// if the handler was killed before it recorded the ARN.
//
//   - A result is passed to resolved, which returns the evidence for the record.
//     Nil means [idempotent.Resolved]. Records of lambdahttp contain responses: use
//     lambdahttp.Resolved with the response that the handler would have returned.
//   - A failure is the Final error that Run would have returned.
//   - A running execution is asked about again later.
//   - If Lambda has removed an execution that had started, the record is completed
//     without a result.
//   - If no execution is listed, that proves nothing. A record that was released
//     waits for its next request, which invokes again with the same name. Another
//     one stays unknown.
//
// A released record leaves the list of due records after
// [idempotent.ReconcileOptions].ReleasedFor. Set it to the execution time-out of
// the function if that is longer than 24 h.
func Resolver[T any](f *Function, resolved func(T) idempotent.Resolution) idempotent.ResolveFunc {
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		var s started
		recorded, err := r.Step(ctx, Step, &s)
		if err != nil {
			return idempotent.Resolution{}, err
		}
		if !recorded {
			if s.ARN, err = f.find(ctx, f.ExecutionName(r.ID)); s.ARN == "" {
				return idempotent.Later(0), err
			}
		}
		outcome, err := f.ask(ctx, s.ARN)
		switch {
		case errors.Is(err, errGone) && f.opts.Now().Sub(r.Created) >= leastRetention:
			return idempotent.ResolvedWithoutResult(), nil
		case errors.Is(err, errGone):
			return idempotent.Later(0), nil
		case err != nil:
			return idempotent.Resolution{}, err
		case outcome == nil && !recorded:
			return idempotent.ResolvedStep(Step, s), nil
		case outcome == nil:
			return idempotent.Later(0), nil
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
