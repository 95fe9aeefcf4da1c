// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/pathkey"
	"github.com/once-lambda/once/lambdahttp"
)

// An event without a method may be a POST of another payload format, so it must
// not run unguarded.
func TestEventWithoutMethod(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		_, err := w.send(t.Context(), request{})
		var want *lambdahttp.EventError
		if !errors.As(err, &want) || !strings.Contains(err.Error(), on.wants) || w.runs != 0 {
			t.Errorf("got %v after %d runs, want an EventError with %q in it", err, w.runs, on.wants)
		}
	})
}

// counted is a handler of an event type that counts its runs.
func counted[Ev, Ans any](runs *int, a Ans) func(context.Context, Ev) (Ans, error) {
	return func(context.Context, Ev) (Ans, error) { *runs++; return a, nil }
}

// A suppressed type of a body stays away from an event.
func TestNoTypeInAnEvent(t *testing.T) {
	t.Parallel()
	event := v2Event{RouteKey: "$default", RawPath: "/", Headers: map[string]string{"idempotency-key": `"` + keyA + `"`}}
	event.RequestContext.HTTP.Method = "POST"
	wantAnswers(t, lambdahttp.APIGatewayV2, event,
		v2Answer{StatusCode: 200, MultiValueHeaders: map[string][]string{"Content-Type": {}}},
		v2Answer{StatusCode: 200, Headers: map[string]string{"Idempotent-Replayed": "true"}})
}

// wantAnswers sends an event twice: the first response is the handler's own, and then the
// stored one.
func wantAnswers[Ev, Ans any](t *testing.T, build builder[Ev, Ans], ev Ev, own, stored Ans) {
	t.Helper()
	runs := 0
	h := build(newGuard(t), counted[Ev](&runs, own), single)
	for _, want := range []Ans{own, stored} {
		if got, err := h(t.Context(), ev); !reflect.DeepEqual(got, want) || err != nil || runs != 1 {
			t.Errorf("got %+v %v after %d runs, want %+v", got, err, runs, want)
		}
	}
}

func single(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }

// HTTP-06, F04: two header lines are two values if the event has both, even if they are
// equal. The event of an Application Load Balancer without multi-value headers has only
// one of them, so the request is accepted.
func TestHTTP06TwoHeaderLines(t *testing.T) {
	t.Parallel()
	for _, second := range []string{keyA, keyB} {
		runs := 0
		both := []string{`"` + keyA + `"`, `"` + second + `"`}
		v1, err := lambdahttp.APIGatewayV1(newGuard(t), counted[v1Event](&runs, v1Answer{StatusCode: 201}), single)(t.Context(), v1Event{HTTPMethod: "POST",
			Headers: map[string]string{"Idempotency-Key": both[1]}, MultiValueHeaders: map[string][]string{"Idempotency-Key": both}})
		if err != nil || v1.StatusCode != 400 {
			t.Errorf("a REST API: got %d %v", v1.StatusCode, err)
		}
		alb := lambdahttp.ALB(newGuard(t), counted[albEvent](&runs, albAnswer{StatusCode: 201}), single)
		if a, err := alb(t.Context(), albEvent{HTTPMethod: "POST", MultiValueHeaders: map[string][]string{"idempotency-key": both}}); err != nil || a.StatusCode != 400 || runs != 0 {
			t.Errorf("a load balancer: got %d %v after %d runs", a.StatusCode, err, runs)
		}
		if a, err := alb(t.Context(), albEvent{HTTPMethod: "POST", Headers: map[string]string{"idempotency-key": both[1]}}); err != nil || a.StatusCode != 201 || runs != 1 {
			t.Errorf("the last of two lines: got %d %v", a.StatusCode, err)
		}
	}
}

// An event with only one of the two maps has the same values, because hand-made
// test events often leave one out.
func TestAPIGatewayV1WithoutMultiValues(t *testing.T) {
	t.Parallel()
	ev := v1Event{HTTPMethod: "POST", Headers: map[string]string{"Idempotency-Key": `"` + keyA + `"`},
		QueryStringParameters: map[string]string{"b": "ü +", "a": "1"}, MultiValueQueryStringParameters: map[string][]string{"c": {"3", "2"}}}
	if view := viewOf(t, lambdahttp.APIGatewayV1, ev); view.RawQuery != "a=1&b=%C3%BC+%2B&c=3&c=2" {
		t.Errorf("query %q", view.RawQuery)
	}
	if len(ev.MultiValueQueryStringParameters) != 1 {
		t.Error("the handler's event was changed")
	}
}

