package charge

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// Resolver finds out what became of a charge whose outcome is unknown. It is safe
// for concurrent use.
type Resolver struct {
	Guard    *idempotent.Guard
	Store    driver.Store // the guard's
	Provider *Client
	Now      func() time.Time // default: time.Now
}

// The resolutions that [Resolver.Resolve] names.
const (
	Completed   = "completed"    // the customer was charged; retries get the 201
	NotExecuted = "not_executed" // nothing was charged; the key may run again
)

// RecordIDOf returns the id of the record of a client's Idempotency-Key.
func RecordIDOf(key string) idempotent.RecordID {
	return idempotent.Key{Operation: Operation, Scope: idempotent.Global, ID: key}.RecordID()
}

// Resolve asks the provider what became of the record's call and settles the
// record by the answer: it returns what it did. Doing it again is no error.
//
// The error is [idempotent.ErrNoRecord], [idempotent.InProgressError] while the
// charge may still be under way, [idempotent.StaleEvidenceError] if another attempt
// began while the provider was asked, [idempotent.SettledError] where the record has
// an outcome that the provider's ledger does not speak of, such as a declined
// card, [idempotent.StoreError], or the provider's. In all of them nothing was
// changed that is known.
func (r *Resolver) Resolve(ctx context.Context, id idempotent.RecordID) (resolution string, err error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	// The record comes first: what the provider says is about the attempt that it
	// names, and about no later one.
	record, err := r.Store.Get(ctx, id)
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "", err
	case err != nil:
		return "", &idempotent.StoreError{RecordID: id, Op: driver.OpGet, Err: err}
	}
	if running := record.LeaseEnd.Sub(now()); record.State == driver.StateInProgress && running > 0 {
		return "", &idempotent.InProgressError{RecordID: id, RetryAfter: running, Ref: record.Ref}
	}
	charge, err := r.Provider.Find(ctx, id.DownstreamKey())
	switch {
	case err == nil:
		return Completed, r.Guard.Resolve(ctx, id, lambdahttp.Resolved(created(charge)))
	case !errors.Is(err, ErrNoCharge):
		return "", err
	}
	return NotExecuted, r.Guard.Resolve(ctx, id, idempotent.ProvenNotExecuted(record.Token()))
}
