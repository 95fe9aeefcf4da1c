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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
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

// Resolver finds out the result of a charge with an unknown outcome. It is safe for
// concurrent use.
type Resolver struct {
	Guard    *idempotent.Guard
	Store    driver.Store // the store of the guard
	Provider *charge.Client
	Now      func() time.Time // default: time.Now
}

// The results of [Resolver.Resolve].
const (
	Completed   = "completed"    // the customer was charged; retries get the 201
	NotExecuted = "not_executed" // nothing was charged; the key may run again
)

// Resolve asks the provider about the record's charge, settles the record with the
// answer, and returns the resolution. A repeated call is not an error.
//
// The error is [idempotent.ErrNoRecord], [idempotent.InProgressError] while the
// charge may still be in progress, [idempotent.StaleEvidenceError] if another
// attempt began while the provider was asked, [idempotent.SettledError] if the
// record has an outcome that is not in the provider's ledger, such as a declined
// card, [idempotent.StoreError], or the provider's. With any of them, no change is
// known to have happened.
func (r *Resolver) Resolve(ctx context.Context, id idempotent.RecordID) (resolution string, err error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	// Read the record first: the provider's answer is evidence about the attempt in
	// this record, and not about a later one.
	record, err := r.Store.Get(ctx, id)
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "", err
	case err != nil:
		return "", &idempotent.StoreError{RecordID: id, Op: driver.OpGet, Err: err}
	}
	if running := record.LeaseEnd.Sub(now()); record.State == driver.StateInProgress && running > 0 {
		return "", &idempotent.InProgressError{RecordID: id, RetryAfter: running, Until: record.LeaseEnd, Ref: record.Ref}
	}
	found, err := r.Provider.Find(ctx, id.DownstreamKey())
	switch {
	case errors.Is(err, charge.ErrNoCharge):
		return NotExecuted, r.Guard.Resolve(ctx, id, idempotent.ProvenNotExecuted(record.Token()))
	case err != nil:
		return "", err
	}
	evidence, err := charge.Evidence(found)
	if err != nil {
		return "", err
	}
	return Completed, r.Guard.Resolve(ctx, id, evidence)
}

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
