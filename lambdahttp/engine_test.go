// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdahttp"
)

// uncomparable is an error type on which == panics.
type uncomparable []string

func (uncomparable) Error() string { return "uncomparable" }

// The handler's own errors are returned to Lambda unchanged, with and without a
// key.
func TestHandlerErrorsAreUntouched(t *testing.T) {
	t.Parallel()
	inner := idempotent.Key{Operation: "inner", Scope: "s", ID: "i"}.RecordID()
	for name, err := range map[string]error{
		"plain":                  errDown,
		"NotExecuted":            idempotent.NotExecuted(errDown),
		"Unknown":                idempotent.Unknown(errDown),
		"uncomparable":           uncomparable{"x"},
		"of a guard inside":      &idempotent.InProgressError{RecordID: inner},
		"of a lease inside":      &idempotent.LeaseLostError{RecordID: inner},
		"of a replay inside":     &idempotent.ReplayUnavailableError{RecordID: inner},
		"no key inside":          &idempotent.InvalidKeyError{Field: "ID"},
		"of a store inside":      &idempotent.StoreError{RecordID: inner, Err: errDown},
		"Final, but not outside": errors.Join(idempotent.Final("a", "b")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				for _, mod := range []func(*request){withKey(`"` + keyA + `"`), without("idempotency-key"), withMethod("GET")} {
					w := newFixture(t, on, optional)
					w.becomes(func(context.Context, request) (reply, error) { return reply{}, err })
					_, got := w.send(t.Context(), charge(mod))
					if list, ok := err.(uncomparable); ok {
						if gotList, ok := got.(uncomparable); !ok || gotList[0] != list[0] {
							t.Errorf("got %v, want %v", got, err)
						}
					} else if got != err {
						t.Errorf("got %v, want the handler's %v", got, err)
					}
				}
			})
		})
	}
}

// A handler can report that the work of its own record continues elsewhere. The
// caller gets the answer for a request in progress; nothing is stored of it, and
// the next request continues.
func TestWorkThatContinuesElsewhere(t *testing.T) {
	t.Parallel()
	for location, status := range map[string]int{"": 409, "/charges/1": 202} {
		onEachWire(t, func(t *testing.T, on wire) {
			w := newFixture(t, on, resume, func(o *lambdahttp.Options) {
				if location != "" {
					o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return location }
				}
			})
			w.becomes(func(ctx context.Context, _ request) (reply, error) {
				if _, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "begun", nil }); err != nil {
					return reply{}, err
				}
				own, _ := idempotent.FromContext(ctx)
				return reply{}, fmt.Errorf("running: %w", &idempotent.InProgressError{RecordID: own.RecordID(), RetryAfter: 7 * time.Second})
			})
			for range 2 {
				a := w.post(charge())
				if a.status != status || a.header["Retry-After"] != "7" || a.header["Location"] != location || strings.Contains(a.body, "until") {
					t.Errorf("got %d %v %s", a.status, a.header, a.body)
				}
			}
			w.becomes(created)
			if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "" || w.runs != 3 {
				t.Errorf("got %d %v after %d runs", a.status, a.header, w.runs)
			}
		})
	}
}

// A handler can return the same errors whether or not its request has a key. Such a
// request does not call the store.
func TestDeclaredAnswersWithoutKey(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, mod := range []func(*request){without("idempotency-key"), withMethod("GET")} {
			w := newFixture(t, on, optional)
			w.becomes(answers(0, idempotent.Final("closed", "The account is closed.")))
			if a := w.post(charge(mod)); a.status != 422 || !strings.Contains(a.body, `"code":"closed"`) || a.header["Idempotency-Status"] != "" {
				t.Errorf("a Final error became %d %v %s", a.status, a.header, a.body)
			}
			for status, h := range map[int]handler{503: refusal(503), 201: secret("x")} {
				w.becomes(h)
				if a := w.post(charge(mod)); a.status != status || a.header["Idempotency-Status"] != "" || w.store.calls != 0 {
					t.Errorf("a declared response became %d %v", a.status, a.header)
				}
			}
		}
	})
	lambdahttp.NoStore(t.Context(), "x")
}

