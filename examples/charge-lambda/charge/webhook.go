// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Webhook handles the provider's events about charges:
//
//	POST {"type":"charge.succeeded","charge":"ch_1"}
//
// An event is only a hint. The handler asks the provider for the charge, so a
// forged event changes nothing; the charge's metadata names the record.
//
// A webhook gives positive evidence only. A charge that was made is the charge of
// every attempt, because all of them send the same key. An event about a failed
// attempt does not name the attempt, and it may arrive after the next one has
// begun. Such events are acknowledged, and [Reconcile] asks the provider instead.
//
// While the request may be running, the answer is 409, and after a failure 503:
// the provider then sends the event again. Every event that would change nothing
// if repeated is acknowledged with 204.
type Webhook struct {
	Guard    *idempotent.Guard
	Provider *Client
}

// eventSucceeded is the type of the events that count as evidence.
const eventSucceeded = "charge.succeeded"

// maxEvent limits an event, in bytes.
const maxEvent = 64 << 10

// ServeHTTP settles the record of a charge that was made.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ Type, Charge string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEvent)).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if event.Type != eventSucceeded {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	charge, id, err := h.Provider.Booked(r.Context(), event.Charge)
	switch {
	case errors.Is(err, ErrNoCharge): // not visible yet, or forged
		w.WriteHeader(http.StatusNotFound)
		return
	case err != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if id, err = idempotent.ParseRecordID(string(id)); err != nil || id.Operation() != Operation {
		w.WriteHeader(http.StatusNoContent) // made by another service
		return
	}
	err = h.Guard.Resolve(r.Context(), id, lambdahttp.Resolved(created(charge)))
	running := (*idempotent.InProgressError)(nil)
	switch {
	case err == nil, errors.As(err, new(*idempotent.SettledError)), errors.Is(err, idempotent.ErrNoRecord):
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &running):
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(running.RetryAfter.Seconds()))))
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