// viewOf returns the view of an event that a rule gets. The request is guarded.
func viewOf[Ev, Ans any](t *testing.T, build builder[Ev, Ans], ev Ev) (view lambdahttp.Request) {
	t.Helper()
	runs := 0
	h := build(newGuard(t), counted[Ev](&runs, *new(Ans)), single, func(o *lambdahttp.Options) {
		o.Operation = func(r *lambdahttp.Request) string { view = *r; return "charge" }
	})
	if _, err := h(t.Context(), ev); err != nil || runs > 1 {
		t.Errorf("error %v after %d runs", err, runs)
	}
	return view
}

// Several values of one header are separate again in a replay.
func TestAPIGatewayV1RepliesWithLists(t *testing.T) {
	t.Parallel()
	wantAnswers(t, lambdahttp.APIGatewayV1, v1Event{HTTPMethod: "POST", MultiValueHeaders: map[string][]string{"Idempotency-Key": {`"` + keyA + `"`}}},
		v1Answer{StatusCode: 201, Headers: map[string]string{"content-type": "text/plain", "Link": "</b>"},
			MultiValueHeaders: map[string][]string{"Link": {"</a>", "</b>"}, "Set-Cookie": {"a=1", "b=2"}}, Body: "x"},
		v1Answer{StatusCode: 201, Body: "x", MultiValueHeaders: map[string][]string{
			"Content-Type": {"text/plain"}, "Link": {"</a>", "</b>"}, "Idempotent-Replayed": {"true"}}})
}

// The load balancer accepts only headers in the mode of the request, and a
// status with its text.
func TestALBAnswersInTheModeOfTheRequest(t *testing.T) {
	t.Parallel()
	type single = map[string]string
	type multi = map[string][]string
	wantAnswers(t, lambdahttp.ALB, albEvent{HTTPMethod: "POST", Headers: single{"idempotency-key": `"` + keyA + `"`}},
		albAnswer{StatusCode: 299, Headers: single{"Link": "</a>, </b>"}, Body: "\xff"},
		albAnswer{StatusCode: 299, StatusDescription: "299", Headers: single{"Link": "</a>, </b>", "Idempotent-Replayed": "true"}, Body: "\xff"})
	wantAnswers(t, lambdahttp.ALB, albEvent{HTTPMethod: "POST", MultiValueHeaders: multi{"idempotency-key": {`"` + keyA + `"`}}},
		albAnswer{StatusCode: 299, MultiValueHeaders: multi{"Link": {"</a>", "</b>"}}, Body: "\xff"},
		albAnswer{StatusCode: 299, StatusDescription: "299", MultiValueHeaders: multi{"Link": {"</a>", "</b>"}, "Idempotent-Replayed": {"true"}}, Body: "\xff"})

	// A problem has the same mode, and the standard text. The load balancer reads JSON, in
	// which a nil map would be null.
	runs := 0
	bare := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response { return lambdahttp.Response{Status: p.Status} }
	}
	h := lambdahttp.ALB(newGuard(t), counted[albEvent](&runs, albAnswer{StatusCode: 201}), bare)
	for want, ev := range map[string]albEvent{
		`"headers":{},"multiValueHeaders":null`: {HTTPMethod: "POST", Headers: single{}},
		`"headers":null,"multiValueHeaders":{}`: {HTTPMethod: "POST", MultiValueHeaders: multi{}},
	} {
		got, err := h(t.Context(), ev)
		if text, _ := json.Marshal(got); err != nil || got.StatusDescription != "400 Bad Request" || !strings.Contains(string(text), want) {
			t.Errorf("the problem is %s %v, want %s in it", text, err, want)
		}
	}
}

