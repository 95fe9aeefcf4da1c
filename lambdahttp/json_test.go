// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/lambdahttp"
)

// refund and refunded are the bodies of POST /charges/{id}/refunds.
type refund struct {
	Amount int64 `json:"amount"`
	Reason struct {
		Code string `json:"code"`
	} `json:"reason"`
	When moment `json:"when"`
}

type refunded struct {
	ID   string  `json:"id"`
	Note string  `json:"note"`
	Rate float64 `json:"rate,omitempty"`
}

// moment is a member that reads itself.
type moment struct{}

func (*moment) UnmarshalJSON(text []byte) error {
	if string(text) == `"past"` {
		return &lambdahttp.Problem{Status: 400, Code: "invalid_body", Detail: "It is over."}
	} else if len(text) > 100 {
		return fmt.Errorf("no moment: %s", text)
	}
	return errors.New("no moment")
}

// jsonFixture is a JSON handler behind one event type.
type jsonFixture struct {
	store  driver.Store
	send   sender
	runs   int
	last   refund
	handle func(context.Context, refund) (refunded, error)
}

// jsonFronts are the methods of a JSON handler.
var jsonFronts = map[string]func(lambdahttp.JSON[refund, refunded], *idempotent.Guard, func(*lambdahttp.Options)) sender{
	"APIGatewayV2": func(j lambdahttp.JSON[refund, refunded], g *idempotent.Guard, o func(*lambdahttp.Options)) sender {
		return sendV2(j.APIGatewayV2(g, o))
	},
	"APIGatewayV1": func(j lambdahttp.JSON[refund, refunded], g *idempotent.Guard, o func(*lambdahttp.Options)) sender {
		return sendV1(j.APIGatewayV1(g, o))
	},
	"ALB": func(j lambdahttp.JSON[refund, refunded], g *idempotent.Guard, o func(*lambdahttp.Options)) sender {
		return sendALB(true, j.ALB(g, o))
	},
	"FunctionURL": func(j lambdahttp.JSON[refund, refunded], g *idempotent.Guard, o func(*lambdahttp.Options)) sender {
		return sendURL(j.FunctionURL(g, o))
	},
	"Handler": func(j lambdahttp.JSON[refund, refunded], g *idempotent.Guard, o func(*lambdahttp.Options)) sender {
		return sendHTTP(j.Handler(g, o, reportError))
	},
}

// onEachFront calls f with a new fixture for each method. The check refuses an
// amount below 1, and an amount of 13 with an error that is not for the client.
func onEachFront(t *testing.T, mod func(*lambdahttp.Options), f func(*testing.T, *jsonFixture)) {
	for name, front := range jsonFronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &jsonFixture{store: memstore.New(), handle: func(context.Context, refund) (refunded, error) { return refunded{ID: "re_1", Note: "a < b"}, nil }}
			guard, err := idempotent.New(w.store, func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) })
			if err != nil {
				t.Fatal(err)
			}
			w.send = front(lambdahttp.JSON[refund, refunded]{
				Handle: func(ctx context.Context, in refund) (refunded, error) {
					w.runs, w.last = w.runs+1, in
					return w.handle(ctx, in)
				},
				Check: func(_ context.Context, _ *lambdahttp.Request, in *refund) error {
					switch {
					case in.Amount == 13:
						return errDown
					case in.Amount < 1:
						return &lambdahttp.Problem{Status: 422, Code: "amount_too_small", Detail: "The amount is less than 1."}
					}
					return nil
				},
				Respond: func(r *lambdahttp.Response, out refunded) {
					r.Status = http.StatusCreated
					r.Header.Set("Location", "/refunds/"+out.ID)
				},
			}, guard, func(o *lambdahttp.Options) {
				o.Scope = lambdahttp.SingleTenant
				if mod != nil {
					mod(o)
				}
			})
			f(t, w)
		})
	}
}

// post sends a refund with keyA. It returns the error for Lambda.
func (w *jsonFixture) post(t *testing.T, body string, mods ...func(*request)) (reply, error) {
	t.Helper()
	r := charge(append([]func(*request){withBody(body)}, mods...)...)
	r.path, r.route = "/charges/ch_1/refunds", "/charges/{id}/refunds"
	return w.send(t.Context(), r)
}

