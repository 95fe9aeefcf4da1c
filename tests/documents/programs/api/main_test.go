// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// provider counts the charges that it makes. If hold is not nil, it answers when
// hold is closed.
type provider struct {
	charges atomic.Int32
	charged chan struct{} // receives a value after each charge
	hold    chan struct{}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := p.charges.Add(1)
	p.charged <- struct{}{}
	if p.hold != nil {
		<-p.hold
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"ch_%d"}`, n)
}

func newProvider(t *testing.T) *provider {
	p := &provider{charged: make(chan struct{}, 10)}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	t.Setenv("PROVIDER_URL", server.URL)
	return p
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
	p := newProvider(t)
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
	if n := p.charges.Load(); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// Lambda kills the handler while it waits for the provider. The retry is refused,
// because the charge may have been made. If the handler was slow and not dead, its
// late response is stored after all.
func TestKilledAndLate(t *testing.T) {
	p := newProvider(t)
	p.hold = make(chan struct{})
	clock := &idempotenttest.Clock{}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Now = clock.Now })
	if err != nil {
		t.Fatal(err)
	}
	handler := newHandler(guard)
	r := request("2f1c5a0e-6b7d-4c38-9a41-d05e8f3b7c62", `{"amount":4200}`)

	finished := make(chan error, 1)
	go func() {
		_, err := handler(clock.Invocation(context.Background(), 10*time.Second), r)
		finished <- err
	}()
	select {
	case <-p.charged: // the charge is made, and the provider does not answer
	case err := <-finished:
		t.Fatalf("the handler has not called the provider: %v", err)
	}

	retry, err := handler(t.Context(), r)
	if err != nil || retry.StatusCode != 409 || retry.Headers["Retry-After"] == "" {
		t.Errorf("while the first request runs, the retry got %+v, %v", retry, err)
	}
	clock.Advance(time.Minute) // past the time at which Lambda kills the function
	retry, err = handler(t.Context(), r)
	if err != nil || retry.StatusCode != 409 || p.charges.Load() != 1 {
		t.Errorf("after the kill the retry got %+v, %v; %d charges", retry, err, p.charges.Load())
	}

	close(p.hold)
	if err := <-finished; err != nil {
		t.Errorf("the late handler: %v", err)
	}
	retry, err = handler(t.Context(), r)
	if err != nil || retry.StatusCode != 200 || p.charges.Load() != 1 {
		t.Errorf("after the late response the retry got %+v, %v; %d charges", retry, err, p.charges.Load())
	}
}
