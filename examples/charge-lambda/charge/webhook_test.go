// SPDX-License-Identifier: Apache-2.0

package charge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// claimed creates the record of a process that was killed before it reached the
// provider.
func claimed(t *testing.T, w *fixture, lease time.Duration) {
	t.Helper()
	now := w.clock.Now().UTC().Truncate(time.Millisecond)
	r := driver.Record{
		ID:          charge.RecordIDOf(key),
		State:       driver.StateInProgress,
		Reason:      driver.ReasonClaimed,
		Version:     driver.Version{1},
		Owner:       driver.Owner{1},
		Codec:       lambdahttp.Encoding,
		Attempt:     1,
		Fingerprint: idempotent.FingerprintBytes(nil),
		LeaseEnd:    now.Add(lease),
		Created:     now,
	}
	if met, err := w.store.Insert(t.Context(), r, now); err != nil || met != nil {
		t.Fatal(met, err)
	}
}

// event sends an event of the provider, and returns the status of the answer.
func (w *fixture) event(body string) (status int, header http.Header) {
	r := httptest.NewRecorder()
	w.webhook.ServeHTTP(r, httptest.NewRequest("POST", "/webhooks/provider", strings.NewReader(body)))
	return r.Code, r.Header()
}

func (w *fixture) wantEvent(body string, want int) {
	w.t.Helper()
	if got, _ := w.event(body); got != want {
		w.t.Errorf("%s: got %d, want %d", body, got, want)
	}
}

// An event that arrives before the handler ends is sent again. It then settles an
// outcome that the handler could not report.
func TestWebhook(t *testing.T) {
	t.Parallel()
	w := newFixture(t, 3*time.Second)
	first := make(chan reply)
	go func() { first <- w.post(key, slow) }()
	<-w.booked
	succeeded := `{"type":"charge.succeeded","charge":"` + w.ledger()[0].ID + `"}`
	status, header := w.event(succeeded)
	if retry := header.Get("Retry-After"); status != http.StatusConflict || len(retry) != 1 || retry < "1" || retry > "5" {
		t.Errorf("while the handler runs: got %d with Retry-After %q", status, retry)
	}
	w.wantProblem(<-first, http.StatusGatewayTimeout, "not known whether the customer was charged") // the provider's reply came too late
	w.wantProblem(w.post(key, slow), http.StatusConflict, "outcome-unknown")
	for range 2 {
		w.wantEvent(succeeded, http.StatusNoContent)
	}
	w.want(w.post(key, slow), http.StatusCreated, w.ledger()[0].ID)
	w.wantCharges(1)
}

// Only a charge that was made, for a record of this function, is evidence. Any
// other event releases no attempt.
func TestWebhookIgnores(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	claimed(t, w, time.Millisecond)
	w.clock.Advance(time.Minute)
	book := func(key, metadata string) (id string) {
		r := httptest.NewRequest("POST", "/charges", strings.NewReader(strings.TrimSuffix(aCharge, "}")+metadata+"}"))
		r.Header.Set("Idempotency-Key", key)
		w.provider.ServeHTTP(httptest.NewRecorder(), r)
		ledger := w.ledger()
		return ledger[len(ledger)-1].ID
	}
	foreign := idempotent.Key{Operation: "refund", Scope: "a", ID: "b"}.RecordID()
	other, err := w.store.Get(t.Context(), charge.RecordIDOf(key))
	if err != nil {
		t.Fatal(err)
	}
	other.ID = foreign
	if met, err := w.store.Insert(t.Context(), *other, other.Created); met != nil || err != nil {
		t.Fatal(met, err)
	}
	for body, want := range map[string]int{
		`{`: http.StatusBadRequest,
		`{"type":"charge.failed","charge":"ch_1"}`: http.StatusNoContent,
		`{"type":"charge.expired","charge":"` + book("failed", `,"metadata":{"record":"`+string(charge.RecordIDOf(key))+`"}`) + `"}`:       http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"ch_forged"}`:                                                                                 http.StatusNotFound,
		`{"type":"charge.succeeded","charge":"` + book("without", "") + `"}`:                                                               http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + book("no id", `,"metadata":{"record":"x"}`) + `"}`:                                       http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + book("foreign", `,"metadata":{"record":"`+string(foreign)+`"}`) + `"}`:                   http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + book("expired", `,"metadata":{"record":"`+string(charge.RecordIDOf("gone"))+`"}`) + `"}`: http.StatusNoContent,
	} {
		w.wantEvent(body, want)
	}
	for _, id := range []idempotent.RecordID{charge.RecordIDOf(key), foreign} {
		if r, err := w.store.Get(t.Context(), id); err != nil || r.State != driver.StateInProgress {
			t.Errorf("the record is %v, %v", r, err)
		}
	}
	w.serve("http://127.0.0.1:1", time.Minute)
	w.wantEvent(`{"type":"charge.succeeded","charge":"ch_1"}`, http.StatusServiceUnavailable)
}

// A charge names its record; otherwise no event of the provider could settle it.
func TestChargeNamesItsRecord(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	w.want(w.post(key, aCharge), http.StatusCreated)
	if got, want := w.ledger()[0].Metadata["record"], string(charge.RecordIDOf(key)); got != want {
		t.Errorf("the metadata names the record %q, want %q", got, want)
	}
}
