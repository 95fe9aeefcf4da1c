// SPDX-License-Identifier: Apache-2.0

package settle_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
)

// charge sends a slow charge to the function, whose time-out is three seconds.
func (w *fixture) charge() events.APIGatewayV2HTTPResponse {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
	defer cancel()
	r := events.APIGatewayV2HTTPRequest{RawPath: "/charges", Body: `{"amount":4200,"currency":"usd","customer":"cus_slow"}`}
	r.RequestContext.HTTP.Method = http.MethodPost
	r.Headers = map[string]string{"idempotency-key": `"` + key + `"`, "content-type": "application/json"}
	answer, err := w.function(ctx, r)
	if err != nil {
		w.t.Error(err)
	}
	return answer
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
	w := newFixture(t)
	first := make(chan events.APIGatewayV2HTTPResponse)
	go func() { first <- w.charge() }()
	<-w.booked
	made := w.bank.Charges()[0].ID
	succeeded := `{"type":"charge.succeeded","charge":"` + made + `"}`
	status, header := w.event(succeeded)
	if retry := header.Get("Retry-After"); status != http.StatusConflict || len(retry) != 1 || retry < "1" || retry > "5" {
		t.Errorf("while the handler runs: got %d with Retry-After %q", status, retry)
	}
	if r := <-first; r.StatusCode != http.StatusGatewayTimeout { // the provider's reply came too late
		t.Errorf("got %+v", r)
	}
	if r := w.charge(); r.StatusCode != http.StatusConflict || !strings.Contains(r.Body, "outcome-unknown") {
		t.Errorf("got %+v", r)
	}
	for range 2 {
		w.wantEvent(succeeded, http.StatusNoContent)
	}
	if r := w.charge(); r.StatusCode != http.StatusCreated || !strings.Contains(r.Body, made) || len(w.bank.Charges()) != 1 {
		t.Errorf("got %+v after %d charges", r, len(w.bank.Charges()))
	}
}

// Only a charge that was made, for a record of this function, is evidence. Any
// other event releases no attempt.
func TestWebhookIgnores(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	own, foreign := charge.RecordIDOf(key), idempotent.Key{Operation: "refund", Scope: "a", ID: "b"}.RecordID()
	w.claim(own)
	w.claim(foreign)
	w.clock.Advance(2 * time.Minute)
	for body, want := range map[string]int{
		`{`: http.StatusBadRequest,
		`{"type":"charge.failed","charge":"ch_1"}`:                                                            http.StatusNoContent,
		`{"type":"charge.expired","charge":"` + w.book("failed", string(own)) + `"}`:                          http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"ch_forged"}`:                                                    http.StatusNotFound,
		`{"type":"charge.succeeded","charge":"` + w.book("without", "") + `"}`:                                http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + w.book("no id", "x") + `"}`:                                 http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + w.book("foreign", string(foreign)) + `"}`:                   http.StatusNoContent,
		`{"type":"charge.succeeded","charge":"` + w.book("expired", string(charge.RecordIDOf("gone"))) + `"}`: http.StatusNoContent,
	} {
		w.wantEvent(body, want)
	}
	w.wantRunning(own)
	w.wantRunning(foreign)
	w.asked = func() (down bool) { return true }
	w.wantEvent(`{"type":"charge.succeeded","charge":"ch_1"}`, http.StatusServiceUnavailable)
}
