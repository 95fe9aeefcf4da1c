// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

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
	log    bytes.Buffer
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
			guard, err := idempotent.New(w.store, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&w.log, nil)) })
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
						return &lambdahttp.Problem{Code: "amount_too_small", Detail: "The amount is less than 1."}
					}
					return nil
				},
				Respond: func(r *lambdahttp.Response, out refunded) {
					r.Status = http.StatusCreated
					r.Header.Set("Location", "/refunds/"+out.ID)
					r.Header.Set("Set-Cookie", "a=1") // never stored
				},
			}, guard, func(o *lambdahttp.Options) { single(o); optionally(mod)(o) })
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

// gets sends a refund, and checks the response and how often the handler has run.
func (w *jsonFixture) gets(t *testing.T, status int, part string, runs int, body string, mods ...func(*request)) reply {
	t.Helper()
	a, err := w.post(t, body, mods...)
	if err != nil || a.status != status || !strings.Contains(a.body, part) || w.runs != runs {
		t.Errorf("got %d %s, error %v, %d runs; want %d %s and %d runs", a.status, a.body, err, w.runs, status, part, runs)
	}
	return a
}

const validRefund = `{"amount":100,"reason":{"code":"broken"}}`

// A JSON handler gets the decoded body, and its result is the response to the
// first request and to a retry.
func TestJSONHandlesOnce(t *testing.T) {
	t.Parallel()
	onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
		for _, replayed := range []string{"", "true"} {
			a := w.gets(t, 201, `{"id":"re_1","note":"a < b"}`, 1, validRefund)
			h := lower(a.header)
			if h["content-type"] != "application/json" || h["location"] != "/refunds/re_1" || h["idempotent-replayed"] != replayed {
				t.Errorf("headers %v, want replayed %q", a.header, replayed)
			}
		}
		if w.last.Amount != 100 || w.last.Reason.Code != "broken" {
			t.Errorf("the handler got %+v", w.last)
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
		"an HTTP API":     {&v2Event{PathParameters: path}, "ch_7"},
		"a REST API":      {&v1Event{PathParameters: path}, "ch_7"},
		"net/http":        {served, "ch_7"},
		"a function URL":  {&urlEvent{RawPath: "/charges/ch_7/refunds"}, ""},
		"a load balancer": {&albEvent{Path: "/charges/ch_7/refunds"}, ""},
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
				a := w.gets(t, 400, `"code":"invalid_body"`, 0, row.body, row.mods...)
				if !strings.Contains(a.body, row.detail) || strings.Contains(a.body, "4111") {
					t.Errorf("the response does not say %q, or quotes the body: %s", row.detail, a.body)
				}
				w.gets(t, 400, `"code":"invalid-body"`, 0, "%", func(r *request) { r.base64 = true })
				w.gets(t, 201, "", 1, validRefund, without("content-type"))
			})
		})
	}
}

// A compressed body is decoded, and is the same request as without compression.
func TestJSONInflates(t *testing.T) {
	t.Parallel()
	onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
		w.gets(t, 201, "", 1, validRefund, coded("gzip", func(r *request) { r.body = gzipped(1, r.body) }))
		w.gets(t, 201, "", 1, validRefund)
		if w.last.Amount != 100 {
			t.Errorf("the handler got %+v", w.last)
		}
	})
}

