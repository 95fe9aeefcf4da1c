// SPDX-License-Identifier: Apache-2.0

package settle_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/settle"
)

const (
	key  = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	body = `{"idempotency_key":"` + key + `"}`
)

// fixture is the function with what settles its records, and the provider.
type fixture struct {
	t        *testing.T
	function charge.HandlerFunc
	admin    http.Handler
	webhook  http.Handler
	store    *memstore.Store
	clock    *idempotenttest.Clock
	bank     *provider.Provider
	booked   chan struct{} // gets a value for each slow charge, whose answer waits for the client
	log      bytes.Buffer
	asked    func() (down bool) // called, if set, when the provider gets a request
}

// failing is a store that is not available.
type failing struct{ driver.Store }

func (failing) Get(context.Context, idempotent.RecordID) (*driver.Record, error) {
	return nil, errors.New("secret")
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, store: memstore.New(), clock: &idempotenttest.Clock{}, booked: make(chan struct{}, 1)}
	var err error
	w.bank, err = provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"), func(o *provider.Options) {
		o.Slow = func(ctx context.Context) { w.booked <- struct{}{}; <-ctx.Done() }
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.bank.Close() })
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.asked != nil && w.asked() {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.bank.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	client, err := charge.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(&w.log, nil))
	guard, err := idempotent.New(w.store, func(o *idempotent.Options) { o.Now, o.Logger = w.clock.Now, slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	w.function = charge.New(guard, client)
	w.admin = settle.Admin(&settle.Resolver{Guard: guard, Store: w.store, Provider: client, Now: w.clock.Now}, logger)
	w.webhook = &settle.Webhook{Guard: guard, Provider: client}
	return w
}

// book makes a charge under a downstream key, for a record, and returns its id.
func (w *fixture) book(downstream, record string) (id string) {
	w.t.Helper()
	r := httptest.NewRequest("POST", "/charges", strings.NewReader(`{"amount":4200,"currency":"usd","customer":"cus_1","metadata":{"record":"`+record+`"}}`))
	r.Header.Set("Idempotency-Key", downstream)
	w.bank.ServeHTTP(httptest.NewRecorder(), r)
	charges := w.bank.Charges()
	return charges[len(charges)-1].ID
}

// claim creates the record of a process that was killed.
func (w *fixture) claim(id idempotent.RecordID) {
	w.t.Helper()
	now := w.clock.Now().UTC().Truncate(time.Millisecond)
	met, err := w.store.Insert(w.t.Context(), driver.Record{
		ID: id, State: driver.StateInProgress, Reason: driver.ReasonClaimed, Version: driver.Version{1}, Owner: driver.Owner{1}, Attempt: 1, Codec: "http1",
		Fingerprint: idempotent.FingerprintBytes(nil), LeaseEnd: now.Add(90*time.Second + time.Millisecond), Created: now,
	}, now)
	if err != nil || met != nil {
		w.t.Fatal(met, err)
	}
}

// wantRunning checks that nothing was settled.
func (w *fixture) wantRunning(id idempotent.RecordID) {
	w.t.Helper()
	if r, err := w.store.Get(w.t.Context(), id); err != nil || r.State != driver.StateInProgress {
		w.t.Errorf("the record is %v, %v", r, err)
	}
}

func post(h http.Handler, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/admin/resolve", strings.NewReader(body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func want(t *testing.T, w *httptest.ResponseRecorder, status int, parts ...string) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
	contentType := "application/json"
	if status != http.StatusOK {
		contentType = "application/problem+json"
	}
	if got := w.Header().Get("Content-Type"); got != contentType {
		t.Errorf("got content type %q", got)
	}
	for _, part := range parts {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("got %s, want %s in it", w.Body, part)
		}
	}
}

