// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

const (
	keyA = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	keyB = "clkyoesmbgybucifusbbtdsbohtyuuwz"
)

// fixture is one handler behind one event type, with a clock and a store that can
// fail.
type fixture struct {
	t     *testing.T
	on    wire
	clock idempotenttest.Clock
	seen  idempotenttest.Recorder
	store *faultyStore
	harm  func(context.Context, *idempotenttest.StoreCall) // what the store does; nil: it works
	guard *idempotent.Guard
	send  sender
	// options are those of the handler.
	options []func(*lambdahttp.Options)
	// ticks is when the clock of the guard began to run with that of the system; zero: it stands.
	ticks time.Time

	mu     sync.Mutex
	runs   int
	handle handler
}

// newFixture returns a fixture whose handler responds with 201 until w.handle
// changes it.
func newFixture(t *testing.T, on wire, optFns ...func(*lambdahttp.Options)) *fixture {
	t.Helper()
	return newFixtureWith(t, on, func(*idempotent.Options) {}, optFns...)
}

// newFixtureWith is newFixture with a guard that change changes.
func newFixtureWith(t *testing.T, on wire, change func(*idempotent.Options), optFns ...func(*lambdahttp.Options)) *fixture {
	t.Helper()
	w := &fixture{t: t, on: on, store: &faultyStore{Store: memstore.New()}, handle: created}
	guard, err := idempotent.New(idempotenttest.Intercept(idempotenttest.Intercept(w.store, w.store.hook), func(ctx context.Context, c *idempotenttest.StoreCall) {
		if w.harm == nil {
			c.Do(ctx)
			return
		}
		w.harm(ctx, c)
	}), func(o *idempotent.Options) {
		o.Now = w.now
		o.Logger = slog.New(slog.DiscardHandler)
		o.Observer = &w.seen
		change(o)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.guard = guard
	optFns = append([]func(*lambdahttp.Options){func(o *lambdahttp.Options) { o.Scope = on.scope }}, optFns...)
	w.options = optFns
	w.send = on.build(guard, func(ctx context.Context, r request) (reply, error) {
		w.mu.Lock()
		w.runs++
		h := w.handle
		w.mu.Unlock()
		return h(ctx, r)
	}, optFns...)
	return w
}

func (w *fixture) now() time.Time {
	if w.ticks.IsZero() {
		return w.clock.Now()
	}
	return w.clock.Now().Add(time.Since(w.ticks))
}

// logsTo lets a guard log to log.
func logsTo(log *bytes.Buffer) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

// post sends r and fails the test if an error is returned to Lambda.
func (w *fixture) post(r request) reply {
	w.t.Helper()
	a, err := w.send(w.t.Context(), r)
	if err != nil {
		w.t.Errorf("an error was returned to Lambda: %v", err)
	}
	return a
}

// becomes changes the handler.
func (w *fixture) becomes(h handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handle = h
}

// charge is a valid request with keyA, changed by mods.
func charge(mods ...func(*request)) request {
	r := request{
		method: "POST", path: "/charges", route: "/charges", query: "expand=customer&dry_run=false",
		header: map[string]string{"content-type": "application/json", "idempotency-key": `"` + keyA + `"`},
		body:   `{"amount":1250,"currency":"EUR"}`,
		caller: "merchant-1",
	}
	for _, f := range mods {
		f(&r)
	}
	return r
}

func withKey(value string) func(*request) { return withHeader("idempotency-key", value) }

func withHeader(name, value string) func(*request) {
	return func(r *request) { r.header = maps.Clone(r.header); r.header[name] = value }
}

func without(name string) func(*request) {
	return func(r *request) { r.header = maps.Clone(r.header); delete(r.header, name) }
}

func withBody(body string) func(*request) { return func(r *request) { r.body = body } }

func withCaller(caller string) func(*request) { return func(r *request) { r.caller = caller } }

// created is a handler that responds with 201 and everything that a response
// can have.
func created(ctx context.Context, _ request) (reply, error) {
	if e, ok := idempotent.FromContext(ctx); ok {
		e.SetRef("/charges/ch_1")
	}
	return reply{
		status:  201,
		header:  map[string]string{"content-type": "application/json", "Location": "/charges/ch_1", "x-charge-id": "ch_1", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"},
		body:    `{"id":"ch_1"}`,
		cookies: []string{"session=1"},
	}, nil
}

// answers is a handler with a fixed status and error.
func answers(status int, err error) handler {
	return func(ctx context.Context, r request) (reply, error) {
		a, _ := created(ctx, r)
		a.status = status
		return a, err
	}
}

var errDown = errors.New("the store is down")

// faultyStore is a store whose calls by a guard can fail. It remembers the id of the last
// record that was inserted.
type faultyStore struct {
	driver.Store

	mu         sync.Mutex
	calls      int
	last       idempotent.RecordID
	insertErr  error // Insert fails with it
	replaceErr error // Replace fails with it
	noResults  bool  // a record with a result is too large
}

func (s *faultyStore) set(f func(*faultyStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *faultyStore) hook(ctx context.Context, c *idempotenttest.StoreCall) {
	s.mu.Lock()
	switch {
	case c.Op == driver.OpInsert:
		s.calls++
		s.last, c.Err = c.Record.ID, s.insertErr
	case c.Op == driver.OpReplace:
		s.calls++
		if c.Err = s.replaceErr; s.noResults && len(c.Record.Result) > 0 {
			c.Err = driver.ErrTooLarge
		}
	}
	s.mu.Unlock()
	if c.Err == nil {
		c.Do(ctx)
	}
}

// record returns the record that was last requested, or nil.
func (s *faultyStore) record(t *testing.T) *driver.Record {
	t.Helper()
	s.mu.Lock()
	id := s.last
	s.mu.Unlock()
	if id == "" {
		return nil
	}
	r, err := s.Store.Get(t.Context(), id)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func withMethod(method string) func(*request) { return func(r *request) { r.method = method } }

// duringRun is a handler that calls f before it responds with 201.
func duringRun(f func()) handler {
	return func(ctx context.Context, r request) (reply, error) {
		f()
		return created(ctx, r)
	}
}

// site is a real server whose handler is behind the middleware.
type site struct {
	*fixture
	url    string
	client *http.Client
	close  func() // waits until all exchanges have ended
}

// newSite serves h behind Middleware, wrapped by around unless that is nil.
func newSite(t *testing.T, h http.HandlerFunc, around func(http.Handler) http.Handler, optFns ...func(*lambdahttp.Options)) *site {
	t.Helper()
	w := newFixture(t, wires[0])
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

// wantReason checks that an observer got the reason why the response was not stored.
func (s *site) wantReason(reason string) {
	s.t.Helper()
	if !slices.ContainsFunc(s.seen.Events(), func(e event.Event) bool {
		return e.Kind == event.CompletionFailed && e.Err != nil && strings.Contains(e.Err.Error(), reason)
	}) {
		s.t.Errorf("no event has the reason %q: %v", reason, s.seen.Events())
	}
}

// keyed returns a POST with keyA that needs no server.
func keyed(ctx context.Context) *http.Request {
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/charges"}, Header: http.Header{"Idempotency-Key": {`"` + keyA + `"`}}, Body: http.NoBody}
	return r.WithContext(ctx)
}

// through serves a request by h behind Middleware, and returns what was written, and the
// error that the ErrorHandler got.
func (w *fixture) through(h http.HandlerFunc, r *http.Request, optFns ...func(*lambdahttp.Options)) (out *plainWriter, failed error) {
	out = &plainWriter{header: http.Header{}}
	optFns = append([]func(*lambdahttp.Options){single, func(o *lambdahttp.Options) {
		o.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err }
	}}, optFns...)
	lambdahttp.Middleware(w.guard, optFns...)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.runs++
		h(rw, r)
	})).ServeHTTP(out, r)
	return out, failed
}