// The header replaces the handler's own value in any spelling, and the
// handler's maps are not changed.
func TestNotStoredInLists(t *testing.T) {
	t.Parallel()
	shared := map[string][]string{"idempotency-status": {"mine"}, "Etag": {"1"}}
	w := newFixture(t, wires[0])
	w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
	runs := 0
	h := lambdahttp.ALB(w.guard, counted[albEvent](&runs, albAnswer{StatusCode: 201, MultiValueHeaders: shared}), single)
	got, err := h(t.Context(), albEvent{HTTPMethod: "POST", MultiValueHeaders: map[string][]string{"idempotency-key": {`"` + keyA + `"`}}})
	want := map[string][]string{"Idempotency-Status": {"not-stored"}, "Etag": {"1"}}
	if err != nil || !reflect.DeepEqual(got.MultiValueHeaders, want) || !slices.Equal(shared["idempotency-status"], []string{"mine"}) {
		t.Errorf("got %+v %v; the handler's own headers are %v", got, err, shared)
	}
}

// A trace id that a client made up is validated before it is stored in a
// record.
func TestTraceIDs(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                "",
		"Root=1-2-3":                      "1-2-3",
		"Self=1-a-b; Root=1-2-3;X=y":      "1-2-3",
		"Parent=1":                        "",
		"Root=":                           "",
		"Root=a b":                        "",
		"Root=\n":                         "",
		"Root=" + strings.Repeat("x", 64): strings.Repeat("x", 64),
		"Root=" + strings.Repeat("x", 65): "",
	} {
		ev := albEvent{HTTPMethod: "POST", Headers: map[string]string{"x-amzn-trace-id": header}}
		if got := viewOf(t, lambdahttp.ALB, ev).RequestID; got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}

// An HTTP API and a function URL separate cookies from the headers.
func TestCookiesAreAHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header        map[string]string
		cookies, want []string
	}{
		{nil, []string{"a=1", "b=2"}, []string{"a=1; b=2"}},
		{map[string]string{"Cookie": "c=3"}, []string{"a=1"}, []string{"c=3"}},
		{nil, nil, nil},
	} {
		v2, fn := v2Event{Headers: c.header, Cookies: c.cookies}, urlEvent{Headers: c.header, Cookies: c.cookies}
		v2.RequestContext.HTTP.Method, fn.RequestContext.HTTP.Method = "POST", "POST"
		for _, view := range []lambdahttp.Request{viewOf(t, lambdahttp.APIGatewayV2, v2), viewOf(t, lambdahttp.FunctionURL, fn)} {
			if got := view.Header("cookie"); !slices.Equal(got, c.want) {
				t.Errorf("%T %v: %q, want %q", view.Event, c, got, c.want)
			}
		}
	}
}

// Several spellings of one name are always returned in sorted order, although a
// map has no order.
func TestHeaderSpellings(t *testing.T) {
	t.Parallel()
	for range 20 {
		ev := v1Event{HTTPMethod: "POST", MultiValueHeaders: map[string][]string{"x-a": {"3"}, "X-A": {"2", "1"}, "x-A": {"4"}, "x-b": {"5"}}}
		view := viewOf(t, lambdahttp.APIGatewayV1, ev)
		if got := view.Header("x-a"); !slices.Equal(got, []string{"2", "1", "4", "3"}) {
			t.Fatalf("got %q", got)
		}
	}
}

// seen is the rules' view of an event; testdata contains one for each.
type seen struct {
	Method, Path, Resource, Route, RawQuery, RequestID, Operation string

	Key, ContentType, Cookie []string `json:",omitempty"`
	Sub, IAMPrincipal        string   `json:",omitempty"`
	CognitoIdentity          string   `json:",omitempty"`
	APIKeyID                 string   `json:",omitempty"`
	Body                     string   // base64 if it is not text
}

