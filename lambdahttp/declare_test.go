package lambdahttp_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdahttp"
)

// A secret that is shown once is not stored, and a retry does not run the
// handler again.
func TestFM55OneTimeSecret(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, profile := range profiles {
			w := newWorld(t, on, func(o *lambdahttp.Options) { o.Profile = profile })
			w.becomes(func(ctx context.Context, _ request) (reply, error) {
				lambdahttp.NoStore(ctx, "Roll the key to get a new \"secret\".")
				return reply{status: 201, header: map[string]string{"Location": "/keys/sk_live_1"}, body: "sk_live_1"}, nil
			})
			if a := w.post(charge()); a.status != 201 || a.body != "sk_live_1" || a.header["Idempotency-Status"] != "not-stored" {
				t.Errorf("the caller got %d %q %v", a.status, a.body, a.header)
			}
			if stored := w.store.record(t); stored.State != driver.StateCompleted || bytes.Contains(stored.Result, []byte("sk_live")) {
				t.Errorf("the record is %s and contains %q", stored.State, stored.Result)
			}
			for range 2 {
				a := w.post(charge())
				if a.status != 409 || strings.Contains(a.body, "sk_live") || !strings.Contains(a.body, `Roll the key to get a new \"secret\".`) || a.header["Idempotent-Replayed"] != "" {
					t.Errorf("the retry got %d %s %v", a.status, a.body, a.header)
				}
			}
			if a := w.post(charge(withBody("other"))); a.status != 422 && a.status != 400 {
				t.Errorf("another request got %d", a.status)
			}
			if w.runs != 1 || w.seen.Count(event.CompletionFailed) != 0 {
				t.Errorf("%d runs and %v", w.runs, w.seen.Kinds())
			}
			w.clock.Advance(25 * time.Hour)
			if a := w.post(charge()); a.status != 201 || w.runs != 2 {
				t.Errorf("after the retention: got %d after %d runs", a.status, w.runs)
			}
		}
	})
}

// The handler's error takes precedence over its declarations, a withheld
// response stays withheld, and a 5xx remains a 5xx.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	declared := func(status int, err error, says ...func(context.Context)) handler {
		return func(ctx context.Context, r request) (reply, error) {
			for _, f := range says {
				f(ctx)
			}
			return answers(status, err)(ctx, r)
		}
	}
	noStore := func(ctx context.Context) { lambdahttp.NoStore(ctx, "") }
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			h     handler
			state driver.State
			next  int
		}{
			"NoStore":                    {declared(201, nil, noStore), driver.StateCompleted, 409},
			"NotExecuted":                {declared(422, nil, lambdahttp.NotExecuted), driver.StateRetryable, 201},
			"both":                       {declared(201, nil, noStore, lambdahttp.NotExecuted), driver.StateCompleted, 409},
			"both, in the other order":   {declared(201, nil, lambdahttp.NotExecuted, noStore), driver.StateCompleted, 409},
			"NoStore with a 5xx":         {declared(502, nil, noStore), driver.StateUnknown, 409},
			"NotExecuted with a 5xx":     {declared(503, nil, lambdahttp.NotExecuted), driver.StateRetryable, 201},
			"NoStore with Unknown":       {declared(504, idempotent.Unknown(errDown), noStore), driver.StateUnknown, 409},
			"NotExecuted with Unknown":   {declared(504, idempotent.Unknown(errDown), lambdahttp.NotExecuted), driver.StateUnknown, 409},
			"NotExecuted with Final":     {declared(0, idempotent.Final("a", "b"), lambdahttp.NotExecuted), driver.StateCompleted, 422},
			"NotExecuted with no status": {declared(0, nil, lambdahttp.NotExecuted), driver.StateRetryable, 201},
			"NoStore, undeliverable":     {declared(600, nil, noStore), driver.StateUnknown, 409},
		} {
			w := newWorld(t, on)
			w.becomes(c.h)
			w.post(charge())
			if got := w.store.record(t).State; got != c.state {
				t.Errorf("%s: the record is %s, want %s", name, got, c.state)
			}
			w.becomes(created)
			if a := w.post(charge()); a.status != c.next {
				t.Errorf("%s: a retry got %d, want %d", name, a.status, c.next)
			}
		}
	})
}

// A declaration has no effect on an unguarded request.
func TestDeclarationsUnguarded(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		for _, h := range []handler{secret("x"), refusal(201)} {
			w.becomes(h)
			for _, mod := range []func(*request){without("idempotency-key"), withMethod("GET")} {
				if a := w.post(charge(mod)); a.status != 201 || a.header["Idempotency-Status"] != "" {
					t.Errorf("got %d %v", a.status, a.header)
				}
			}
		}
	})
	lambdahttp.NoStore(t.Context(), "x")
	lambdahttp.NotExecuted(t.Context())
}

// The stored form of a withheld response decodes, and other forms are refused.
func TestStoredFormOfWithheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	w.becomes(secret("\xff<a>"))
	w.post(charge())
	if got := string(w.store.record(t).Result); got != "{\"s\":201,\"w\":\"\uFFFD<a>\"}\n" {
		t.Errorf("stored as %q", got)
	}
	for _, data := range []string{"{\"s\":201,\"w\":null}\n", "{\"s\":201,\"w\":1}\n", "{\"w\":\"\",\"s\":201}\n", "{\"w\":\"\"}\n"} {
		if err := lambdahttp.Codec.Decode([]byte(data), &lambdahttp.Response{}); err == nil {
			t.Errorf("%q was decoded", data)
		}
	}
}