// The header is set on a copy of the handler's map, and also if the handler has
// no headers.
func TestNotStoredLeavesTheHandlersMap(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		shared := map[string]string{"content-type": "text/plain"}
		for _, h := range []map[string]string{shared, nil} {
			w := newFixture(t, on)
			w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
			w.becomes(func(context.Context, request) (reply, error) { return reply{status: 200, header: h}, nil })
			if a := w.post(charge()); a.header["Idempotency-Status"] != "not-stored" || len(a.header) != len(h)+1 {
				t.Errorf("headers %v", a.header)
			}
		}
		if len(shared) != 1 {
			t.Errorf("the handler's map was changed: %v", shared)
		}
	})
}

// A response that no gateway can deliver counts as a server error, whatever the rule for
// these is. Observers get the reason.
func TestUndeliverableResponses(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, a := range map[string]reply{
			"no status":     {},
			"informational": {status: 101},
			"status 600":    {status: 600},
			"broken base64": {status: 200, body: "%", base64: true},
		} {
			if _, ok := on.carries(a); !ok {
				continue // net/http cannot express it
			}
			w := newFixture(t, on, serverErrors(lambdahttp.StoreServerErrors))
			w.becomes(func(context.Context, request) (reply, error) { return a, nil })
			if got := w.post(charge()); got.status != a.status || got.body != a.body {
				t.Errorf("%s: the caller got %+v, want %+v", name, got, a)
			}
			w.wantRecord(1, "unknown")
			var why error
			for _, e := range w.seen.Events() {
				if e.Err != nil {
					why = e.Err
				}
			}
			says := map[bool]string{true: "no gateway can deliver", false: "not stored: the handler returned status"}[a.base64]
			if why == nil || !strings.Contains(why.Error(), says) || a.base64 && errors.Unwrap(why) == nil {
				t.Errorf("%s: observers got the error %v", name, why)
			}
		}
	})
}

// Errors of the scope and of the operation are programming errors, and are
// returned to Lambda.
func TestProgramMistakesGoToLambda(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "x", errDown }
		})
		if _, err := w.send(t.Context(), charge()); err != errDown || w.runs != 0 || w.store.calls != 0 {
			t.Errorf("got %v after %d runs, want the scope's error", err, w.runs)
		}
		w = newFixture(t, on, func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "" } })
		for _, mod := range []func(*request){withKey(`"` + keyA + `"`), without("idempotency-key")} {
			if _, err := w.send(t.Context(), charge(mod)); !errors.As(err, new(*idempotent.InvalidKeyError)) || w.runs != 0 {
				t.Errorf("got %v after %d runs, want InvalidKeyError", err, w.runs)
			}
		}
	})
}

func TestDisabledGuard(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		var log bytes.Buffer
		w := newFixtureWith(t, on, func(o *idempotent.Options) {
			logsTo(&log)(o)
			o.Disabled = true
		}, telling)
		for _, key := range []string{`"` + keyA + `"`, `"` + keyA + `"`, "broken"} {
			if a := w.post(charge(withKey(key))); a.status != 201 || a.header["Idempotency-Status"] != "ignored" {
				t.Errorf("key %s: got %d %v", key, a.status, a.header)
			}
		}
		w.wantRecord(3, "")
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "Options.Disabled is set") {
			t.Errorf("logged %q, want one line about Options.Disabled", text)
		}
	})
}

// Events and records have the gateway's request id, unless the guard sets
// another.
func TestRequestID(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.post(charge())
		if got := w.store.record(t).RequestID; got != "req-1" {
			t.Errorf("the record names request %q", got)
		}
		w.post(charge(without("idempotency-key")))
		for _, e := range w.seen.Events() {
			if e.RequestID != "req-1" {
				t.Errorf("event %s names request %q", e.Kind, e.RequestID)
			}
		}
		w = newFixtureWith(t, on, func(o *idempotent.Options) { o.RequestID = func(context.Context) string { return "mine" } })
		w.post(charge())
		if got := w.store.record(t).RequestID; got != "mine" {
			t.Errorf("the record names request %q", got)
		}
	})
}