// newSeen reads every part of r.
func newSeen(t *testing.T, r *lambdahttp.Request) seen {
	body, err := r.Body()
	if err != nil {
		t.Error(err)
	}
	who := func(rule lambdahttp.ScopeRule) string {
		caller, err := rule.Of(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		return caller
	}
	return seen{
		Method: r.Method, Path: r.Path, Resource: lambdahttp.ResourceOf(r), Route: r.Route, RawQuery: r.RawQuery, RequestID: r.RequestID, Operation: lambdahttp.OperationOf(r),
		Key: r.Header("idempotency-key"), ContentType: r.Header("CONTENT-TYPE"), Cookie: r.Header("Cookie"),
		Sub: r.Claim("sub"), IAMPrincipal: who(lambdahttp.IAMPrincipal), CognitoIdentity: who(lambdahttp.CognitoIdentity), APIKeyID: who(lambdahttp.APIKeyID),
		Body: text(body),
	}
}

func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// Every event of testdata has the view beside it and gets a response: first the
// handler's, then the stored one if it is guarded.
func TestEvents(t *testing.T) {
	t.Parallel()
	for kind, build := range map[string]func(*testing.T, []byte, func(*lambdahttp.Options)) func() echoed{
		"apigatewayv2": echo(lambdahttp.APIGatewayV2), "functionurl": echo(lambdahttp.FunctionURL), "apigatewayv1": echo(lambdahttp.APIGatewayV1),
		"alb": echo(lambdahttp.ALB), "nethttp": echoHTTP,
	} {
		all := recordings(t, kind)
		for name, event := range all {
			var view seen
			send := build(t, event.bytes(), func(o *lambdahttp.Options) {
				optional(o)
				o.Scope = lambdahttp.SingleTenant
				o.Profile.Methods = []string{"POST", "PATCH", "GET"}
				o.Operation = func(r *lambdahttp.Request) string {
					view = newSeen(t, r)
					return lambdahttp.OperationOf(r)
				}
			})
			first, second := send(), send()
			if *update {
				all[name] = recorded{event.Event, view}
			} else if !reflect.DeepEqual(view, event.View) {
				t.Errorf("%s, %s: the view is %+v, want %+v (-update writes it)", kind, name, view, event.View)
			}
			if first.StatusCode != 200 || first.replayed() || first.Body != view.Body || first.StatusDescription != "" && first.StatusDescription != "200 OK" {
				t.Errorf("%s, %s: got the first response %+v", kind, name, first)
			}
			if second.replayed() != (len(view.Key) == 1) || second.StatusCode != 200 || second.Body != first.Body || second.IsBase64Encoded != first.IsBase64Encoded {
				t.Errorf("%s, %s: got the second response %+v, want the first one %+v", kind, name, second, first)
			}
		}
		if *update {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := errors.Join(e.Encode(all), os.WriteFile("testdata/"+kind+".json", b.Bytes(), 0o644)); err != nil {
				t.Error(err)
			}
		}
	}
}

// echoed is what all types of responses have.
type echoed struct {
	StatusCode        int
	StatusDescription string
	Headers           map[string]string
	MultiValueHeaders map[string][]string
	Body              string
	IsBase64Encoded   bool
}

func (e echoed) replayed() bool {
	return e.Headers["Idempotent-Replayed"] == "true" || len(e.MultiValueHeaders["Idempotent-Replayed"]) == 1
}

// echo builds a handler that responds with the body it gets, and returns a function that
// sends the event.
func echo[Ev, Ans any](build builder[Ev, Ans]) func(*testing.T, []byte, func(*lambdahttp.Options)) func() echoed {
	return func(t *testing.T, data []byte, options func(*lambdahttp.Options)) func() echoed {
		h := build(newGuard(t), func(_ context.Context, ev Ev) (a Ans, _ error) {
			out := transcoded[echoed](t, ev)
			return transcoded[Ans](t, map[string]any{"statusCode": 200, "statusDescription": "200 OK", "body": out.Body, "isBase64Encoded": out.IsBase64Encoded}), nil
		}, options)
		return func() echoed {
			a, err := h(t.Context(), transcoded[Ev](t, json.RawMessage(data)))
			if err != nil {
				t.Error(err)
			}
			return transcoded[echoed](t, a)
		}
	}
}

func transcoded[To any](t testing.TB, from any) (to To) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, &to)
	}
	if err != nil {
		t.Error(err)
	}
	return to
}

func echoHTTP(t *testing.T, data []byte, options func(*lambdahttp.Options)) func() echoed {
	h := lambdahttp.Middleware(newGuard(t), options)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	return func() echoed {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		w := &plainWriter{header: http.Header{}}
		h.ServeHTTP(w, r)
		a := w.reply()
		return echoed{StatusCode: a.status, Headers: a.header, Body: a.body, IsBase64Encoded: a.base64}
	}
}

