// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// F63: BeforeReplay gets the retry and the stored response, once for each
// replay of a response and at no other time.
func TestBeforeReplay(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		asked := 0
		var refusal error
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.BeforeReplay = func(ctx context.Context, r *lambdahttp.Request, stored lambdahttp.Response) error {
				asked++
				if r.Path != "/charges" || stored.Status != 201 || string(stored.Body) != `{"id":"ch_1"}` || stored.Header.Get("Location") != "/charges/ch_1" || stored.Header.Get("Date") != "" || ctx.Err() != nil {
					t.Errorf("BeforeReplay was called with %+v for %+v", stored, r)
				}
				return refusal
			}
		})
		w.post(charge())
		w.post(charge(withBody("{}")))
		w.post(charge(withMethod("GET")))
		if asked != 0 {
			t.Errorf("BeforeReplay was called %d times without a replay", asked)
		}
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" || asked != 1 {
			t.Errorf("allowed: got %d %v after %d calls of BeforeReplay", a.status, a.header, asked)
		}
		refusal = lambdahttp.RefuseReplay("The charge was deleted")
		if a := w.post(charge()); a.status != 409 || a.header["Idempotent-Replayed"] != "" || a.header["Location"] != "" || !strings.Contains(a.body, `"detail":"The charge was deleted"`) {
			t.Errorf("refused: got %d %v %s", a.status, a.header, a.body)
		}
		refusal = errors.Join(errDown)
		if _, err := w.send(t.Context(), charge()); err != refusal {
			t.Errorf("failed: got %v, want the unchanged error", err)
		}
		refusal = nil
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("allowed again: got %d after %d runs", a.status, w.runs)
		}
	})
}

func TestBeforeReplayIsNotAskedAboutFinal(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, refusing(errDown))
		w.becomes(answers(0, idempotent.Final("closed", "The account is closed.")))
		w.post(charge())
		if a := w.post(charge()); a.status != 422 || a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("got %d %v %s", a.status, a.header, a.body)
		}
	})
	if got := lambdahttp.RefuseReplay("gone").Error(); !strings.Contains(got, "gone") {
		t.Errorf("got the error %q, want the detail in it", got)
	}
}

// transaction writes the record. In these tests it writes no other data.
type transaction = func(context.Context, driver.Record, driver.Version) (*driver.Record, error)

// lost is a transaction that never reached the store.
func lost(*fixture) transaction {
	return func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errDown }
}

// unanswered is a transaction that was applied, but whose reply was lost.
func unanswered(w *fixture) transaction {
	return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		if met, err := w.store.Replace(ctx, next, was); err != nil || met != nil {
			w.t.Errorf("the transaction got %v %v", met, err)
		}
		return nil, errDown
	}
}

var committed = lambdahttp.Response{Status: 201, Body: []byte(`{"id":"ch_1"}`)}

// careless is a handler that commits, ignores the error, and responds with 201.
// It commits once: a retry of its request commits nothing.
func (w *fixture) careless(write transaction) handler {
	return func(ctx context.Context, r request) (reply, error) {
		if w.runs == 1 {
			e, _ := idempotent.FromContext(ctx)
			_ = e.Commit(ctx, committed, write)
		}
		return created(ctx, r)
	}
}

// A handler that ignores a transaction in doubt cannot know that it succeeded.
// Its caller gets 409, outcome-unknown, with Retry-After.
func TestIgnoredDoubtIsNotSuccess(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			options func(*lambdahttp.Options)
			write   func(*fixture) transaction
			down    bool // the store fails until the request has its response
			step    bool // use CommitStep
			status  int
			state   driver.State
			retry   int
			runs    int
		}{
			"not applied":                      {write: lost, status: 409, state: driver.StateUnknown, retry: 409, runs: 1},
			"not applied, Rerun":               {options: rerun, write: lost, status: 409, state: driver.StateRetryable, retry: 201, runs: 2},
			"not applied, and the store fails": {write: lost, down: true, status: 409, state: driver.StateInProgress, retry: 409, runs: 1},
			"applied":                          {write: unanswered, status: 201, state: driver.StateCompleted, retry: 201, runs: 1},
			"applied, and the store fails":     {write: unanswered, down: true, status: 409, state: driver.StateCompleted, retry: 201, runs: 1},
			"a step":                           {write: lost, step: true, status: 409, state: driver.StateUnknown, retry: 409, runs: 1},
		} {
			optFns := []func(*lambdahttp.Options){telling}
			if c.options != nil {
				optFns = append(optFns, c.options)
			}
			w := newFixture(t, on, optFns...)
			write := func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				defer w.store.set(func(s *faultyStore) {
					if c.down {
						s.replaceErr = errDown
					}
				})
				return c.write(w)(ctx, next, was)
			}
			w.becomes(w.careless(write))
			if c.step {
				w.becomes(func(ctx context.Context, r request) (reply, error) {
					_, _ = idempotent.CommitStep(ctx, "order", "o-1", write)
					return created(ctx, r)
				})
			}
			a := w.post(charge())
			w.store.set(func(s *faultyStore) { s.replaceErr = nil })
			if a.status != c.status || a.header["Location"] != "" {
				t.Errorf("%s: the caller got %d %v, want %d", name, a.status, a.header, c.status)
			}
			if c.status == 409 && (!strings.Contains(a.body, `"code":"outcome-unknown"`) || a.header["Retry-After"] != "1" || a.header["Idempotency-Status"] != "unknown" || a.cookies != nil) {
				t.Errorf("%s: got the response %v %s", name, a.header, a.body)
			}
			if got := w.store.record(t).State; got != c.state {
				t.Errorf("%s: the record is %s, want %s", name, got, c.state)
			}
			if a := w.post(charge()); a.status != c.retry || w.runs != c.runs {
				t.Errorf("%s: a retry got %d after %d runs, want %d after %d", name, a.status, w.runs, c.retry, c.runs)
			}
		}
	})
}