// FM05, FM06, FM07.
func TestFM05ConcurrentRequestsRunOnce(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		const requests = 64
		w := newFixture(t, on)
		others := make(chan struct{}) // closed when all other requests have a response
		w.becomes(duringRun(func() { <-others }))
		replies := make(chan reply, requests)
		for range requests {
			go func() { replies <- w.post(charge()) }()
		}
		for range requests - 1 {
			if a := <-replies; a.status != 409 {
				t.Errorf("status %d beside the running request, want 409", a.status)
			}
		}
		if a := w.post(charge(withBody("{}"))); a.status != 422 {
			t.Errorf("status %d for another request, want 422: a mismatch comes before the state", a.status)
		}
		close(others)
		if a := <-replies; a.status != 201 || a.header["Idempotent-Replayed"] != "" {
			t.Errorf("the owner got %d %v, want its own 201", a.status, a.header)
		}
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" {
					t.Errorf("got %d %v, want a replayed 201", a.status, a.header)
				}
			})
		}
		wg.Wait()
		if a := w.post(charge(withBody("{}"))); a.status != 422 {
			t.Errorf("status %d for another request, want 422", a.status)
		}
		w.wantRecord(1, "completed")
	})
}

// FM31.
func TestFM31PanicGoesOn(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.becomes(duringRun(func() { panic("boom") }))
		if got := panics(func() { w.post(charge()) }); got != "boom" {
			t.Errorf("recovered %q, want the handler's panic", got)
		}
		w.wantRecord(1, "unknown")
	})
}

// inside runs another operation inside the handler's, which returns err.
func (w *fixture) inside(ctx context.Context, err error, during ...func(context.Context)) error {
	_, err = idempotent.Do(ctx, w.guard, operationKey("inner"), func(ctx context.Context) (string, error) {
		for _, f := range during {
			f(ctx)
		}
		return "", err
	})
	return err
}

func operationKey(operation string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: "s", ID: "i", Fingerprint: idempotent.FingerprintBytes(nil)}
}

// A method that is guarded in upper case only does not run unguarded: the handler may
// read it in any letter case.
func TestMethodInAnotherLetterCase(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		for method, runs := range map[string]int{"post": 0, "Patch": 0, "get": 1} {
			w.runs = 0
			if a := w.post(charge(withMethod(method))); w.runs != runs || (a.status == 501) != (runs == 0) || runs == 0 && !strings.Contains(a.body, "Send P") {
				t.Errorf("%s: got %d %s after %d runs", method, a.status, a.body, w.runs)
			}
		}
	})
}

// A guard around a guarded handler of the same request is a programming error. Nothing
// has run, and the key is free.
func TestGuardedTwice(t *testing.T) {
	t.Parallel()
	const says = `the operation "POST (no route)" is guarded twice for one request`
	g, runs := newGuard(t), 0
	guarded := lambdahttp.Middleware(g, quiet)
	once := guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
	onceURL := lambdahttp.FunctionURL(g, func(context.Context, urlEvent) (urlAnswer, error) {
		runs++
		return urlAnswer{StatusCode: 200}, nil
	}, single)
	request := events.LambdaFunctionURLRequest{RawPath: "/", Headers: map[string]string{"idempotency-key": `"` + keyB + `"`}}
	request.RequestContext.HTTP.Method = "POST"
	for range 2 {
		out := httptest.NewRecorder()
		if guarded(once).ServeHTTP(out, keyed(t.Context())); out.Code != 500 || !strings.Contains(out.Body.String(), says) || runs != 0 {
			t.Errorf("Middleware: got %d %s after %d runs", out.Code, out.Body, runs)
		}
		if _, err := lambdahttp.FunctionURL(g, onceURL, single)(t.Context(), request); err == nil || !strings.Contains(err.Error(), says) || runs != 0 {
			t.Errorf("FunctionURL: got %v after %d runs", err, runs)
		}
	}
	// The error of another guard inside is its own handler's.
	other := lambdahttp.Middleware(g, func(o *lambdahttp.Options) {
		o.Operation = func(*lambdahttp.Request) string { return "other" }
		o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "", errDown }
		o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusNoContent) }
	})(once)
	r := keyed(t.Context())
	r.Header.Set("Idempotency-Key", `"`+keyB+`"`)
	for i := range 2 {
		out := httptest.NewRecorder()
		if guarded(other).ServeHTTP(out, r); out.Code != http.StatusNoContent || (out.Header().Get("Idempotent-Replayed") != "") != (i == 1) {
			t.Errorf("another guard inside: got %d %v", out.Code, out.Header())
		}
	}
	out := httptest.NewRecorder()
	once.ServeHTTP(out, keyed(t.Context()))
	if a, err := onceURL(t.Context(), request); out.Code != 200 || a.StatusCode != 200 || err != nil || runs != 2 {
		t.Errorf("guarded once: got %d, and %d %v, after %d runs", out.Code, a.StatusCode, err, runs)
	}
}