// The check refuses with a problem in the form of the profile, and leaves the key
// unused. Another error of it is returned to Lambda.
func TestJSONCheck(t *testing.T) {
	t.Parallel()
	for want, profile := range map[string]lambdahttp.Profile{
		`{"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"The amount is less than 1.","code":"amount_too_small"}`: lambdahttp.IETF,
		`{"error":{"type":"invalid_request_error","code":"amount_too_small","message":"The amount is less than 1."}}`:                        lambdahttp.Stripe,
	} {
		onEachFront(t, func(o *lambdahttp.Options) { o.Profile = profile }, func(t *testing.T, w *jsonFixture) {
			w.gets(t, 422, want, 0, `{"amount":0}`)
			if _, err := w.post(t, `{"amount":13}`); !errors.Is(err, errDown) || w.runs != 0 {
				t.Errorf("error %v, %d runs; want the check's error", err, w.runs)
			}
			w.gets(t, 201, "", 1, validRefund)
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
		"an outcome":       {declined, 402, 402, 1, "card_declined", false},
		"a wrapped one":    {fmt.Errorf("charge: %w", declined), 402, 402, 1, "card_declined", false},
		"a joined one":     {errors.Join(errDown, declined), 0, 409, 1, "", true},
		"with its cause":   {idempotent.NotExecuted(errors.Join(errDown, down)), 503, 503, 2, "service_unavailable", false},
		"of another run":   {&errtype.InnerError{Err: declined}, 0, 409, 1, "", true},
		"not executed":     {idempotent.NotExecuted(down), 503, 503, 2, "service_unavailable", false},
		"unknown":          {idempotent.Unknown(&lambdahttp.Problem{Status: 502}), 502, 409, 1, "bad_gateway", false},
		"unknown by far":   {idempotent.Unknown(&lambdahttp.Problem{Status: 404}), 404, 409, 1, "not_found", false},
		"no such status":   {&lambdahttp.Problem{Status: 200}, 0, 409, 1, "", true},
		"without a status": {&lambdahttp.Problem{Detail: "Closed."}, 422, 422, 1, "unprocessable_entity", false},
		"the last status":  {&lambdahttp.Problem{Status: 599}, 599, 409, 1, "error", false},
		"no status":        {&lambdahttp.Problem{Status: 600}, 0, 409, 1, "", true},
		"another error":    {errDown, 0, 409, 1, "", true},
		"a final outcome":  {idempotent.Final("card_declined", "Declined."), 422, 422, 1, "card_declined", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
				w.handle = func(context.Context, refund) (refunded, error) { return refunded{}, row.err }
				first, err := w.post(t, validRefund)
				if (err != nil) != row.returnsLambda || !row.returnsLambda && (first.status != row.first || codeOf(t, first) != row.code) {
					t.Errorf("first: %d %s, error %v; want %d %s", first.status, first.body, err, row.first, row.code)
				}
				w.gets(t, row.again, "", row.runs, validRefund)
			})
		})
	}
}

// A Problem that a step returns is the outcome under Resume too, although another
// error would let the next request run.
func TestJSONProblemOfStep(t *testing.T) {
	t.Parallel()
	onEachFront(t, resume, func(t *testing.T, w *jsonFixture) {
		w.handle = func(ctx context.Context, _ refund) (refunded, error) {
			return idempotent.Step(ctx, "charge", func(context.Context) (refunded, error) {
				return refunded{}, &lambdahttp.Problem{Status: 402, Code: "card_declined"}
			})
		}
		for range 2 {
			w.gets(t, 402, `"code":"card_declined"`, 1, validRefund)
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
	for name, mod := range map[string]func(*request){"no key": without("idempotency-key"), "another method": withMethod("PUT")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, optional, func(t *testing.T, w *jsonFixture) {
				for i := range 2 {
					w.gets(t, 201, "", i+1, validRefund, mod)
				}
				if w.last.Amount != 100 {
					t.Errorf("the handler got %+v", w.last)
				}
				w.gets(t, 400, "", 2, `{`, mod)
				w.gets(t, 422, "", 2, `{}`, mod)
			})
		})
	}
}