// A step whose key the provider may have forgotten does not run again. A
// handler that ignores that error reports success for an unknown record.
func TestIgnoredForgottenKeyIsNotSuccess(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, guard(func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} }))
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errDown })
			if w.runs == 1 {
				return reply{status: 502}, nil
			}
			return created(ctx, r)
		})
		w.post(charge())
		w.clock.Advance(24 * time.Hour) // the default of DownstreamRetention
		a := w.post(charge())
		if a.status != 409 || !strings.Contains(a.body, `"code":"outcome-unknown"`) || a.header["Retry-After"] != "1" {
			t.Errorf("the caller got %d %v %s", a.status, a.header, a.body)
		}
		if r := w.store.record(t); r.State != driver.StateUnknown || r.Reason != driver.ReasonKeysForgotten {
			t.Errorf("the record is %s, %s", r.State, r.Reason)
		}
	})
}

// A handler can report a transaction in doubt itself: its error is returned to
// Lambda, and a failure response is sent unchanged.
func TestReportedDoubtIsTheHandlersAnswer(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		var doubt error
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			e, _ := idempotent.FromContext(ctx)
			doubt = e.Commit(ctx, committed, lost(w))
			return reply{}, doubt
		})
		if _, err := w.send(t.Context(), charge()); err == nil || err != doubt {
			t.Errorf("Lambda got %v, want the handler's %v", err, doubt)
		}
		w = newFixture(t, on)
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			e, _ := idempotent.FromContext(ctx)
			_ = e.Commit(ctx, committed, lost(w))
			return reply{status: 504}, nil
		})
		if a := w.post(charge()); a.status != 504 {
			t.Errorf("the caller got %d, want the handler's 504", a.status)
		}
	})
}

// If an http.Handler writes a success and then reports a transaction in doubt,
// the success is not sent.
func TestSetErrorTakesBackASuccessInDoubt(t *testing.T) {
	t.Parallel()
	for written, want := range map[int]int{201: 409, 303: 409, 400: 400, 404: 404, 502: 502} {
		w := newFixture(t, wires[0])
		h := lambdahttp.Middleware(w.guard, single, exposing)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(written)
			_, _ = io.WriteString(rw, "written")
			e, _ := idempotent.FromContext(r.Context())
			if err := e.Commit(r.Context(), committed, lost(w)); err != nil {
				lambdahttp.SetError(r.Context(), errors.Join(errors.New("the order was not placed"), err))
			}
		}))
		out := &plainWriter{header: http.Header{}}
		h.ServeHTTP(out, keyed(t.Context()))
		if out.status != want || strings.Contains(string(out.body), "outcome-unknown") != (want == 409) || strings.Contains(string(out.body), "written") != (want != 409) {
			t.Errorf("%d was written: the client got %d %s", written, out.status, out.body)
		}
		if want == 409 && (out.sent.Get("Retry-After") != "1" || out.sent.Get("Access-Control-Expose-Headers") != "Retry-After") {
			t.Errorf("%d was written: the response has the headers %v", written, out.sent)
		}
	}
}

// A success stays if the error is not about a transaction.
func TestSetErrorLeavesASuccess(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(201)
		lambdahttp.SetError(r.Context(), errDown)
	}, nil)
	if a, got := s.do(""); a.StatusCode != 201 {
		t.Errorf("the client got %d %s", a.StatusCode, got)
	}
}

// A response that was sent cannot change, but the record does not store it as
// the outcome.
func TestDoubtAfterAStream(t *testing.T) {
	t.Parallel()
	for _, reports := range []bool{false, true} {
		var w *fixture
		s := newSite(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(201)
			rw.(http.Flusher).Flush()
			e, _ := idempotent.FromContext(r.Context())
			if err := e.Commit(r.Context(), committed, lost(w)); reports {
				lambdahttp.SetError(r.Context(), err)
				rw.Header().Set(http.TrailerPrefix+"X-Error", "in doubt")
			}
			_, _ = io.WriteString(rw, "sent")
		}, nil)
		w = s.fixture
		a, got := s.do("")
		if a.StatusCode != 201 || got != "sent" || a.Header.Get("Idempotency-Status") != "not-stored" || (a.Trailer.Get("X-Error") == "in doubt") != reports {
			t.Errorf("the client got %d %q %v %v", a.StatusCode, got, a.Header, a.Trailer)
		}
		if got := s.store.record(t).State; got != driver.StateUnknown {
			t.Errorf("the record is %s, want unknown", got)
		}
		if a, got := s.do(""); a.StatusCode != 409 || !strings.Contains(got, "outcome-unknown") || s.runs != 1 {
			t.Errorf("the retry got %d %s after %d runs", a.StatusCode, got, s.runs)
		}
	}
}
