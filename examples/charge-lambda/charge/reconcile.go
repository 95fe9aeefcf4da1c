// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// afterthought is how long after its worker's death a call may still be booked:
// the provider completes a request that it has accepted, even if the client is
// gone.
const afterthought = 30 * time.Second

// Reconcile returns the [idempotent.ResolveFunc] of charges, for a scheduled
// reconciler. It asks the provider for the charge that was made under the
// record's downstream key. If there is no charge, the evidence names the attempt
// in the record as it was before the request to the provider.
func Reconcile(provider *Client, now func() time.Time) idempotent.ResolveFunc {
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		charge, err := provider.Find(ctx, r.ID.DownstreamKey())
		switch {
		case err == nil:
			return Evidence(charge)
		case !errors.Is(err, ErrNoCharge):
			return idempotent.Resolution{}, err
		}
		if left := r.LeaseEnd.Add(afterthought).Sub(now()); left > 0 {
			return idempotent.Later(left), nil
		}
		return idempotent.ProvenNotExecuted(r.Token), nil
	}
}
