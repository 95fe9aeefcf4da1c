package lambdahttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// site is a real server whose handler is behind the middleware.
type site struct {
	*world
	url    string
	client *http.Client
	close  func() // waits until all exchanges have ended
}

// newSite serves h behind Middleware, wrapped by around unless that is nil.
func newSite(t *testing.T, h http.HandlerFunc, around func(http.Handler) http.Handler, optFns ...func(*lambdahttp.Options)) *site {
	t.Helper()
	w := newWorld(t, wires[0])
	optFns = append([]func(*lambdahttp.Options){single}, optFns...)
	guarded := lambdahttp.Middleware(w.guard, optFns...)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.runs++
		w.mu.Unlock()
		h(rw, r)
	}))
	if around != nil {
		guarded = around(guarded)
	}
	server := httptest.NewUnstartedServer(guarded)
	server.Config.ErrorLog = discard
	server.Start()
	t.Cleanup(server.Close)
	return &site{w, server.URL, server.Client(), server.Close}
}

// request returns a POST with keyA.
func (s *site) request(ctx context.Context, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/charges", body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", `"`+keyA+`"`)
	return r
}

// do sends a POST with keyA and returns the response, with its body read.
func (s *site) do(body string) (*http.Response, string) {
	s.t.Helper()
	return s.send(s.request(s.t.Context(), strings.NewReader(body)))
}

func (s *site) send(r *http.Request) (*http.Response, string) {
	s.t.Helper()
	a, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return a, string(got)
}

// wantUnavailable repeats the request, whose outcome must be stored without a
// response.
func (s *site) wantUnavailable(body string) {
	s.t.Helper()
	rec := s.store.record(s.t)
	if rec == nil || rec.State != driver.StateCompleted || rec.Encoding != driver.EncodingOmitted {
		s.t.Fatalf("the record is %+v, want completed, with its result omitted", rec)
	}
	a, problem := s.do(body)
	if a.StatusCode != 409 || !strings.Contains(problem, "replay-unavailable") || s.runs != 1 {
		s.t.Errorf("the retry got %d %s after %d runs, want 409 replay-unavailable after 1", a.StatusCode, problem, s.runs)
	}
}

// keyed returns a POST with keyA that needs no server.
func keyed(ctx context.Context) *http.Request {
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/charges"}, Header: http.Header{"Idempotency-Key": {`"` + keyA + `"`}}, Body: http.NoBody}
	return r.WithContext(ctx)
}
