// SPDX-License-Identifier: Apache-2.0

package order

import (
	"context"
	"errors"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The steps. Records in progress contain these names, so do not change them.
const (
	stepAuthorise = "authorise"
	stepOrder     = "order"
	stepReceipt   = "receipt"
)

// InSteps returns the handler that continues where an earlier attempt stopped.
func (s *Shop) InSteps() Handler {
	return idempotent.Wrap(s.Guard, byNumber(InSteps), s.inSteps, func(o *idempotent.Operation) {
		o.Recovery = idempotent.Resume
		o.Steps = []string{stepAuthorise, stepOrder, stepReceipt}
	})
}

func (s *Shop) inSteps(ctx context.Context, r Request) (Confirmation, error) {
	paid, err := idempotent.Step(ctx, stepAuthorise, func(ctx context.Context) (charge.Charge, error) {
		return s.Provider.Charge(ctx, idempotent.DownstreamKey(ctx), r.Request)
	})
	switch {
	case errors.Is(err, charge.ErrDeclined):
		return Confirmation{}, declined
	case err != nil: // retryable: the next request asks again, with the same key
		return Confirmation{}, err
	}
	execution, _ := idempotent.FromContext(ctx) // of the guard in InSteps
	id := ID(execution.RecordID())
	order, err := dynamostore.CommitStep(ctx, stepOrder, id, s.order(id, paid))
	switch {
	case errors.As(err, new(*dynamostore.ConditionError)): // the payment was made, but another order has this id
		return Confirmation{}, idempotent.Unknown(err)
	case err != nil:
		return Confirmation{}, err
	}
	_, err = idempotent.Step(ctx, stepReceipt, func(ctx context.Context) (string, error) {
		return s.Mail(ctx, idempotent.DownstreamKey(ctx), order)
	})
	return Confirmation{Order: order, Charge: paid.ID}, err
}

// ResolveSteps is an [idempotent.ResolveFunc] for InSteps. A dead attempt may have
// paid before the record shows it, and its client may come again only after the
// provider has forgotten the key. So ResolveSteps asks the provider, and records
// the payment: evidence about one step. The next request does the rest of the
// order.
func (s *Shop) ResolveSteps(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	stored := r.Stored()
	authorised, _ := stored.Step(stepAuthorise)
	_, further := stored.Step(stepOrder)
	switch {
	case authorised.By == driver.StepByEvidence && !further:
		// The write that records a step also records those before it. So the dead
		// attempt began nothing after the payment.
		return idempotent.ProvenNotExecuted(r.Token), nil
	case authorised.Finished:
		return idempotent.Later(0), nil
	}
	paid, err := s.Provider.Find(ctx, r.ID.StepKey(stepAuthorise))
	switch {
	case errors.Is(err, charge.ErrNoCharge):
		return charge.NotCharged(r, s.Now()), nil
	case err != nil:
		return idempotent.Resolution{}, err // retried later
	}
	return idempotent.ResolvedStep(stepAuthorise, paid), nil
}