const validRefund = `{"amount":100,"reason":{"code":"broken"}}`

// A JSON handler gets the decoded body, and its result is the response to the
// first request and to a retry.
func TestJSONHandlesOnce(t *testing.T) {
	t.Parallel()
	onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
		first, err := w.post(t, validRefund)
		again, errAgain := w.post(t, validRefund)
		if err != nil || errAgain != nil || w.runs != 1 {
			t.Fatalf("errors %v and %v, %d runs, want 1", err, errAgain, w.runs)
		}
		if w.last.Amount != 100 || w.last.Reason.Code != "broken" {
			t.Errorf("the handler got %+v", w.last)
		}
		for what, a := range map[string]reply{"first response": first, "replay": again} {
			h := lower(a.header)
			if a.status != 201 || a.body != `{"id":"re_1","note":"a < b"}` || h["content-type"] != "application/json" || h["location"] != "/refunds/re_1" {
				t.Errorf("%s: %d %s %v", what, a.status, a.body, a.header)
			}
		}
		if lower(again.header)["idempotent-replayed"] != "true" || lower(first.header)["idempotent-replayed"] != "" {
			t.Errorf("marks of a replay: first %v, again %v", first.header, again.header)
		}
	})
}

// The check can read the wildcards of the route, if the event has them.
func TestPathValue(t *testing.T) {
	t.Parallel()
	path := map[string]string{"id": "ch_7"}
	var served *http.Request
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges/{id}/refunds", func(_ http.ResponseWriter, r *http.Request) { served = r })
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/charges/ch_7/refunds", nil))
	for name, row := range map[string]struct {
		event any
		want  string
	}{
		"an HTTP API":     {&events.APIGatewayV2HTTPRequest{PathParameters: path}, "ch_7"},
		"a REST API":      {&events.APIGatewayProxyRequest{PathParameters: path}, "ch_7"},
		"net/http":        {served, "ch_7"},
		"a function URL":  {&events.LambdaFunctionURLRequest{RawPath: "/charges/ch_7/refunds"}, ""},
		"a load balancer": {&events.ALBTargetGroupRequest{Path: "/charges/ch_7/refunds"}, ""},
	} {
		r := lambdahttp.Request{Event: row.event}
		if got, other := r.PathValue("id"), r.PathValue("other"); got != row.want || other != "" {
			t.Errorf("%s: id %q, want %q; other %q", name, got, row.want, other)
		}
	}
}

