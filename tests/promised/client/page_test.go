// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotencyclient"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// The snippets of docs/idempotencyclient.md, with a guarded service at every address.
func TestPage(t *testing.T) {
	var bank bank
	before := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = before })
	http.DefaultTransport = inMemory{guarded(t, bank.charge)}

	if err := send(strings.NewReader(`{"name":1}`)); err != nil || bank.charges() != 1 {
		t.Errorf("send: %d charges, %v", bank.charges(), err)
	}
	if err := send(strings.NewReader(`{"name":-1}`)); err == nil {
		t.Error("a declined charge is no error")
	} else if p := (*idempotencyclient.Problem)(nil); !errors.As(err, &p) || p.Code != "declined" || p.Unknown() {
		t.Errorf("a declined charge is %v", err)
	}

	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts, o.PendingDir = []string{"api.example.com"}, t.TempDir()
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 2, 3} {
		if i == 2 {
			if err := forget(transport); err != nil {
				t.Error(err)
			}
		}
		if err := sendNamed(t.Context(), transport, strings.NewReader(`{"name":17}`)); err != nil || bank.charges() != want {
			t.Errorf("sendNamed: %d charges, %v, want %d", bank.charges(), err, want)
		}
	}

	provider, err := newProvider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.RoundTrip(httptest.NewRequest(http.MethodPost, "https://bank.example.com/charges", strings.NewReader(`{"name":5}`))); err != nil || bank.charges() != 4 {
		t.Errorf("newProvider: %d charges, %v", bank.charges(), err)
	}
}

func send(body io.Reader) error {
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts = []string{"api.example.com"} // it honours idempotency keys
	})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post("https://api.example.com/charges", "application/json", body)
	if err != nil {
		return err // after the last attempt; errors.As with *idempotencyclient.Error
	}
	defer resp.Body.Close()
	if err := idempotencyclient.Check(resp); err != nil {
		return err // errors.As with *idempotencyclient.Problem
	}
	return nil
}

func sendNamed(ctx context.Context, transport http.RoundTripper, body io.Reader) error {
	ctx = idempotencyclient.WithName(ctx, "charge order 17")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/charges", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return idempotencyclient.Check(resp)
}

func forget(transport *idempotencyclient.Transport) error {
	if err := transport.Forget("charge order 17"); err != nil {
		return err
	}
	return nil
}

func newProvider() (http.RoundTripper, error) {
	provider, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts = []string{"bank.example.com"}
		o.ContextKey = idempotent.DownstreamKey
	})
	return provider, err
}

// bank is the handler of a service that is guarded.
type bank struct{ made []int }

func (b *bank) charges() int { return len(b.made) }

func (b *bank) charge(w http.ResponseWriter, r *http.Request) {
	name := nameOf(r)
	if name < 0 {
		lambdahttp.SetError(r.Context(), idempotent.Final("declined", "The card was declined."))
		return
	}
	b.made = append(b.made, name)
	created(w, name)
}

// inMemory is a transport to a handler.
type inMemory struct{ handler http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// A handler calls a provider with its downstream key: in each form, the provider gets
// one key from every run, and the UUID is the one of idempotent.AsUUID.
func TestDownstreamKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		form    idempotencyclient.Form
		profile lambdahttp.Profile
		write   func(key string) string
	}{
		"IETF":   {idempotencyclient.IETF, lambdahttp.IETF, func(key string) string { return `"` + key + `"` }},
		"Stripe": {idempotencyclient.Stripe, lambdahttp.Stripe, func(key string) string { return key }},
		"UUID":   {idempotencyclient.UUID, lambdahttp.UUID, idempotent.AsUUID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bank bank
			service := guarded(t, bank.charge, func(o *lambdahttp.Options) { o.Profile = row.profile })
			var keys []string
			provider, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
				o.Hosts, o.ContextKey, o.Form = []string{"bank.example.com"}, idempotent.DownstreamKey, row.form
				o.Base = inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					keys = append(keys, r.Header.Get("Idempotency-Key"))
					service.ServeHTTP(w, r)
				})}
			})
			if err != nil {
				t.Fatal(err)
			}
			guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
			if err != nil {
				t.Fatal(err)
			}
			order := idempotent.Key{Operation: "order", Scope: idempotent.Global, ID: "17", Fingerprint: idempotent.FingerprintBytes([]byte("4200"))}
			var want string
			run := func(result error) error {
				_, err := idempotent.Do(t.Context(), guard, order, func(ctx context.Context) (int, error) {
					want = row.write(idempotent.DownstreamKey(ctx))
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example.com/charges", strings.NewReader(`{"name":17}`))
					if err != nil {
						return 0, err
					}
					req.Header.Set("Content-Type", "application/json")
					resp, err := provider.RoundTrip(req)
					if err != nil {
						return 0, err
					}
					defer resp.Body.Close()
					if err := idempotencyclient.Check(resp); err != nil {
						return 0, err
					}
					return resp.StatusCode, result
				})
				return err
			}
			if err := run(errors.New("the handler failed after the charge")); err == nil {
				t.Fatal("no error")
			}
			if err := run(nil); err != nil {
				t.Fatal(err)
			}
			if len(keys) != 2 || keys[0] != want || keys[1] != want || bank.charges() != 1 {
				t.Errorf("the provider got the keys %q and made %d charges; want %q twice, and 1", keys, bank.charges(), want)
			}
		})
	}
}
