package charge

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
)

// read answers GET /charges/{id}. It only reads, so it needs no key and no
// guard.
func (h *handler) read(ctx context.Context, id string) (events.APIGatewayV2HTTPResponse, error) {
	charge, err := h.provider.Get(ctx, id)
	switch {
	case err == nil:
		return respond(found(charge))
	case errors.Is(err, ErrNoCharge):
		return respond(problem(http.StatusNotFound, "There is no charge of this id."))
	default:
		return respond(problem(http.StatusBadGateway, "The payment provider gives no answer. Repeat the request later."))
	}
}