func TestCompleted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	made := w.book(charge.RecordIDOf(key).DownstreamKey(), "")
	w.claim(charge.RecordIDOf(key))
	want(t, post(w.admin, body), http.StatusConflict, "may still be running")
	w.clock.Advance(2 * time.Minute)
	for range 2 { // also if both agree already
		want(t, post(w.admin, body), http.StatusOK, `"resolution":"completed"`, `"record":"POST /charges#`)
	}
	r, err := w.store.Get(t.Context(), charge.RecordIDOf(key))
	if err != nil || r.State != driver.StateCompleted || !strings.Contains(string(r.Result), "/charges/"+made) {
		t.Errorf("the record is %v, %v", r, err)
	}
}

func TestNotExecuted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.claim(charge.RecordIDOf(key))
	early := post(w.admin, body)
	want(t, early, http.StatusConflict, "may still be running")
	if got := early.Header().Get("Retry-After"); got != "91" && got != "90" {
		t.Errorf("got Retry-After %q", got)
	}
	w.clock.Advance(2 * time.Minute)
	for range 2 {
		want(t, post(w.admin, body), http.StatusOK, `"resolution":"not_executed"`, `"record":"POST /charges#`)
	}
}

// Another attempt began between the read of the record and the provider's answer.
func TestAnotherAttempt(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.claim(charge.RecordIDOf(key))
	w.clock.Advance(2 * time.Minute)
	w.asked = func() (down bool) {
		r, err := w.store.Get(t.Context(), charge.RecordIDOf(key))
		if err != nil {
			t.Error(err)
			return true
		}
		next := *r
		next.Attempt, next.Owner, next.Version = 2, driver.Owner{2}, driver.Version{2}
		if met, err := w.store.Replace(t.Context(), next, r.Version); met != nil || err != nil {
			t.Error(met, err)
		}
		return false
	}
	want(t, post(w.admin, body), http.StatusConflict, "Another attempt began")
	w.wantRunning(charge.RecordIDOf(key))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	want(t, post(w.admin, body), http.StatusNotFound, "on record")
	for _, bad := range []string{"", "{", "[]", "{}", body + "{}", `{"key":"x"}`, strings.Repeat(" ", 5000) + body} {
		want(t, post(w.admin, bad), http.StatusBadRequest, "idempotency_key")
	}
	want(t, post(w.admin, `{"idempotency_key":"\"`+key+`\""}`), http.StatusBadRequest, "without its quotes")
	get := post(w.admin, "", func(r *http.Request) { r.Method = http.MethodGet })
	want(t, get, http.StatusMethodNotAllowed, "POST")
	if get.Header().Get("Allow") != "POST" {
		t.Errorf("got Allow %q", get.Header().Get("Allow"))
	}
}

func TestSettledOtherwise(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.book(charge.RecordIDOf(key).DownstreamKey(), "")
	now := w.clock.Now().UTC().Truncate(time.Millisecond)
	if met, err := w.store.Insert(t.Context(), driver.Record{
		ID: charge.RecordIDOf(key), State: driver.StateCompleted, Version: driver.Version{1}, LeaseEnd: now, Codec: "http1", Encoding: "http1", Result: []byte("other"),
	}, now); err != nil || met != nil {
		t.Fatal(met, err)
	}
	want(t, post(w.admin, body), http.StatusConflict, "completed with an outcome that differs")
}

func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.asked = func() (down bool) { return true }
	w.claim(charge.RecordIDOf(key))
	w.clock.Advance(2 * time.Minute)
	want(t, post(w.admin, body), http.StatusBadGateway, "no evidence")
	w.wantRunning(charge.RecordIDOf(key))
	if log := w.log.String(); !strings.Contains(log, "could not be resolved") || strings.Contains(log, key) {
		t.Errorf("the log says %s", log)
	}
}

func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := settle.Admin(&settle.Resolver{Store: failing{}}, slog.New(slog.NewTextHandler(&log, nil)))
	want(t, post(h, body), http.StatusServiceUnavailable, "store")
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "StoreError") {
		t.Errorf("the log says %s", &log)
	}
}

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
