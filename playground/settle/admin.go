// SPDX-License-Identifier: Apache-2.0

// Package settle serves what settles a charge with an unknown outcome, besides the
// reconciler: the operator's endpoint, which asks the payment provider, and the
// provider's webhook.
//
//	POST /admin/resolve      {"idempotency_key":"8e03978e-40d5-43e8-bc93-6894a57f9324"}
//	POST /webhooks/provider  {"type":"charge.succeeded","charge":"ch_1"}
//
// The operator's endpoint has no authentication. Serve it on the loopback interface
// only, and refuse the requests of other sites' pages, as the playground does for
// all that it serves.
package settle

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Admin returns the handler of POST /admin/resolve.
func Admin(r *Resolver, logger *slog.Logger) http.Handler {
	return http.HandlerFunc((&admin{r, logger}).resolve)
}

type admin struct {
	resolver *Resolver
	logger   *slog.Logger
}

// maxBody limits a request's body, in bytes: a key has at most 255.
const maxBody = 4 << 10

const example = `{"idempotency_key":"8e03978e-40d5-43e8-bc93-6894a57f9324"}`

func (h *admin) resolve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		problem(w, http.StatusMethodNotAllowed, "This path only serves POST.", 0)
		return
	}
	var body struct {
		Key string `json:"idempotency_key"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	switch err := d.Decode(&body); {
	case err != nil || body.Key == "" || d.More():
		problem(w, http.StatusBadRequest, "The body has to be JSON like "+example+".", 0)
		return
	case strings.HasPrefix(body.Key, `"`):
		problem(w, http.StatusBadRequest, "The field \"idempotency_key\" needs the key without its quotes, as in "+example+".", 0)
		return
	}

	id := charge.RecordIDOf(body.Key)
	resolution, err := h.resolver.Resolve(r.Context(), id)
	if err == nil {
		answer(w, http.StatusOK, "application/json", map[string]string{"resolution": resolution, "record": string(id)})
		return
	}
	h.refuse(w, id, err)
}

func (h *admin) refuse(w http.ResponseWriter, id idempotent.RecordID, err error) {
	var running *idempotent.InProgressError
	var settled *idempotent.SettledError
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		problem(w, http.StatusNotFound, "No request with this Idempotency-Key is on record, or it has expired. Nothing was changed.", 0)
	case errors.As(err, &running):
		problem(w, http.StatusConflict, "The request may still be running. Nothing was changed. Repeat this later.", running.RetryAfter)
	case errors.As(err, new(*idempotent.StaleEvidenceError)):
		problem(w, http.StatusConflict, "Another attempt began while the provider was asked. Nothing was changed. Repeat this.", time.Second)
	case errors.As(err, &settled):
		problem(w, http.StatusConflict, fmt.Sprintf("The record is %s with an outcome that differs from the provider's ledger. Nothing was changed, and clients get that outcome.", settled.State), 0)
	case errors.As(err, new(*idempotent.StoreError)):
		h.log(id, err)
		problem(w, http.StatusServiceUnavailable, "The store is not available. Repeat this later; a second resolution is harmless.", time.Second)
	default:
		h.log(id, err)
		problem(w, http.StatusBadGateway, "The payment provider does not answer, so there is no evidence. Nothing was changed. Repeat this later.", time.Second)
	}
}

func (h *admin) log(id idempotent.RecordID, err error) {
	h.logger.Error("admin: a record could not be resolved", "operation", id.Operation(), "key_hash", id.KeyHash(), "error_type", fmt.Sprintf("%T", err))
}

// problem writes an error response. A positive retryAfter is written in whole
// seconds, rounded up.
func problem(w http.ResponseWriter, status int, detail string, retryAfter time.Duration) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((retryAfter+time.Second-1)/time.Second), 10))
	}
	answer(w, status, "application/problem+json", lambdahttp.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func answer(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // an error means that the caller has disconnected
}
