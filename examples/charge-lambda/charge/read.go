// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"context"
	"errors"
	"net/http"
	"path"

	"github.com/aws/aws-lambda-go/events"
)

// find answers GET /charges/{id}. It only reads, so it needs no key, and the
// guard does not store a record.
func (h *handler) find(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	charge, err := h.provider.Get(ctx, path.Base(ev.RawPath))
	switch {
	case err == nil:
		return respond(found(charge))
	case errors.Is(err, ErrNoCharge):
		return respond(h.problem(http.StatusNotFound, "not_found", "There is no charge with this id."))
	default:
		return respond(h.problem(http.StatusBadGateway, "provider_unavailable", "The payment provider does not answer. Repeat the request later."))
	}
}
