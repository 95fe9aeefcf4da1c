// SPDX-License-Identifier: Apache-2.0

// Package middleware shows where the layers of an HTTP server belong, in chains
// of real libraries around lambdahttp.Middleware.
package middleware

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/lambdahttp"
)

const (
	key    = `"8e03978e-40d5-43e8-bc93-6894a57f9324"`
	bearer = "Bearer merchant-1"
	path   = "/customers/7/charges"
)

// fixture is a guard and a handler, which a test puts into a chain.
type fixture struct {
	t     *testing.T
	store *spy
	guard *idempotent.Guard
	runs  atomic.Int32
}

func newFixture(t *testing.T, optFns ...func(*idempotent.Options)) *fixture {
	w := &fixture{t: t, store: &spy{Store: memstore.New()}}
	g, err := idempotent.New(w.store, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	w.guard = g
	return w
}

// charge is a handler with a response that is worth to be compressed.
func (w *fixture) charge() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.runs.Add(1)
		h := rw.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Location", "/charges/ch_1")
		rw.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(rw, charged)
	})
}

// charged is longer than the least size that gzhttp compresses.
var charged = `{"id":"ch_1","lines":"` + strings.Repeat("a line of the charge, ", 100) + `"}`

// spy is a store that counts claims and remembers the last one.
type spy struct {
	driver.Store
	claims atomic.Int32
	last   atomic.Value // idempotent.RecordID
}

func (s *spy) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	s.claims.Add(1)
	s.last.Store(r.ID)
	return s.Store.Insert(ctx, r, now)
}

// record returns the record that was last claimed.
func (w *fixture) record() *driver.Record {
	w.t.Helper()
	id, _ := w.store.last.Load().(idempotent.RecordID)
	r, err := w.store.Get(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// stored returns the stored response of that record.
func (w *fixture) stored() httpform.Response {
	w.t.Helper()
	_, data, err := w.guard.StoredOutcome(w.t.Context(), *w.record())
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := httpform.Decode(data)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// post returns a POST with a key by an authenticated caller, changed by mods.
func post(mods ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(`{"amount":1250}`))
	r.Header = http.Header{"Idempotency-Key": {key}, "Authorization": {bearer}, "Content-Type": {"application/json"}}
	for _, f := range mods {
		f(r)
	}
	return r
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// serve sends a request to a handler.
func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// text reads a body.
func text(t *testing.T, a *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

type callerKey struct{}

// authenticated is a layer that answers 401 or puts the caller into the
// request's context.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// caller is the scope: it reads what authenticated has found.
func caller(o *lambdahttp.Options) {
	o.Scope = lambdahttp.ScopeRule{Of: func(ctx context.Context, _ *lambdahttp.Request) (string, error) {
		name, _ := ctx.Value(callerKey{}).(string)
		return name, nil
	}}
}

var discard = log.New(io.Discard, "", 0)
