// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent/driver"
)

// Lookup returns the outcome that is stored for key, as [Do] would return it to a
// retry, without claiming the key and without running anything. It reads the
// record once, consistently and past the cache of [Options.CacheEntries]; it never
// writes. Pass the options that Do gets for the operation, because they decode the
// result. If key has no fingerprint, Lookup does not compare it.
//
// If there is no outcome, the error says what Do would have met:
//   - [ErrNoRecord]: Do would run, or store the answer of [Operation.Predecessor], which
//     Lookup does not ask. The key is new, or its record has expired. If Outcome.State is
//     [driver.StateRetryable], an earlier request ended without an outcome; under Resume
//     and Rerun it may have had effects.
//   - [*InProgressError]: another request is running.
//   - [*UnresolvedError]: an earlier request may have had its effect.
//
// Any other error is as that of Do: [*FinalError] if that is the outcome,
// [*MismatchError], [*ReplayUnavailableError], [*StoreError] or
// [*InvalidKeyError]. A record can change as soon as it was read: to decide whether
// work may run, call Do.
func Lookup[T any](ctx context.Context, g *Guard, key Key, optFns ...func(*Operation)) (out Outcome[T], err error) {
	o, err := g.options(optFns)
	if err != nil {
		return out, err
	}
	if err := key.validate(); err != nil {
		return out, err
	}
	id := key.RecordID()
	out.RecordID = id
	r, err := g.store.Get(ctx, id)
	if err != nil {
		return out, g.storeFailed(ctx, id, driver.OpGet, err)
	}
	fp := r.Fingerprint
	if key.Fingerprint != (Fingerprint{}) {
		fp = key.storedFingerprint()
	}
	now := o.now()
	v := decide(r, fp, now)
	if v == verdictReinsert {
		return out, fmt.Errorf("%w: %s has expired", ErrNoRecord, short(id))
	}
	out.State = r.State
	switch v {
	case verdictReplay:
	case verdictTakeOver:
		out.Ref = r.Ref
		return out, fmt.Errorf("%w with an outcome: %s ended without one, and the next request with its key runs", ErrNoRecord, short(id))
	case verdictMarkUnknown:
		return out, o.unresolved(r, now, nil)
	default:
		_, err := o.refusal(v, r, fp, now)
		return out, err
	}
	if r, err = g.withChunks(ctx, r); err == nil {
		err = decodeResult(ctx, o, r, &out.Value)
	}
	if err != nil && !errors.As(err, new(*FinalError)) {
		return Outcome[T]{RecordID: id, State: r.State}, err
	}
	out.Replayed = true
	out.takeFrom(r)
	return out, err
}
