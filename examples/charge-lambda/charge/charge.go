// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"errors"
	"net/http"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// create returns the handler of POST /charges.
func (a *api) create() lambdahttp.JSON[Request, Charge] {
	return lambdahttp.JSON[Request, Charge]{Handle: a.charge, Respond: created}
}

// charge charges a customer. It runs behind the guard, once per key. Its error
// decides what happens to the key.
func (a *api) charge(ctx context.Context, request Request) (Charge, error) {
	charge, err := a.provider.Charge(ctx, idempotent.DownstreamKey(ctx), request)
	switch {
	case err == nil:
		return charge, nil
	case errors.Is(err, ErrDeclined):
		return charge, &lambdahttp.Problem{Status: http.StatusPaymentRequired, Code: "card_declined",
			Detail: "The customer's card was declined. Nothing was charged. To try another card, send a new request with a new key."}
	case errors.Is(err, ErrNotSent):
		return charge, idempotent.NotExecuted(errors.Join(err, &lambdahttp.Problem{Status: http.StatusServiceUnavailable, Code: "provider_unavailable",
			Detail: "The payment provider cannot be reached. Nothing was charged. Repeat the request with the same key."}))
	}
	unconfirmed := &lambdahttp.Problem{Status: http.StatusBadGateway, Code: "charge_unconfirmed",
		Detail: "The payment provider did not confirm the charge, so it is not known whether the customer was charged. The charge is not tried again until that is known. Repeat the request later, with the same key."}
	if ctx.Err() != nil {
		unconfirmed.Status = http.StatusGatewayTimeout
	}
	return charge, idempotent.Unknown(errors.Join(err, unconfirmed))
}

// created completes the response for a charge that was made.
func created(r *lambdahttp.Response, c Charge) {
	r.Status = http.StatusCreated
	r.Header.Set("Location", "/charges/"+c.ID)
}

// Evidence returns the evidence that a charge was made. It has the handler's own
// response, so a client cannot distinguish a charge that the provider's reply
// confirmed from one that its ledger confirmed later.
func Evidence(c Charge) (idempotent.Resolution, error) {
	return lambdahttp.JSON[Request, Charge]{Respond: created}.Resolved(c)
}
