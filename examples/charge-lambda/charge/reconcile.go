// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Reconcile returns the [idempotent.ResolveFunc] of charges, for a scheduled
// reconciler. It asks the provider for the charge that was made under the
// record's downstream key.
func Reconcile(provider *Client, now func() time.Time) idempotent.ResolveFunc {
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		charge, err := provider.Find(ctx, r.ID.DownstreamKey())
		switch {
		case err == nil:
			return Evidence(charge)
		case errors.Is(err, ErrNoCharge):
			return NotCharged(r, now()), nil
		}
		return idempotent.Resolution{}, err // asked again later
	}
}

// afterthought is how long after its worker's death a call may still be booked: the
// provider completes a request that it has accepted, even if the client is gone.
const afterthought = 30 * time.Second

// NotCharged returns what follows for a record from the provider's answer that it has
// no charge. The evidence names the attempt that the record had before the question.
func NotCharged(r idempotent.PendingRecord, now time.Time) idempotent.Resolution {
	if left := r.LeaseEnd.Add(afterthought).Sub(now); left > 0 {
		return idempotent.Later(left)
	}
	return idempotent.ProvenNotExecuted(r.Token)
}