// No event causes a panic, every response has a valid status, and a request of
// a guarded method runs at most once. Only an event without a method, or whose
// route cannot be the name of an operation, causes an error.
func FuzzTranslate(f *testing.F) {
	kit.Inputs(f)
	for _, kind := range []string{"apigatewayv2", "functionurl", "apigatewayv1", "alb", "nethttp"} {
		for _, event := range recordings(f, kind) {
			f.Add(event.bytes())
		}
	}
	for _, text := range []string{
		`{"httpMethod":"POST"}`, `{"httpMethod":"POST","multiValueHeaders":{"Idempotency-Key":null},"headers":{"idempotency-key":"\"0123456789abcdef\""}}`,
		`{"requestContext":{"http":{"method":"PATCH"},"authorizer":{"iam":null}},"headers":{"IDEMPOTENCY-KEY":"\"0123456789abcdef\""},"cookies":[""]}`,
		`{"httpMethod":"POST","requestContext":{"authorizer":{"claims":[]}},"multiValueQueryStringParameters":{"":[],"a":["=&"]}}`,
		`{"httpMethod":"POST","resource":"/\u007f","headers":{"idempotency-key":"\"0123456789abcdef\""}}`,
		"POST http:x HTTP/1.0\r\nIdempotency-Key: \"0123456789abcdef\"\r\n\r\n", "POST * HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzEvent(t, data, lambdahttp.APIGatewayV2, func(ev *v2Event) string { return ev.RequestContext.HTTP.Method },
			v2Answer{StatusCode: 200}, func(a v2Answer) int { return a.StatusCode })
		fuzzEvent(t, data, lambdahttp.FunctionURL, func(ev *urlEvent) string { return ev.RequestContext.HTTP.Method },
			urlAnswer{StatusCode: 200}, func(a urlAnswer) int { return a.StatusCode })
		fuzzEvent(t, data, lambdahttp.APIGatewayV1, func(ev *v1Event) string { return ev.HTTPMethod },
			v1Answer{StatusCode: 200}, func(a v1Answer) int { return a.StatusCode })
		fuzzEvent(t, data, lambdahttp.ALB, func(ev *albEvent) string { return ev.HTTPMethod },
			albAnswer{StatusCode: 200}, func(a albAnswer) int { return a.StatusCode })

		runs := 0
		h := lambdahttp.Middleware(newGuard(t), fuzzOptions)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(200) }))
		for range 2 {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
			if err != nil {
				return
			}
			w := &plainWriter{header: http.Header{}}
			h.ServeHTTP(w, r)
			if w.status < 200 || w.status > 599 || runs > 1 && (r.Method == "POST" || r.Method == "PATCH") {
				t.Errorf("%s: status %d after %d runs", r.Method, w.status, runs)
			}
		}
	})
}

// fuzzOptions read every part of a request.
func fuzzOptions(o *lambdahttp.Options) {
	o.Scope = lambdahttp.SingleTenant
	o.Operation = func(r *lambdahttp.Request) string {
		_, _ = r.Body()
		_, _, _ = r.Header("Cookie"), r.Claim("sub"), r.RequestID
		for _, scope := range []lambdahttp.ScopeRule{lambdahttp.IAMPrincipal, lambdahttp.IAMRole, lambdahttp.Authorizer("a"), lambdahttp.CognitoIdentity, lambdahttp.APIKeyID, lambdahttp.LambdaTenant, lambdahttp.TrustedHeader("x-caller")} {
			_, _ = scope.Of(context.Background(), r)
		}
		return lambdahttp.OperationOf(r)
	}
}

func fuzzEvent[Ev, Ans any](t *testing.T, data []byte,

	build builder[Ev, Ans],
	method func(*Ev) string, ok Ans, status func(Ans) int,
) {
	runs, operation := 0, ""
	h := build(newGuard(t), func(context.Context, Ev) (Ans, error) { runs++; return ok, nil }, fuzzOptions, func(o *lambdahttp.Options) {
		rule := o.Operation
		o.Operation = func(r *lambdahttp.Request) string { operation = rule(r); return operation }
	})
	for range 2 {
		var ev Ev
		if json.Unmarshal(data, &ev) != nil {
			return
		}
		m := method(&ev)
		a, err := h(t.Context(), ev)
		if m == "" && err == nil || m != "" && err != nil && isName(operation) {
			t.Errorf("%T with the method %q and the operation %q: %v", ev, m, operation, err)
		}
		if s := status(a); err == nil && (s < 200 || s > 599) || runs > 1 && (m == "POST" || m == "PATCH") {
			t.Errorf("%T with the method %q: status %d after %d runs", ev, m, s, runs)
		}
	}
}