// A body that does not fit is refused before the key is claimed: the corrected
// request can use the same key. The detail contains no value of the body.
func TestJSONRefusesBodies(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		body, detail string
		mods         []func(*request)
	}{
		"a member of another type": {`{"amount":"4111111111111111"}`, `the member \"amount\" has the wrong type: string`, nil},
		"a number out of range":    {`{"amount":` + strings.Repeat("4111", 1000) + `}`, `the member \"amount\" has the wrong type: number."`, nil},
		"the longest text":         {`{"amount":1,"when":"` + strings.Repeat("f", 187) + `"}`, strings.Repeat("f", 187) + `\"."`, nil},
		"a long member":            {`{"amount":1,"when":"` + strings.Repeat("future", 1000) + `"}`, `futurefutur…."`, nil},
		"a nested member":          {`{"amount":1,"reason":{"code":7}}`, `the member \"reason.code\" has the wrong type: number`, nil},
		"another document":         {`[4111111111111111]`, "the document has the wrong type: array", nil},
		"a refused member":         {`{"amount":1,"when":"now"}`, `"The body cannot be read: no moment."`, nil},
		"a member with a problem":  {`{"amount":1,"when":"past"}`, `"It is over."`, nil},
		"not JSON":                 {`amount=4111111111111111`, "invalid JSON document", nil},
		"a duplicate member":       {`{"amount":1,"amount":2}`, "duplicate member name", nil},
		"another letter case":      {`{"AMOUNT":4111111111111111}`, `a member is named like \"amount\" in another letter case`, nil},
		"two letter cases":         {`{"amount":1,"Amount":2}`, `write it \"amount\"`, nil},
		"a nested letter case":     {`{"amount":1,"reason":{"\u0043ode":"broken"}}`, `write it \"code\"`, nil},
		"two documents":            {`{"amount":1}{}`, "invalid JSON document", nil},
		"null":                     {` null`, "the document is null", nil},
		"nothing":                  {``, "incomplete", nil},
		"an unknown coding":        {validRefund, "Content-Encoding", []func(*request){withHeader("content-encoding", "br")}},
		"another media type":       {validRefund, "Content-Type is not JSON", []func(*request){withHeader("content-type", "text/plain")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
				a, err := w.post(t, row.body, row.mods...)
				if err != nil || a.status != 400 || w.runs != 0 || !strings.Contains(a.body, `"code":"invalid_body"`) || !strings.Contains(a.body, row.detail) {
					t.Errorf("%d %s, error %v, %d runs; want 400, invalid_body and %q", a.status, a.body, err, w.runs, row.detail)
				}
				if strings.Contains(a.body, "4111") {
					t.Errorf("the response quotes the body: %s", a.body)
				}
				if a, err := w.post(t, "%", func(r *request) { r.base64 = true }); err != nil || !strings.Contains(a.body, `"code":"invalid-body"`) {
					t.Errorf("a broken encoding: %d %s, error %v", a.status, a.body, err)
				}
				if a, err := w.post(t, validRefund, without("content-type")); err != nil || a.status != 201 {
					t.Errorf("the corrected request: %d %s, error %v", a.status, a.body, err)
				}
			})
		})
	}
}

// A compressed body is decoded, and is the same request as without compression.
func TestJSONInflates(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(validRefund)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
		first, err := w.post(t, base64.StdEncoding.EncodeToString(packed.Bytes()), withHeader("content-encoding", "gzip"), func(r *request) { r.base64 = true })
		if err != nil || first.status != 201 || w.last.Amount != 100 {
			t.Errorf("%d %s, error %v; the handler got %+v", first.status, first.body, err, w.last)
		}
		if again, err := w.post(t, validRefund); err != nil || again.status != 201 || w.runs != 1 {
			t.Errorf("again: %d %s, error %v, %d runs", again.status, again.body, err, w.runs)
		}
	})
}

// The check refuses with a problem in the form of the profile, and leaves the key
// unused. Another error of it is returned to Lambda.
func TestJSONCheck(t *testing.T) {
	t.Parallel()
	for name, profile := range map[string]lambdahttp.Profile{"IETF": lambdahttp.IETF, "Stripe": lambdahttp.Stripe} {
		onEachFront(t, func(o *lambdahttp.Options) {
			o.Profile = profile
			o.Profile.Syntax = lambdahttp.QuotedOrBareKey
		}, func(t *testing.T, w *jsonFixture) {
			a, err := w.post(t, `{"amount":0}`)
			want := `{"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"The amount is less than 1.","code":"amount_too_small"}`
			if name == "Stripe" {
				want = `{"error":{"type":"invalid_request_error","code":"amount_too_small","message":"The amount is less than 1."}}`
			}
			if err != nil || a.status != 422 || a.body != want || w.runs != 0 {
				t.Errorf("%s: %d %s, error %v, %d runs; want 422 and %s", name, a.status, a.body, err, w.runs, want)
			}
			if _, err := w.post(t, `{"amount":13}`); !errors.Is(err, errDown) || w.runs != 0 {
				t.Errorf("%s: error %v, %d runs; want the check's error", name, err, w.runs)
			}
			if a, err := w.post(t, validRefund); err != nil || a.status != 201 {
				t.Errorf("%s: the corrected request: %d %s, error %v", name, a.status, a.body, err)
			}
		})
	}
}

