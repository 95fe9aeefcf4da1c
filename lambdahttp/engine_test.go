package lambdahttp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
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
		"no key inside":          &idempotent.NoKeyError{Operation: "inner"},
		"of a store inside":      &idempotent.StoreError{RecordID: inner, Err: errDown},
		"Final, but not outside": errors.Join(idempotent.Final("a", "b")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				for _, mod := range []func(*request){withKey(`"` + keyA + `"`), without("idempotency-key"), withMethod("GET")} {
					w := newWorld(t, on)
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

// A handler can return the same errors whether or not its request has a key.
func TestDeclaredAnswersWithoutKey(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, mod := range []func(*request){without("idempotency-key"), withMethod("GET")} {
			w := newWorld(t, on)
			w.becomes(answers(0, idempotent.Final("closed", "The account is closed.")))
			if a := w.post(charge(mod)); a.status != 422 || !strings.Contains(a.body, `"code":"closed"`) || a.header["Idempotency-Status"] != "" {
				t.Errorf("a Final error became %d %v %s", a.status, a.header, a.body)
			}
			w.becomes(answers(503, idempotent.NotExecuted(errDown)))
			if a := w.post(charge(mod)); a.status != 503 {
				t.Errorf("a response with NotExecuted became %d", a.status)
			}
		}
	})
}

// A Final error that could not be stored is marked as not stored, like a
// response.
func TestFinalNotStored(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		w.becomes(answers(0, idempotent.Final("closed", "")))
		a := w.post(charge())
		if a.status != 422 || a.header["Idempotency-Status"] != "not-stored" || !strings.Contains(a.body, `"detail":"The request was processed and refused.`) {
			t.Errorf("got %d %v %s", a.status, a.header, a.body)
		}
	})
}

// The header is set on a copy of the handler's map, and also if the handler has
// no headers.
func TestNotStoredLeavesTheHandlersMap(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		shared := map[string]string{"content-type": "text/plain"}
		for _, h := range []map[string]string{shared, nil} {
			w := newWorld(t, on)
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

// A response that no gateway can deliver counts as a server error.
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
			w := newWorld(t, on, serverErrors(lambdahttp.StoreServerErrors))
			w.becomes(func(context.Context, request) (reply, error) { return a, nil })
			if got := w.post(charge()); got.status != a.status || got.body != a.body {
				t.Errorf("%s: the caller got %+v, want %+v", name, got, a)
			}
			if got := w.store.record(t).State; got != driver.StateUnknown {
				t.Errorf("%s: the record is %s, want unknown", name, got)
			}
		}
	})
}

// F60: a replay has exactly the bytes of the first body.
func TestBodiesReplayByteForByte(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, a := range map[string]reply{
			"binary":         {status: 200, body: "iVBORw0KGgo=", base64: true},
			"text":           {status: 200, body: "a\r\n\x00é<&>\u2028"},
			"text as base64": {status: 200, body: "aGVsbG8=", base64: true},
			"empty":          {status: 204},
			"empty base64":   {status: 200, base64: true},
			"large":          {status: 200, body: strings.Repeat("0123456789", 10_000)},
			"not UTF-8":      {status: 200, body: "\xff\xfe"},
		} {
			w := newWorld(t, on)
			w.becomes(func(context.Context, request) (reply, error) { return a, nil })
			a, _ := on.carries(a)
			if got := twice()(w); got.status != a.status || got.body != a.body || got.base64 != a.base64 || w.runs != 1 {
				t.Errorf("%s: replayed %d %.40q base64=%t, want %d %.40q base64=%t", name, got.status, got.body, got.base64, a.status, a.body, a.base64)
			}
		}
	})
}

// Errors of the scope and of the operation are programming errors, and are
// returned to Lambda.
func TestProgramMistakesGoToLambda(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, func(o *lambdahttp.Options) {
			o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "x", errDown }
		})
		if _, err := w.send(t.Context(), charge()); err != errDown || w.runs != 0 || w.store.calls != 0 {
			t.Errorf("got %v after %d runs, want the scope's error", err, w.runs)
		}
		w = newWorld(t, on, func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "" } })
		for _, mod := range []func(*request){withKey(`"` + keyA + `"`), without("idempotency-key")} {
			if _, err := w.send(t.Context(), charge(mod)); !errors.As(err, new(*idempotent.InvalidKeyError)) || w.runs != 0 {
				t.Errorf("got %v after %d runs, want InvalidKeyError", err, w.runs)
			}
		}
	})
}

func TestPassingThroughCallsNoStore(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.post(charge(withMethod("GET")))
		w.post(charge(withMethod("DELETE")))
		w.post(charge(without("idempotency-key")))
		if w.store.calls != 0 || w.runs != 3 {
			t.Errorf("%d calls of the store and %d runs, want 0 and 3", w.store.calls, w.runs)
		}
		if n := w.seen.Count(event.KeyMissing); n != 1 {
			t.Errorf("got %d events of a missing key, want 1 for the POST", n)
		}
	})
}

func TestDisabledGuard(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, required, func(o *lambdahttp.Options) {
			o.Guard = func(o *idempotent.Options) { o.Disabled = true }
		})
		for _, key := range []string{`"` + keyA + `"`, `"` + keyA + `"`, "broken"} {
			w.post(charge(withKey(key)))
		}
		if w.runs != 3 || w.store.calls != 0 {
			t.Errorf("%d runs and %d calls of the store, want 3 and 0", w.runs, w.store.calls)
		}
	})
}

// Events and records have the gateway's request id, unless the guard sets
// another.
func TestRequestID(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
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
		w = newWorld(t, on, guard(func(o *idempotent.Options) { o.RequestID = func(context.Context) string { return "mine" } }))
		w.post(charge())
		if got := w.store.record(t).RequestID; got != "mine" {
			t.Errorf("the record names request %q", got)
		}
	})
}

// An observer sees the status that settled a record, although no error was
// returned.
func TestObserverSeesTheStatus(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.becomes(answers(502, nil))
		w.post(charge())
		for _, e := range w.seen.Events() {
			if e.Kind == event.MarkedUnknown && e.Err != nil && strings.Contains(e.Err.Error(), "502") {
				return
			}
		}
		t.Errorf("no event has the status: %v", w.seen.Events())
	})
}