// isName reports whether s can be the name of an operation, see idempotent.Key.
func isName(s string) bool {
	return len(s) <= 256 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// A request has the same fingerprint through every event type, with two
// exceptions:
//
//   - An HTTP API decodes the path, so it is left out if that makes another
//     path of it.
//   - An Application Load Balancer without multi-value headers has only one
//     of two parameters of one name, so it is left out if there are two.
func FuzzSameRequest(f *testing.F) {
	kit.Inputs(f)
	f.Add("charges", "expand", "customer", "dry_run", "false", "application/json", []byte(`{"amount":1250}`))
	f.Add("a/b", "x", "1", "x", "2", "text/plain", []byte("\xff\x00"))
	f.Add("caf\u00e9?#", "a&b", "c=d +", "", "", "", []byte{})
	f.Add("%2F", "%", "%25", "\xff", "\x00", "application/x+json; charset=utf-8", []byte(` {"b":1.0,"a":1e0} `))
	f.Add("..", ";", ";", "é", "\n", "APPLICATION/JSON", []byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, segment, name1, value1, name2, value2, contentType string, body []byte) {
		r := charge(func(r *request) {
			r.path = "/" + url.PathEscape(segment)
			r.query = url.QueryEscape(name1) + "=" + url.QueryEscape(value1) + "&" + url.QueryEscape(name2) + "=" + url.QueryEscape(value2)
			r.header = map[string]string{"idempotency-key": `"` + keyA + `"`, "content-type": contentType}
			if r.body = string(body); !utf8.Valid(body) {
				r.body, r.base64 = base64.StdEncoding.EncodeToString(body), true
			}
		})
		g, runs := newGuard(t), 0
		for _, on := range wires {
			if on.name == "APIGatewayV2" && strings.ContainsAny(segment, "/%?") || on.name == "ALB" && name1 == name2 {
				continue
			}
			r := r
			if on.name == "APIGatewayV2" {
				r.path = "/" + segment
			}
			a, err := on.build(g, func(context.Context, request) (reply, error) { runs++; return reply{status: 201}, nil }, single,
				func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "charge" } },
			)(t.Context(), r)
			if err != nil || a.status != 201 || runs != 1 {
				t.Errorf("%s: status %d, error %v after %d runs", on.name, a.status, err, runs)
			}
		}
	})
}

// A record is found by operation, caller, key and path, whatever the event type
// and the spelling of the path are.
func TestKeyWithPath(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
		w.post(charge(withKey(`"`+strings.ToUpper(keyA)+`"`), to("", "/orders/a%2fb/caf%C3%A9"), mounted("/prod")))
		path := "/orders/a%2Fb/café"
		if on.name == "APIGatewayV1" {
			path = "/prod" + path // a base path, which the event does not name
		}
		want := idempotent.Key{Operation: "POST (no route)", Scope: "merchant-1", ID: pathkey.ID(path, keyA)}.RecordID()
		if got := w.store.record(t); got == nil || got.ID != want {
			t.Errorf("the record is %v, want %s", got, want)
		}
	})
}