// The error of a handler that is or wraps a Problem is the response. Its outermost
// declaration decides about the key.
func TestJSONProblems(t *testing.T) {
	t.Parallel()
	declined := &lambdahttp.Problem{Status: 402, Code: "card_declined"}
	down := &lambdahttp.Problem{Status: 503}
	for name, row := range map[string]struct {
		err           error
		first, again  int
		runs          int
		code          string
		returnsLambda bool
	}{
		"an outcome":      {declined, 402, 402, 1, "card_declined", false},
		"a wrapped one":   {fmt.Errorf("charge: %w", declined), 402, 402, 1, "card_declined", false},
		"a joined one":    {errors.Join(errDown, declined), 0, 409, 1, "", true},
		"with its cause":  {idempotent.NotExecuted(errors.Join(errDown, down)), 503, 503, 2, "service_unavailable", false},
		"of another run":  {&errtype.InnerError{Err: declined}, 0, 409, 1, "", true},
		"not executed":    {idempotent.NotExecuted(down), 503, 503, 2, "service_unavailable", false},
		"unknown":         {idempotent.Unknown(&lambdahttp.Problem{Status: 502}), 502, 409, 1, "bad_gateway", false},
		"unknown by far":  {idempotent.Unknown(&lambdahttp.Problem{Status: 404}), 404, 409, 1, "not_found", false},
		"no such status":  {&lambdahttp.Problem{Status: 200}, 0, 409, 1, "", true},
		"the last status": {&lambdahttp.Problem{Status: 599}, 599, 409, 1, "error", false},
		"no status":       {&lambdahttp.Problem{Status: 600}, 0, 409, 1, "", true},
		"another error":   {errDown, 0, 409, 1, "", true},
		"a final outcome": {idempotent.Final("card_declined", "Declined."), 422, 422, 1, "card_declined", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
				w.handle = func(context.Context, refund) (refunded, error) { return refunded{}, row.err }
				first, err := w.post(t, validRefund)
				if (err != nil) != row.returnsLambda || !row.returnsLambda && (first.status != row.first || codeOf(t, first) != row.code) {
					t.Errorf("first: %d %s, error %v; want %d %s", first.status, first.body, err, row.first, row.code)
				}
				again, err := w.post(t, validRefund)
				if err != nil || again.status != row.again || w.runs != row.runs {
					t.Errorf("again: %d %s, error %v, %d runs; want %d and %d runs", again.status, again.body, err, w.runs, row.again, row.runs)
				}
			})
		})
	}
}

// A Problem that a step returns is the outcome under Resume too, although another
// error would let the next request run.
func TestJSONProblemOfStep(t *testing.T) {
	t.Parallel()
	resume := func(o *lambdahttp.Options) {
		o.Guard = func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"refund"} }
	}
	onEachFront(t, resume, func(t *testing.T, w *jsonFixture) {
		w.handle = func(ctx context.Context, _ refund) (refunded, error) {
			return idempotent.Step(ctx, "refund", func(context.Context) (refunded, error) {
				return refunded{}, &lambdahttp.Problem{Status: 402, Code: "card_declined"}
			})
		}
		for range 2 {
			if a, err := w.post(t, validRefund); err != nil || a.status != 402 || codeOf(t, a) != "card_declined" || w.runs != 1 {
				t.Errorf("got %d %s, error %v, %d runs; want 402 and 1 run", a.status, a.body, err, w.runs)
			}
		}
	})
}

// codeOf returns the code of a problem.
func codeOf(t *testing.T, a reply) string {
	t.Helper()
	var p struct{ Code string }
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Errorf("%q is not a problem: %v", a.body, err)
	}
	return p.Code
}

// A request that is not guarded is decoded and checked too: without a key, or of
// another method.
func TestJSONUnguarded(t *testing.T) {
	t.Parallel()
	for name, mod := range map[string]func(*request){
		"no key":         without("idempotency-key"),
		"another method": func(r *request) { r.method = "PUT" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, func(o *lambdahttp.Options) {
				o.Guard = func(o *idempotent.Options) { o.AllowMissingKey = true }
			}, func(t *testing.T, w *jsonFixture) {
				for range 2 {
					if a, err := w.post(t, validRefund, mod); err != nil || a.status != 201 {
						t.Errorf("%d %s, error %v", a.status, a.body, err)
					}
				}
				if w.runs != 2 || w.last.Amount != 100 {
					t.Errorf("%d runs, the last with %+v; want 2", w.runs, w.last)
				}
				if a, err := w.post(t, `{`, mod); err != nil || a.status != 400 {
					t.Errorf("an invalid body: %d %s, error %v", a.status, a.body, err)
				}
				if a, err := w.post(t, `{}`, mod); err != nil || a.status != 422 || w.runs != 2 {
					t.Errorf("refused by the check: %d %s, error %v, %d runs", a.status, a.body, err, w.runs)
				}
			})
		})
	}
}

