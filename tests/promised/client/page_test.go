// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/once-lambda/once/idempotencyclient"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit/engine"
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

// responds returns a handler with a fixed status and body.
func responds(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// declares returns a handler that responds with a status and sets an error.
func declares(status int, err error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
		}
		lambdahttp.SetError(r.Context(), err)
	}
}

// secret is a handler whose response is not stored.
func secret(_ http.ResponseWriter, r *http.Request) { lambdahttp.NoStore(r.Context(), "") }

// The loop of docs/http-answers.md, unchanged but for its address and its pause: whatever the
// server answers, it ends with the answer to its request.
func TestLoop(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs/http-answers.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*? -d '(.*?)'.*?)^```$").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("found %d blocks of commands, want one", len(blocks))
	}
	loop, body := string(blocks[0][1]), string(blocks[0][2])
	const key, charge = "8e03978e-40d5-43e8-bc93-6894a57f9324", `{"id":"ch_1"}`
	errBroken := errors.New("broken")
	created := responds(201, charge)
	stripe := func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }
	accepting := func(o *lambdahttp.Options) {
		o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "" }
	}
	for name, row := range map[string]struct {
		ends    string             // the status and the body
		runs    []http.HandlerFunc // the handler's, one after the other
		options func(*lambdahttp.Options)
		running bool // until the loop was answered twice, an earlier request runs
		unknown bool // until the loop was answered twice, the outcome is unknown
		lost    bool // the first answer is lost
	}{
		"201":                    {ends: "201 " + charge, runs: []http.HandlerFunc{created}},
		"400":                    {ends: "400 no", runs: []http.HandlerFunc{responds(400, "no")}},
		"404":                    {ends: "404 no", runs: []http.HandlerFunc{responds(404, "no")}},
		"its own 202":            {ends: "202 queued", runs: []http.HandlerFunc{responds(202, "queued")}},
		"its own 409":            {ends: "409 sold out", runs: []http.HandlerFunc{responds(409, "sold out")}},
		"501":                    {ends: "501 no", runs: []http.HandlerFunc{responds(501, "no")}},
		"505":                    {ends: "505 no", runs: []http.HandlerFunc{responds(505, "no")}},
		"500 in Stripe":          {ends: "500 no", runs: []http.HandlerFunc{responds(500, "no")}, options: stripe},
		"final":                  {ends: "422 ", runs: []http.HandlerFunc{declares(0, idempotent.Final("declined", "No."))}},
		"no answer":              {ends: "201 " + charge, runs: []http.HandlerFunc{created}, lost: true},
		"in progress":            {ends: "201 " + charge, runs: []http.HandlerFunc{created}, running: true},
		"in progress in Stripe":  {ends: "201 " + charge, runs: []http.HandlerFunc{created}, running: true, options: stripe},
		"accepted":               {ends: "201 " + charge, runs: []http.HandlerFunc{created}, running: true, options: accepting},
		"unknown":                {ends: "201 " + charge, runs: []http.HandlerFunc{declares(500, idempotent.Unknown(errBroken))}, unknown: true},
		"503, nothing was done":  {ends: "201 " + charge, runs: []http.HandlerFunc{declares(503, idempotent.NotExecuted(errBroken)), created}},
		"the response is secret": {ends: "409 ", runs: []http.HandlerFunc{secret}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
			if err != nil {
				t.Fatal(err)
			}
			var runs, answers atomic.Int32
			var record idempotent.RecordID
			began, twice := make(chan struct{}), make(chan struct{})
			guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
				if row.options != nil {
					row.options(o)
				}
				o.Scope = lambdahttp.SingleTenant
			})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				run := int(runs.Add(1))
				if row.running {
					close(began)
					<-twice
				}
				if e, ok := idempotent.FromContext(r.Context()); ok {
					record = e.RecordID()
				}
				row.runs[min(run, len(row.runs))-1](w, r)
			}))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := answers.Add(1)
				switch {
				case n == 1 && row.lost:
					guarded.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler)
				case n == 3 && row.unknown:
					if err := guard.Resolve(r.Context(), record, lambdahttp.Resolved(lambdahttp.Response{Status: 201, Body: []byte(charge)})); err != nil {
						t.Error(err)
					}
				case n == 20: // the loop does not end
					w.Header().Set("Idempotent-Replayed", "true")
					w.WriteHeader(http.StatusTeapot)
					return
				}
				guarded.ServeHTTP(w, r)
				if n == 2 {
					close(twice)
				}
			}))
			t.Cleanup(server.Close)
			if row.running {
				go func() {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Idempotency-Key", `"`+key+`"`)
					guarded.ServeHTTP(httptest.NewRecorder(), r)
				}()
				<-began
			}
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", "TOKEN=t\nuuidgen() { echo "+key+"; }\nsleep() { command sleep 0.01; }\n"+
				strings.ReplaceAll(loop, "https://api.example.com", server.URL)+"\necho \"$status $(cat answer.json)\"")
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), row.ends) || int(runs.Load()) != len(row.runs) {
				t.Errorf("the loop ended with %q (%v) after %d answers and %d runs, want %q", out, err, answers.Load(), runs.Load(), row.ends)
			}
		})
	}
}