// A handler of this package inside another operation declares nothing for that
// operation, and responds as it does outside.
func TestAdapterInsideAnOperation(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		sendInside := func(outer *idempotent.Guard, w *fixture, r request) (got reply, err error) {
			_, _ = idempotent.Do(t.Context(), outer, operationKey("outer"), func(ctx context.Context) (string, error) {
				got, err = w.send(ctx, r)
				return "", err
			})
			return got, err
		}
		for which, sent := range map[string]struct {
			r        request
			disabled bool
		}{"guarded": {charge(), false}, "without a key": {charge(without("idempotency-key")), false}, "disabled": {charge(), true}} {
			for status, err := range map[int]error{422: idempotent.Final("closed", ""), 0: idempotent.NotExecuted(errDown)} {
				w := newFixtureWith(t, on, func(o *idempotent.Options) { o.Disabled = sent.disabled }, optional)
				w.becomes(answers(0, err))
				outer := newGuard(t)
				first, _ := sendInside(outer, w, sent.r)
				sendInside(outer, w, sent.r)
				if status != 0 && first.status != status || w.runs != 1 {
					t.Errorf("%v, %s: got %d after %d runs", err, which, first.status, w.runs)
				}
			}
		}
		w := newFixture(t, on)
		with(answers(502, nil), once())(w)
		if got, err := sendInside(w.guard, w, charge()); err != nil || got.status != 409 || got.header["Retry-After"] == "" {
			t.Errorf("a refusal of the guard inside another operation: got %d %v %v", got.status, got.header, err)
		}
	})
}

// F11, F25: the key, the caller, the path and the content of a request are
// identified by their hashes. No record, log line or event contains them,
// whatever the outcome, even if no route is known.
func TestRequestsAreNotKept(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		var log, told bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w := newFixtureWith(t, on, func(o *idempotent.Options) {
			o.Logger = logger
			o.Observer = event.Observers(event.LogObserver(logger), event.ObserverFunc(func(_ context.Context, e event.Event) {
				fmt.Fprintf(&told, "%+v %v\n", e, e.Err)
			}))
		}, func(o *lambdahttp.Options) { o.Profile.Syntax = lambdahttp.QuotedOrBareKey })
		var mu sync.Mutex
		var kept bytes.Buffer
		w.store.set(func(s *faultyStore) {
			s.Store = idempotenttest.Intercept(s.Store, func(ctx context.Context, c *idempotenttest.StoreCall) {
				mu.Lock()
				fmt.Fprintf(&kept, "%+v %s\n", c.Record, c.Record.Result)
				mu.Unlock()
				c.Do(ctx)
			})
		})

		private := func(r *request) {
			r.query = "promo=private-query"
			to("", "/customers/ana@example.com/charges")(r)
		}
		r := charge(withBody(`{"card":"4242424242424242"}`), private)
		again := func(key string) request {
			return charge(withBody(r.body), withKey(key), private)
		}
		w.becomes(duringRun(func() { w.post(r) })) // the second one gets Retry-After
		for _, next := range []request{r, r, charge(withBody(`{"card":"5555555555554444"}`), private)} {
			w.post(next) // runs, is replayed, is refused as a mismatch
		}
		for _, err := range []error{idempotent.NotExecuted(errDown), idempotent.Unknown(errDown), nil} {
			w.becomes(answers(503, err))
			w.post(again(keyB)) // becomes retryable, is taken over and becomes unknown, is refused
		}
		w.post(again("too short"))
		w.store.set(func(s *faultyStore) { s.insertErr = errDown })
		w.post(again("third-key-of-the-test"))
		w.store.set(func(s *faultyStore) { s.insertErr, s.replaceErr = nil, errDown })
		w.post(again("fourth-key-of-the-test"))

		for what, text := range map[string]struct{ holds, has string }{
			"the store":  {kept.String(), "ch_1"},
			"the log":    {log.String(), "event=mismatch"},
			"the events": {told.String(), string(event.Unresolved)},
		} {
			if !strings.Contains(text.holds, text.has) {
				t.Errorf("%s has no %q, so the test did not exercise it:\n%s", what, text.has, text.holds)
			}
			for _, private := range []string{keyA, keyB, "key-of-the-test", "too short", "merchant-1", "4242424242424242", "5555555555554444", "private-query", "ana"} {
				if strings.Contains(text.holds, private) {
					t.Errorf("%s contains %q", what, private)
				}
			}
		}
	})
}
