// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdahttp"
)

func request(key string) (r events.APIGatewayV2HTTPRequest) {
	r.RequestContext.HTTP.Method, r.RouteKey, r.RawPath = "POST", "POST /charges", "/charges"
	r.Headers = map[string]string{"idempotency-key": `"` + key + `"`, "content-type": "application/json"}
	r.Body = `{"amount":4200}`
	return r
}

// A charge whose outcome is unknown waits while the provider does not answer. Then
// the provider's answer settles it: the retry gets the response if the charge was
// made, and runs if it was not.
func TestReconciler(t *testing.T) {
	for name, c := range map[string]struct {
		made      bool
		runs      int
		body      string
		completed int
	}{
		"the charge was made":     {made: true, completed: 1, runs: 1, body: `{"id":"ch_1"}`},
		"the charge was not made": {made: false, completed: 0, runs: 2, body: `{"id":"ch_2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			charges, down := map[string]string{}, true
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id, ok := charges[r.URL.Query().Get("idempotency_key")]
				switch {
				case down:
					w.WriteHeader(http.StatusServiceUnavailable)
				case !ok:
					w.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprintf(w, `{"id":%q}`, id)
				}
			}))
			defer server.Close()
			t.Setenv("PROVIDER_URL", server.URL)

			clock := &idempotenttest.Clock{}
			store, err := dynamostore.New(dynamotest.New("once"), "once")
			if err != nil {
				t.Fatal(err)
			}
			guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now = clock.Now })
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			api := lambdahttp.JSON[any, charge]{Handle: func(ctx context.Context, _ any) (charge, error) {
				if runs++; runs > 1 {
					return charge{fmt.Sprint("ch_", runs)}, nil
				}
				if c.made {
					charges[idempotent.DownstreamKey(ctx)] = "ch_1"
				}
				return charge{}, errors.New("no answer")
			}}.APIGatewayV2(guard, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
			first := request("8e03978e-40d5-43e8-bc93-6894a57f9324")
			if response, err := api(clock.Invocation(t.Context(), 10*time.Second), first); err == nil && response.StatusCode < 500 {
				t.Fatalf("the first request got %+v", response)
			}

			reconcile := newReconciler(guard)
			clock.Advance(time.Minute)
			if report, err := reconcile(t.Context()); err == nil || report.Failed != 1 {
				t.Errorf("without the provider: %+v, %v", report, err)
			}
			down = false
			clock.Advance(time.Hour)
			report, err := reconcile(t.Context())
			if err != nil || report.Completed != c.completed || report.NotExecuted != 1-c.completed {
				t.Errorf("with the provider: %+v, %v", report, err)
			}
			response, err := api(clock.Invocation(t.Context(), 10*time.Second), first)
			if err != nil || response.Body != c.body || runs != c.runs {
				t.Errorf("the retry got %+v, %v after %d runs", response, err, runs)
			}
			// But for the id, it is the response of a handler that was not interrupted.
			usual, err := api(clock.Invocation(t.Context(), 10*time.Second), request("0c28a1fe-2f8c-4d9a-9d5b-3a1f0f6a7e11"))
			delete(response.Headers, "Idempotent-Replayed")
			if response.Body, usual.Body = "", ""; err != nil || !reflect.DeepEqual(response, usual) {
				t.Errorf("the retry got %+v, and a new request %+v, %v", response, usual, err)
			}
		})
	}
}