// What a handler passes to a transaction, every caller gets: the first one, and each
// retry. Its own response, with cookies and what NoStore withholds, is sent if the same
// would be stored of it, and otherwise the log says why it is not. Other values are
// refused, with both types in the error.
func TestJSONCommit(t *testing.T) {
	t.Parallel()
	const own, refused = `{"id":"re_1","note":""}`, " as a response: pass a lambdahttp_test.refunded, which the handler returns, or a Response"
	other := lambdahttp.Response{Status: 202, Header: http.Header{"Location": {"/elsewhere"}}, Body: []byte(`"other"`)}
	for name, row := range map[string]struct {
		pass     any
		withhold bool // the handler calls NoStore first
		says     string
		status   int
		body     string // of the first caller
		replay   string // of a retry, if it is another
	}{
		"a value":               {pass: refunded{ID: "re_1"}, status: 201, body: own},
		"a pointer":             {pass: &refunded{ID: "re_1"}, status: 201, body: own},
		"another value":         {pass: refunded{ID: "re_2"}, status: 201, body: `{"id":"re_2","note":""}`},
		"a response":            {pass: other, status: 202, body: `"other"`},
		"with NoStore":          {pass: refunded{ID: "re_1"}, withhold: true, status: 201, body: own, replay: "replay-unavailable"},
		"another with NoStore":  {pass: other, withhold: true, status: 409, body: "replay-unavailable"},
		"another struct":        {pass: struct{ ID string }{"re_1"}, says: refused, status: 201, body: own},
		"a map":                 {pass: map[string]any{"id": "re_1", "note": ""}, says: refused, status: 201, body: own},
		"raw JSON":              {pass: json.RawMessage(own), says: refused, status: 201, body: own},
		"text":                  {pass: "re_1", says: refused, status: 201, body: own},
		"nothing":               {says: refused, status: 201, body: own},
		"a nil pointer":         {pass: (*refunded)(nil), says: refused, status: 201, body: own},
		"a status not storable": {pass: lambdahttp.Response{Status: 700}, says: "the handler returned status 700", status: 201, body: own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachFront(t, nil, func(t *testing.T, w *jsonFixture) {
				w.handle = func(ctx context.Context, _ refund) (refunded, error) {
					if row.withhold {
						lambdahttp.NoStore(ctx, "")
					}
					e, _ := idempotent.FromContext(ctx)
					err := e.Commit(ctx, row.pass, e.Store().Replace)
					if row.says == "" != (err == nil) || err != nil && (!errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), row.says)) {
						t.Errorf("Commit: got error %v, want %q", err, row.says)
					}
					return refunded{ID: "re_1"}, nil
				}
				status, body := row.status, row.body
				for i := range 2 {
					a := w.gets(t, status, body, 1, validRefund)
					if cookies := append(a.cookies, lower(a.header)["set-cookie"]); slices.Contains(cookies, "a=1") != (i == 0 && row.body == own) {
						t.Errorf("response %d has the cookies %q", i+1, cookies)
					}
					location := lower(a.header)["location"]
					if want := map[string]string{own: "/refunds/re_1", `"other"`: "/elsewhere", `{"id":"re_2","note":""}`: "/refunds/re_2"}[body]; location != want {
						t.Errorf("the Location is %q, want %q", location, want)
					}
					if row.replay != "" {
						status, body = 409, row.replay
					}
				}
				if logged := strings.Contains(w.log.String(), "another response than it passed to Commit"); logged != (row.says == "" && row.body != own) {
					t.Errorf("the log:\n%s", w.log.String())
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
	charges := lambdahttp.JSON[refund, refunded]{}
	response, _ := charges.Response(refunded{Rate: 1})
	if got, err := charges.Resolved(refunded{Rate: 1}); err != nil || !reflect.DeepEqual(got, lambdahttp.Resolved(response)) {
		t.Errorf("the evidence is %+v, %v", got, err)
	}
	if _, err := charges.Resolved(refunded{Rate: math.NaN()}); err == nil {
		t.Error("evidence that is no JSON has no error")
	}
}

// An operation without a body has an empty struct as its request.
func TestJSONWithoutBody(t *testing.T) {
	t.Parallel()
	capture := lambdahttp.JSON[struct{}, refunded]{
		Handle: func(context.Context, struct{}) (refunded, error) { return refunded{ID: "ch_1"}, nil },
	}
	send := sendV2(capture.APIGatewayV2(newGuard(t), single))
	a, err := send(t.Context(), charge(untyped("")))
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
	for name, front := range jsonFronts {
		handles := lambdahttp.JSON[refund, refunded]{Handle: func(context.Context, refund) (refunded, error) { return refunded{}, nil }}
		for missing, build := range map[string]func(){
			"guard": func() { front(handles, nil, single) }, "handler": func() { front(lambdahttp.JSON[refund, refunded]{}, newGuard(t), single) },
		} {
			if got := panics(build); !strings.Contains(got, "JSON."+name) {
				t.Errorf("%s without a %s: panic %q, want one that names the method", name, missing, got)
			}
		}
	}
}
