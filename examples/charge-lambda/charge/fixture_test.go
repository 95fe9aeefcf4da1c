// SPDX-License-Identifier: Apache-2.0

package charge_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/playground/provider"
)

const (
	aCharge  = `{"amount":4200,"currency":"usd","customer":"cus_1"}`
	another  = `{"amount":9000,"currency":"usd","customer":"cus_1"}`
	slow     = `{"amount":4200,"currency":"usd","customer":"cus_slow"}`
	declined = `{"amount":4200,"currency":"usd","customer":"cus_declined"}`
	key      = "8e03978e-40d5-43e8-bc93-6894a57f9324"
)

// fixture is the function, with a provider that can be made to fail.
type fixture struct {
	t        *testing.T
	clock    *idempotenttest.Clock
	guard    *idempotent.Guard
	client   *charge.Client
	function charge.HandlerFunc
	rest     charge.RESTHandlerFunc
	store    *memstore.Store
	provider *provider.Provider
	upstream string // the provider's address

	// fault, if set, answers instead of the provider, or after it.
	fault atomic.Pointer[fault]
	// A slow charge sends to booked and then waits for release.
	booked, release chan struct{}
}

// fault breaks one kind of call.
type fault struct {
	after bool // the provider acts first, and its reply is lost
	serve http.HandlerFunc
}

func (f *fault) isFor(r *http.Request) bool { return f != nil && r.Method == http.MethodPost }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, clock: &idempotenttest.Clock{}, store: memstore.New(), booked: make(chan struct{}, 1), release: make(chan struct{})}
	ledger, err := provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"), func(o *provider.Options) {
		o.Slow = func(ctx context.Context) {
			w.booked <- struct{}{}
			select {
			case <-w.release:
			case <-ctx.Done():
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	downstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f := w.fault.Load()
		if !f.isFor(r) {
			ledger.ServeHTTP(rw, r)
			return
		}
		if f.after {
			ledger.ServeHTTP(httptest.NewRecorder(), r)
		}
		f.serve(rw, r)
	}))
	t.Cleanup(downstream.Close)
	w.provider, w.upstream = ledger, downstream.URL
	w.serve(downstream.URL)
	return w
}

// serve makes a function with the same store and the provider at providerURL.
func (w *fixture) serve(providerURL string) {
	w.t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	w.guard, err = idempotent.New(w.store, func(o *idempotent.Options) {
		o.Now = w.clock.Now
		o.Logger = logger
		o.Observer = event.LogObserver(logger)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.client, err = charge.NewClient(providerURL); err != nil {
		w.t.Fatal(err)
	}
	w.function, w.rest = charge.New(w.guard, w.client), charge.NewREST(w.guard, w.client)
}

type reply struct {
	status int
	header http.Header
	body   string
}

// request returns the event of a request to an HTTP API.
func request(method, path, key, body string) (r events.APIGatewayV2HTTPRequest) {
	r.RequestContext.HTTP.Method, r.RawPath, r.Body = method, path, body
	r.Headers = map[string]string{"content-type": "application/json"}
	if key != "" {
		r.Headers["idempotency-key"] = `"` + key + `"`
	}
	return r
}

func (w *fixture) send(method, path, key, body string) reply {
	w.t.Helper()
	return w.sendFor(time.Minute, method, path, key, body)
}

// sendFor is send to a function with that time-out.
func (w *fixture) sendFor(timeout time.Duration, method, path, key, body string) (r reply) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
	defer cancel()
	got, err := w.function(ctx, request(method, path, key, body))
	if err != nil {
		w.t.Error(err)
	}
	r = reply{got.StatusCode, http.Header{}, got.Body}
	for name, value := range got.Headers {
		r.header.Set(name, value)
	}
	return r
}

func (w *fixture) post(key, body string) reply {
	w.t.Helper()
	return w.send("POST", "/charges", key, body)
}

// want checks an answer's status and that its body has the parts.
func (w *fixture) want(r reply, status int, parts ...string) {
	w.t.Helper()
	if r.status != status {
		w.t.Fatalf("got %d %s, want %d", r.status, r.body, status)
	}
	for _, part := range parts {
		if !strings.Contains(r.body, part) {
			w.t.Errorf("got %s, want %s in it", r.body, part)
		}
	}
}

// wantProblem checks that an answer is a problem document.
func (w *fixture) wantProblem(r reply, status int, parts ...string) {
	w.t.Helper()
	w.want(r, status, parts...)
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || p.Type == "" || p.Title == "" || p.Detail == "" || p.Status != status {
		w.t.Errorf("got the problem %s (%v)", r.body, err)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		w.t.Errorf("got content type %q", got)
	}
}

// wantReplay checks that an answer repeats another one.
func (w *fixture) wantReplay(r, first reply) {
	w.t.Helper()
	if r.status != first.status || r.body != first.body || r.header.Get("Location") != first.header.Get("Location") ||
		r.header.Get("Content-Type") != first.header.Get("Content-Type") || r.header.Get("Idempotent-Replayed") != "true" {
		w.t.Errorf("got %d %v %s\nwant the replay of %d %v %s", r.status, r.header, r.body, first.status, first.header, first.body)
	}
}

// ledger returns the charges that the provider has booked.
func (w *fixture) ledger() (charges []provider.Charge) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.provider.ServeHTTP(rec, httptest.NewRequest("GET", "/charges", nil))
	if err := json.Unmarshal(rec.Body.Bytes(), &charges); err != nil {
		w.t.Fatal(err)
	}
	return charges
}

func (w *fixture) wantCharges(want int) {
	w.t.Helper()
	if got := len(w.ledger()); got != want {
		w.t.Errorf("the provider booked %d charges, want %d", got, want)
	}
}

// reconcile settles the record of a client's key as the reconciler does.
func (w *fixture) reconcile(key string) error {
	w.t.Helper()
	evidence, err := charge.Reconcile(w.client, w.clock.Now)(w.t.Context(), w.guard.Pending(*w.record(key)))
	if err != nil {
		return err
	}
	return w.guard.Resolve(w.t.Context(), charge.RecordIDOf(key), evidence)
}

// record returns the record of a client's key.
func (w *fixture) record(key string) *driver.Record {
	w.t.Helper()
	r, err := w.store.Get(w.t.Context(), charge.RecordIDOf(key))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}