// A handler can pass its result to a transaction before it returns it. A retry
// gets the whole response.
func TestJSONCommit(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(*refunded) any{
		"a value":   func(out *refunded) any { return *out },
		"a pointer": func(out *refunded) any { return out },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
				w.handle = func(ctx context.Context, _ refund) (refunded, error) {
					out := refunded{ID: "re_1"}
					e, _ := idempotent.FromContext(ctx)
					err := e.Commit(ctx, pass(&out), func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
						return w.store.Replace(ctx, next, was)
					})
					return out, err
				}
				for _, what := range []string{"first response", "replay"} {
					a, err := w.post(t, validRefund)
					if err != nil || a.status != 201 || a.body != `{"id":"re_1","note":""}` || lower(a.header)["location"] != "/refunds/re_1" || w.runs != 1 {
						t.Errorf("%s: %d %s %v, error %v, %d runs", what, a.status, a.body, a.header, err, w.runs)
					}
				}
			})
		})
	}
}

// A result that cannot be stored fails the handler, whether it is returned or passed to
// a transaction.
func TestJSONResultsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		result any
		says   string
	}{
		"no number":    {refunded{Rate: math.NaN()}, "as the response: json: unsupported value: NaN"},
		"another type": {"text", "cannot store a string"},
		"nothing":      {(*refunded)(nil), "cannot store a *lambdahttp_test.refunded"},
	} {
		onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
			w.handle = func(ctx context.Context, _ refund) (refunded, error) {
				e, _ := idempotent.FromContext(ctx)
				err := e.Commit(ctx, row.result, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
					t.Errorf("%s was committed", name)
					return nil, nil
				})
				if err == nil || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%s: got the error %v, want %q", name, err, row.says)
				}
				out, _ := row.result.(refunded)
				return out, nil
			}
			if a, err := w.post(t, validRefund); name == "no number" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("%s: %d %s, error %v", name, a.status, a.body, err)
			}
		})
	}
}

// An operation without a body has an empty struct as its request.
func TestJSONWithoutBody(t *testing.T) {
	t.Parallel()
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	capture := lambdahttp.JSON[struct{}, refunded]{
		Handle: func(context.Context, struct{}) (refunded, error) { return refunded{ID: "ch_1"}, nil },
	}
	send := sendV2(capture.APIGatewayV2(guard, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }))
	a, err := send(t.Context(), charge(withBody(""), without("content-type")))
	if err != nil || a.status != 200 || a.body != `{"id":"ch_1","note":""}` {
		t.Errorf("%d %s, error %v; want 200, the default, and the result", a.status, a.body, err)
	}
	if a, err := send(t.Context(), charge(withKey(`"`+keyB+`"`), withBody("no JSON"))); err != nil || a.status != 400 {
		t.Errorf("another body: %d %s, error %v", a.status, a.body, err)
	}
}

// A missing guard or handler is found when the handler is built.
func TestJSONPanics(t *testing.T) {
	t.Parallel()
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	for name, front := range jsonFronts {
		for _, g := range []*idempotent.Guard{nil, guard} {
			var j lambdahttp.JSON[refund, refunded]
			if g == nil {
				j.Handle = func(context.Context, refund) (refunded, error) { return refunded{}, nil }
			}
			func() {
				defer func() {
					if p, _ := recover().(string); !strings.Contains(p, "JSON."+name) {
						t.Errorf("%s, guard %v: panic %q, want one that names the method", name, g != nil, p)
					}
				}()
				front(j, g, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
			}()
		}
	}
}