// An event of API Gateway has a stage or a base path in its path, or neither. The
// route finds the resource behind them.
func TestResourceOfAPIGateway(t *testing.T) {
	t.Parallel()
	type params = map[string]string
	for _, c := range []struct {
		name, path, route string
		params            params
		stage             string
		want              string
	}{
		{"no base path", "/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "$default", "/orders/1/pay"},
		{"stage", "/prod/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "prod", "/orders/1/pay"},
		{"base path", "/v1/eu/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "prod", "/orders/1/pay"},
		{"base path like the route", "/orders/1/orders/1", "/orders/{id}", params{"id": "1"}, "prod", "/orders/1"},
		{"a decoded parameter", "/v1/orders/caf%C3%A9", "/orders/{id}", params{"id": "café"}, "prod", "/orders/caf%C3%A9"},
		{"greedy", "/v1/orders/1/pay", "/{proxy+}", params{"proxy": "orders/1/pay"}, "prod", "/orders/1/pay"},
		{"greedy below a segment", "/v1/api/orders/1", "/api/{rest+}", params{"rest": "orders/1"}, "prod", "/api/orders/1"},
		{"a slash at the end", "/v1/orders/", "/{proxy+}", params{"proxy": "orders"}, "prod", "/orders/"},
		{"the root", "/prod", "/", nil, "prod", "/"},
		{"the root with a slash", "/v1/", "/", nil, "prod", "/"},
		{"the root of an API", "/", "/", nil, "$default", "/"},
		{"no path", "", "/", nil, "$default", "/"},
		{"$default", "/orders/1", "$default", nil, "$default", "/orders/1"},
		{"$default of a stage", "/prod/orders/1", "$default", nil, "prod", "/orders/1"},
		{"$default at the root of a stage", "/prod", "$default", nil, "prod", "/"},
		{"$default, a path like the stage", "/production/1", "$default", nil, "prod", "/production/1"},
		{"$default, a path like its stage", "/$default/1", "$default", nil, "$default", "/$default/1"},
		{"a parameter is missing", "/prod/orders/1", "/orders/{id}", nil, "prod", "/prod/orders/1"},
		{"a parameter that is not in the path", "/v1/orders/1", "/orders/{id}", params{"id": "2"}, "prod", "/v1/orders/1"},
	} {
		var v2 v2Event
		v2.RequestContext.HTTP.Method, v2.RawPath, v2.RouteKey, v2.PathParameters = "POST", c.path, "POST "+c.route, c.params
		v1 := v1Event{HTTPMethod: "POST", Path: c.path, Resource: c.route, PathParameters: c.params}
		v2.RequestContext.Stage, v1.RequestContext.Stage = c.stage, c.stage
		if c.route == "$default" {
			v2.RouteKey, v1.Resource = "$default", "/$default"
		}
		for _, view := range []lambdahttp.Request{viewOf(t, lambdahttp.APIGatewayV2, v2), viewOf(t, lambdahttp.APIGatewayV1, v1)} {
			if got := lambdahttp.ResourceOf(&view); got != c.want {
				t.Errorf("%s: the resource of %T is %q, want %q", c.name, view.Event, got, c.want)
			}
		}
	}
}

// What is probably a mistake of the configuration is logged once for each handler, without
// the path and the key: an operation without a name, a method that is not guarded although
// its request has a key, and a rule that finds no caller.
func TestWarnings(t *testing.T) {
	t.Parallel()
	const operation, method, scope = "Options.Operation", "Profile.Methods", "Options.Scope"
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			route   string
			method  string
			options func(*lambdahttp.Options)
			want    string // empty: nothing
		}{
			"no route":             {"", "POST", nil, operation},
			"every path":           {catchAll, "POST", nil, operation},
			"its operation":        {"", "POST", func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "charge" } }, ""},
			"the profile's name":   {"", "POST", func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }, ""},
			"not a guarded method": {"", "POST", func(o *lambdahttp.Options) { o.Profile.Methods = []string{"PUT"} }, method},
			"not guarded, no key":  {"", "POST", func(o *lambdahttp.Options) { o.Profile.Methods = []string{"PUT"} }, ""},
			"a method that reads":  {"", "OPTIONS", nil, ""},
			"no caller": {"/charges/{id}", "POST", func(o *lambdahttp.Options) {
				o.Operation = func(*lambdahttp.Request) string { return "charge" }
				o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { return "", nil }
			}, scope},
		} {
			var log bytes.Buffer
			w := newFixtureWith(t, on, logsTo(&log), optional, func(o *lambdahttp.Options) {
				if c.options != nil {
					c.options(o)
				}
			})
			for _, id := range []string{"1", "2"} {
				w.post(charge(to(c.route, "/charges/secret-"+id), withMethod(c.method), without("idempotency-key")))
				if name != "not guarded, no key" {
					w.post(charge(to(c.route, "/charges/secret-"+id), withMethod(c.method)))
				}
			}
			for _, part := range []string{operation, method, scope} {
				if got := strings.Count(log.String(), part); got != map[bool]int{true: 1}[part == c.want] || strings.Contains(log.String(), "secret") || strings.Contains(log.String(), keyA) {
					t.Errorf("%s: got %d lines about %s:\n%s", name, got, part, log.String())
				}
			}
		}
	})
}
