// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// What a predecessor answered is replayed as a response, and its refusals have the
// statuses of the guard's own.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		err    error
		status int
		body   string
	}{
		"done":        {lambdahttp.Response{Status: 201, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"id":"ch_7"}`)}, nil, 201, `{"id":"ch_7"}`},
		"in progress": {nil, &idempotent.InProgressError{}, 409, ""},
		"mismatch":    {nil, &idempotent.MismatchError{}, 422, ""},
		"failure":     {nil, context.DeadlineExceeded, 503, ""},
	} {
		guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
			o.Logger = slog.New(slog.DiscardHandler)
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return c.result, c.err == nil, c.err }
		})
		if err != nil {
			t.Fatal(err)
		}
		handler := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
			o.Scope = lambdahttp.SingleTenant
			o.Operation = func(*lambdahttp.Request) string { return "charge" }
		})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: the handler was entered", name) }))
		r := httptest.NewRequest("POST", "/charges", strings.NewReader(`{"amount":4200}`))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
}
