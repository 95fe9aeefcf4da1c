// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
)

// charge answers POST /charges. It runs behind the guard, once per key. Its
// error decides what happens to the key.
func (h *handler) charge(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	request, err := parseRequest(ev)
	if err != nil {
		return respond(h.problem(http.StatusBadRequest, "invalid_charge", err.Error()))
	}
	var record idempotent.RecordID // empty if a test disabled the guard
	if execution, ok := idempotent.FromContext(ctx); ok {
		record = execution.RecordID()
	}
	charge, err := h.provider.Charge(ctx, idempotent.DownstreamKey(ctx), record, request)
	switch {
	case err == nil:
		return respond(created(charge))
	case errors.Is(err, ErrDeclined):
		return respond(h.problem(http.StatusPaymentRequired, "card_declined", "The customer's card was declined. Nothing was charged. To try another card, send a new request with a new key."))
	case errors.Is(err, ErrNotSent):
		r, _ := respond(h.problem(http.StatusServiceUnavailable, "provider_unavailable", "The payment provider cannot be reached. Nothing was charged. Repeat the request with the same key."))
		return r, idempotent.NotExecuted(err)
	case ctx.Err() != nil:
		r, _ := respond(h.problem(http.StatusGatewayTimeout, "charge_unconfirmed", unknownDetail))
		return r, idempotent.Unknown(err)
	default:
		r, _ := respond(h.problem(http.StatusBadGateway, "charge_unconfirmed", unknownDetail))
		return r, idempotent.Unknown(err)
	}
}

const unknownDetail = "The payment provider did not confirm the charge, so it is not known whether the customer was charged. The charge is not tried again until that is known. Repeat the request later, with the same key."
