// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Resolver finds out the result of a charge with an unknown outcome. It is safe for
// concurrent use.
type Resolver struct {
	Guard    *idempotent.Guard
	Store    driver.Store // the store of the guard
	Provider *charge.Client
	Now      func() time.Time // default: time.Now
}

// The results of [Resolver.Resolve].
const (
	Completed   = "completed"    // the customer was charged; retries get the 201
	NotExecuted = "not_executed" // nothing was charged; the key may run again
)

// Resolve asks the provider about the record's charge, settles the record with the
// answer, and returns the resolution. A repeated call is not an error.
//
// The error is [idempotent.ErrNoRecord], [idempotent.InProgressError] while the
// charge may still be in progress, [idempotent.StaleEvidenceError] if another
// attempt began while the provider was asked, [idempotent.SettledError] if the
// record has an outcome that is not in the provider's ledger, such as a declined
// card, [idempotent.StoreError], or the provider's. With any of them, no change is
// known to have happened.
func (r *Resolver) Resolve(ctx context.Context, id idempotent.RecordID) (resolution string, err error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	// Read the record first: the provider's answer is evidence about the attempt in
	// this record, and not about a later one.
	record, err := r.Store.Get(ctx, id)
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "", err
	case err != nil:
		return "", &idempotent.StoreError{RecordID: id, Op: driver.OpGet, Err: err}
	}
	if running := record.LeaseEnd.Sub(now()); record.State == driver.StateInProgress && running > 0 {
		return "", &idempotent.InProgressError{RecordID: id, RetryAfter: running, Until: record.LeaseEnd, Ref: record.Ref}
	}
	found, err := r.Provider.Find(ctx, id.DownstreamKey())
	switch {
	case errors.Is(err, charge.ErrNoCharge):
		return NotExecuted, r.Guard.Resolve(ctx, id, idempotent.ProvenNotExecuted(record.Token()))
	case err != nil:
		return "", err
	}
	evidence, err := charge.Evidence(found)
	if err != nil {
		return "", err
	}
	return Completed, r.Guard.Resolve(ctx, id, evidence)
}
