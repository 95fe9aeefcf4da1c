// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/policy"
)

func guard(t *testing.T) *idempotent.Guard {
	t.Helper()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// policies are the profiles, and options that change the form of the document.
var policies = map[string]func(*lambdahttp.Options){
	"IETF":   func(*lambdahttp.Options) {},
	"Stripe": func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe },
	"UUID":   func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID },
	"bare keys": func(o *lambdahttp.Options) {
		o.Profile.Syntax = lambdahttp.QuotedOrBareKey
		o.Profile.ResponseHeaders = []string{"Idempotency-Status", "Idempotency-Expires"}
		o.DocsURL = "https://api.example.com/docs/keys"
	},
	"key in the body": func(o *lambdahttp.Options) {
		o.KeyFrom = lambdahttp.BodyField("/idempotency_key")
		o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "/work/1" }
	},
	"digest": func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest },
	"no JSON": func(o *lambdahttp.Options) {
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response {
			return lambdahttp.Response{Status: p.Status, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte(p.Detail)}
		}
	},
}

func api(t *testing.T, optFns ...func(*lambdahttp.Options)) *API {
	t.Helper()
	document := policy.New(guard(t), append([]func(*lambdahttp.Options){single}, optFns...)...).OpenAPI()
	a, err := New(document)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	return a
}

func single(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }

// Every document is valid OpenAPI 3.1, its examples match its schemas, and an
// API can refer to its parts.
func TestPoliciesAreValidOpenAPI(t *testing.T) {
	t.Parallel()
	for name, options := range policies {
		if n := api(t, options).Statuses(); n < 5 {
			t.Errorf("%s: an operation refers to %d responses", name, n)
		}
	}
	// The validator rejects invalid documents.
	for _, broken := range []string{
		`{}`, `{"openapi":"3.1.0","info":{"title":"x"},"components":{}}`,
		`{"openapi":"3.1.0","info":{"title":"x","version":"1"},"components":{"responses":{"Idempotency400":{}}}}`,
		`{"openapi":"3.1.0","info":{"title":"x","version":"1"},"components":{"schemas":{"a b":{"type":"string"}}}}`,
		`{"openapi":"3.1.0","info":{"title":"x","version":"1"},"components":{"schemas":{"a":{"type":"text"}}}}`,
		`{"openapi":"3.1.0","info":{"title":"x","version":"1"},"components":{"responses":{"Idempotency400":{"description":"x","content":{"application/json":{"schema":{"type":"object"},"examples":{"a":{"value":"text"}}}}}}}}`,
	} {
		if _, err := New([]byte(broken)); err == nil {
			t.Errorf("this is valid: %s", broken)
		}
	}
}

// G07: the handler refuses every request that the document refuses, and refuses
// no request for its key that the document accepts. The document contains the
// handler's answers.
func TestHandlersKeepTheirDocuments(t *testing.T) {
	t.Parallel()
	const uuid, slowUUID = "8e03978e-40d5-43e8-bc93-6894a57f9324", "018f3c5e-7b1a-7cc2-9f7d-3a5b8c9d0e1e"
	lines := []string{`"short"`, "a b", `"` + strings.Repeat("x", 255) + `"`, strings.Repeat("y", 255), strings.Repeat("z", 256), `"` + strings.Repeat("x", 256) + `"`}
	for _, p := range exchange.Profiles {
		lines = slices.Concat(lines, exchange.Valid[p.Name], exchange.Invalid[p.Name])
	}
	for name, profile := range map[string]*exchange.Profile{
		"IETF": exchange.Profiles[0], "Stripe": exchange.Profiles[1], "UUID": exchange.Profiles[2], "bare keys": exchange.Profiles[0],
	} {
		options := policies[name]
		a := api(t, options)
		g := guard(t)
		running, finish := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(lambdahttp.Middleware(g, single, options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				close(running)
				<-finish
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte(`{"id":"ch_1"}`))
		})))
		send := func(header http.Header, body string) *http.Response {
			t.Helper()
			r, err := http.NewRequest("POST", server.URL+"/charges", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = header
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Response(resp.StatusCode, resp.Header, string(answer)); err != nil {
				t.Errorf("%s: %d %v %s: %v", name, resp.StatusCode, resp.Header, answer, err)
			}
			return resp
		}
		refused, accepted := 0, 0
		for _, line := range lines {
			key := profile.Line(line, uuid, uuid)
			header := http.Header{"Content-Type": {"application/json"}}
			if key != "" {
				header.Set("Idempotency-Key", key)
			}
			err := a.Request(header, `{"amount":1}`)
			status := send(header, `{"amount":1}`).StatusCode
			if err != nil {
				refused++
			} else {
				accepted++
			}
			// A pattern is narrower than the syntax: keys with spaces and parameters after
			// a key are valid, but not recommended.
			narrow := strings.ContainsAny(key, " ;")
			if (err == nil) != (status == http.StatusCreated) && (err == nil || !narrow) {
				t.Errorf("%s: the handler answers the key %s with %d; the document's verdict is %v", name, key, status, err)
			}
		}
		if refused < 3 || accepted < 3 {
			t.Errorf("%s: %d keys were refused and %d accepted: one number is too small", name, refused, accepted)
		}

		key := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {profile.Spell(uuid)}}
		if resp := send(key, `{"amount":1}`); resp.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d is not a replay", name, resp.StatusCode)
		}
		if resp := send(key, `{"amount":2}`); resp.StatusCode != profile.Status("key-reused") {
			t.Errorf("%s: another request with the key gets %d", name, resp.StatusCode)
		}
		slow := key.Clone()
		slow.Set("X-Slow", "1")
		slow.Set("Idempotency-Key", profile.Spell(slowUUID))
		done := make(chan int)
		go func() { done <- send(slow, `{"amount":1}`).StatusCode }()
		select {
		case <-running:
		case <-time.After(kit.Patience):
			t.Fatalf("%s: the handler was not entered", name)
		}
		if resp := send(slow, `{"amount":1}`); resp.StatusCode != http.StatusConflict || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: while it runs: %d %v", name, resp.StatusCode, resp.Header)
		}
		close(finish)
		if status := <-done; status != http.StatusCreated {
			t.Errorf("%s: the slow request got %d", name, status)
		}
		server.Close()
	}
}
