package charge

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// afterthought is how long after its worker's death a call may still be booked:
// what the provider has accepted it works on, whoever waits for it.
const afterthought = 30 * time.Second

// Reconcile returns the [idempotent.ResolveFunc] of charges, for a reconciler on
// a schedule: it asks the provider for the charge that was made under the
// record's downstream key. If there is none, its evidence names the attempt that
// the record showed before it asked.
func Reconcile(provider *Client, now func() time.Time) idempotent.ResolveFunc {
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		charge, err := provider.Find(ctx, r.ID.DownstreamKey())
		switch {
		case err == nil:
			return lambdahttp.Resolved(created(charge)), nil
		case !errors.Is(err, ErrNoCharge):
			return idempotent.Resolution{}, err
		}
		if left := r.LeaseEnd.Add(afterthought).Sub(now()); left > 0 {
			return idempotent.Later(left), nil
		}
		return idempotent.ProvenNotExecuted(r.Token), nil
	}
}
