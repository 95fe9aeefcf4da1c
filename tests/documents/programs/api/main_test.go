// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// bank makes one charge for each key: it has those of the charges.
type bank map[string]bool

func (b bank) count() int { return len(b) }

func (b bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b[r.Header.Get("Idempotency-Key")] = true
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"ch_%d"}`, len(b)) // of the last key
}

func request(key, body string) (r events.APIGatewayV2HTTPRequest) {
	r.RequestContext.HTTP.Method, r.RouteKey, r.RawPath = "POST", "POST /charges", "/charges"
	r.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}},
	}
	r.Headers = map[string]string{"idempotency-key": `"` + key + `"`, "content-type": "application/json"}
	r.Body = body
	return r
}

// A retry gets the response of the first request. Nothing is charged again.
func TestRetry(t *testing.T) {
	b := bank{}
	server := httptest.NewServer(b)
	defer server.Close()
	t.Setenv("PROVIDER_URL", server.URL)
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	handler := newHandler(guard)
	first, err := handler(t.Context(), request("8e03978e-40d5-43e8-bc93-6894a57f9324", `{"amount":4200}`))
	if err != nil || first.StatusCode != 200 {
		t.Fatalf("the first request got %+v, %v", first, err)
	}
	retry, err := handler(t.Context(), request("8e03978e-40d5-43e8-bc93-6894a57f9324", `{"amount":4200}`))
	if err != nil || retry.Body != first.Body || retry.Headers["Idempotent-Replayed"] != "true" {
		t.Errorf("the retry got %+v, %v", retry, err)
	}
	other, err := handler(t.Context(), request("8e03978e-40d5-43e8-bc93-6894a57f9324", `{"amount":9900}`))
	if err != nil || other.StatusCode != 422 {
		t.Errorf("another request with the key got %+v, %v", other, err)
	}
	if n := b.count(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// Wherever the handler is killed, and whatever is lost, the customer is charged at most
// once.
func TestEveryCrash(t *testing.T) {
	t.Setenv("PROVIDER_URL", "http://bank.test/charges")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		b := bank{}
		w.Provider(b)
		w.AtMostOnce("charge", b.count)
		idempotenttest.Handle(w, request("8e03978e-40d5-43e8-bc93-6894a57f9324", `{"amount":4200}`), newHandler)
	})
}
