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
func (h *handler) create() lambdahttp.JSON[Request, Charge] {
	return lambdahttp.JSON[Request, Charge]{Handle: h.charge, Respond: asCreated}
}

// charge charges a customer. It runs behind the guard, once per key. Its error
// decides what happens to the key.
func (h *handler) charge(ctx context.Context, request Request) (Charge, error) {
	record, _ := ctx.Value(recordKey{}).(idempotent.RecordID) // empty but in the context of WithRecord
	if execution, ok := idempotent.FromContext(ctx); ok {
		record = execution.RecordID()
	}
	charge, err := h.provider.Charge(ctx, idempotent.DownstreamKey(ctx), record, request)
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

type recordKey struct{}

// WithRecord returns a context in which a handler with a disabled guard names a record
// to the provider, as it does in every guarded run. So the charges of a key can be
// compared with and without the guard.
func WithRecord(ctx context.Context, id idempotent.RecordID) context.Context {
	return context.WithValue(ctx, recordKey{}, id)
}

// asCreated completes the response for a charge that was made.
func asCreated(r *lambdahttp.Response, c Charge) {
	r.Status = http.StatusCreated
	r.Header.Set("Location", c.path())
}

// created returns the response for a charge that was made. A resolver stores the
// same response, so a client cannot distinguish a charge that the provider's reply
// confirmed from one that its ledger confirmed later.
func created(c Charge) lambdahttp.Response {
	r, _ := lambdahttp.JSON[Request, Charge]{Respond: asCreated}.Response(c) // strings and numbers always encode
	return r
}
