// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
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
// begun. Such events are acknowledged, and [charge.Reconcile] asks the provider instead.
//
// While the request may be running, the answer is 409, and after a failure 503:
// the provider then sends the event again. Every event that would change nothing
// if repeated is acknowledged with 204.
type Webhook struct {
	Guard    *idempotent.Guard
	Provider *charge.Client
}

// maxEvent limits an event, in bytes.
const maxEvent = 64 << 10

// ServeHTTP settles the record of a charge that was made.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct{ Type, Charge string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEvent)).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if event.Type != "charge.succeeded" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	err := h.settle(r.Context(), event.Charge)
	running, _ := errors.AsType[*idempotent.InProgressError](err)
	switch {
	case err == nil, errors.As(err, new(*idempotent.SettledError)), errors.Is(err, idempotent.ErrNoRecord):
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, charge.ErrNoCharge): // not visible yet, or forged
		w.WriteHeader(http.StatusNotFound)
	case running != nil:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(running.RetryAfter.Seconds()))))
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// settle settles the record that a charge at the provider names.
func (h *Webhook) settle(ctx context.Context, id string) error {
	made, named, err := h.Provider.Get(ctx, id)
	if err != nil {
		return err
	}
	record, err := idempotent.ParseRecordID(string(named))
	if err != nil || record.Operation() != charge.Operation {
		return nil // made by another service
	}
	evidence, err := charge.Evidence(made)
	if err != nil {
		return err
	}
	return h.Guard.Resolve(ctx, record, evidence)
}
