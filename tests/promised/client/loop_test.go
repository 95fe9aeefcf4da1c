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

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdahttp"
)

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
