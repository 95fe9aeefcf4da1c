package lambdahttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// inside runs another operation inside the handler's, which returns err.
func (w *world) inside(ctx context.Context, err error, during ...func(context.Context)) error {
	_, err = idempotent.Do(ctx, w.guard, idempotent.Key{Operation: "inner", Scope: "s", ID: "i", Fingerprint: idempotent.FingerprintBytes(nil)},
		func(ctx context.Context) (string, error) {
			for _, f := range during {
				f(ctx)
			}
			return "", err
		})
	return err
}

// The meaning of an error is the same as in package idempotent: for the record,
// for the response, and for the error to Lambda, which is returned unwrapped.
func TestErrorsDeclareAsInTheCore(t *testing.T) {
	t.Parallel()
	var (
		final       = idempotent.Final("closed", "The account is closed.")
		unknown     = idempotent.Unknown(errDown)
		notExecuted = idempotent.NotExecuted(errDown)
	)
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			err    error
			inner  bool // an inner operation returned it
			lambda bool // the error is returned to Lambda
			status int
			state  driver.State
		}{
			"a wrapped Final":        {err: fmt.Errorf("charge: %w", final), status: 422, state: driver.StateCompleted},
			"a joined Final":         {err: errors.Join(errDown, final), lambda: true, state: driver.StateUnknown},
			"a wrapped Unknown":      {err: fmt.Errorf("charge: %w", unknown), status: 503, state: driver.StateUnknown},
			"a joined Unknown":       {err: errors.Join(errDown, unknown), status: 503, state: driver.StateUnknown},
			"a wrapped NotExecuted":  {err: fmt.Errorf("charge: %w", notExecuted), lambda: true, state: driver.StateUnknown},
			"an inner Final":         {err: final, inner: true, lambda: true, state: driver.StateUnknown},
			"an inner NotExecuted":   {err: notExecuted, inner: true, lambda: true, state: driver.StateUnknown},
			"Unknown of NotExecuted": {err: idempotent.Unknown(notExecuted), status: 503, state: driver.StateUnknown},
			"NotExecuted of Unknown": {err: idempotent.NotExecuted(unknown), status: 503, state: driver.StateUnknown},
		} {
			w := newWorld(t, on)
			w.becomes(func(ctx context.Context, r request) (reply, error) {
				if c.inner {
					return reply{status: 503}, w.inside(ctx, c.err)
				}
				return reply{status: 503}, c.err
			})
			a, err := w.send(t.Context(), charge())
			switch {
			case on.carried != nil && c.lambda: // an http.Handler has already responded
				if err != nil || a.status != 503 {
					t.Errorf("%s: the caller got %d %v, want what was written", name, a.status, err)
				}
			case c.lambda && err != c.err:
				t.Errorf("%s: Lambda got %#v, want the error that the handler returned", name, err)
			case !c.lambda && (err != nil || a.status != c.status):
				t.Errorf("%s: the caller got %d %v, want %d", name, a.status, err, c.status)
			}
			w.becomes(created)
			if a := w.post(charge()); (a.status == 201) != (c.state == driver.StateRetryable) {
				t.Errorf("%s: a retry got %d, want the record %s", name, a.status, c.state)
			}
		}
	})
}

// A handler of this package inside another operation declares nothing for that
// operation, and responds as it does outside.
func TestAdapterInsideAnOperation(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, key := range []bool{true, false} {
			for name, c := range map[string]struct {
				err    error
				status int
			}{
				"Final":       {idempotent.Final("closed", ""), 422},
				"NotExecuted": {idempotent.NotExecuted(errDown), 0},
			} {
				w := newWorld(t, on)
				w.becomes(answers(0, c.err))
				r := charge()
				if !key {
					r = charge(without("idempotency-key"))
				}
				outer := idempotent.Key{Operation: "outer", Scope: "s", ID: "i", Fingerprint: idempotent.FingerprintBytes(nil)}
				var got reply
				for range 2 {
					_, _ = idempotent.Do(t.Context(), w.guard, outer, func(ctx context.Context) (string, error) {
						var err error
						got, err = w.send(ctx, r)
						return "", err
					})
				}
				if c.status != 0 && got.status != c.status || w.runs != 1 {
					t.Errorf("%s, key %t: got %d after %d runs", name, key, got.status, w.runs)
				}
			}
		}
		// A refusal of the guard gets a response too.
		w := newWorld(t, on)
		w.becomes(answers(502, nil))
		w.post(charge())
		var got reply
		_, err := idempotent.Do(t.Context(), w.guard, idempotent.Key{Operation: "outer", Scope: "s", ID: "j", Fingerprint: idempotent.FingerprintBytes(nil)}, func(ctx context.Context) (_ string, err error) {
			got, err = w.send(ctx, charge())
			return "", err
		})
		if err != nil || got.status != 409 || got.header["Retry-After"] == "" {
			t.Errorf("inside another operation the refusal got %d %v %v", got.status, got.header, err)
		}
	})
}

// NotExecuted applies to the operation whose handler called it, and not to the
// outer one.
func TestNotExecutedOfAnInnerOperation(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			if err := w.inside(ctx, nil, lambdahttp.NotExecuted); err != nil {
				return reply{}, err
			}
			return created(ctx, r)
		})
		w.post(charge())
		if a := w.post(charge()); a.header["Idempotent-Replayed"] != "true" || w.runs != 1 {
			t.Errorf("the retry got %d %v after %d runs, want the stored response", a.status, a.header, w.runs)
		}
		// Within a step that undoes itself it applies to the operation.
		w = newWorld(t, on)
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			_, _ = idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				lambdahttp.NotExecuted(ctx)
				return "", idempotent.NotExecuted(errDown)
			})
			return reply{status: 429}, nil
		})
		w.post(charge())
		w.becomes(created)
		if a := w.post(charge()); a.status != 201 || w.runs != 2 {
			t.Errorf("the retry got %d after %d runs", a.status, w.runs)
		}
	})
}

// An error that an inner operation sets with SetError is an error of the
// handler, whose outcome becomes unknown; it declares nothing else.
func TestSetErrorOfAnInnerOperation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"NotExecuted": {idempotent.NotExecuted(errDown), 0},
		"Final":       {idempotent.Final("closed", ""), 0},
		"Unknown":     {idempotent.Unknown(errDown), 0},
		"nothing":     {nil, 200},
	} {
		w := newWorld(t, wires[0])
		var told error
		h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) {
			o.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { told = err }
		})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.runs++
			_ = w.inside(r.Context(), nil, func(ctx context.Context) { lambdahttp.SetError(ctx, c.err) })
		}))
		for range 2 {
			out := &plainWriter{header: http.Header{}}
			h.ServeHTTP(out, keyed(t.Context()))
			if w.runs == 1 && out.status == 0 && !errors.Is(told, c.err) {
				t.Errorf("%s: ErrorHandler got %v", name, told)
			}
		}
		if w.runs != 1 {
			t.Errorf("%s: the handler ran %d times, want once", name, w.runs)
		}
	}
}
