// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// No event causes a panic, every response has a valid status, and a request of
// a guarded method runs at most once. Only an event without a method, or whose
// route cannot be the name of an operation, causes an error.
func FuzzTranslate(f *testing.F) {
	kit.Inputs(f)
	files, _ := filepath.Glob("testdata/*-*.*")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if !strings.HasSuffix(file, ".golden") {
			f.Add(data)
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
		fuzzEvent(t, data, lambdahttp.APIGatewayV2, func(ev *events.APIGatewayV2HTTPRequest) string { return ev.RequestContext.HTTP.Method },
			events.APIGatewayV2HTTPResponse{StatusCode: 200}, func(a events.APIGatewayV2HTTPResponse) int { return a.StatusCode })
		fuzzEvent(t, data, lambdahttp.FunctionURL, func(ev *events.LambdaFunctionURLRequest) string { return ev.RequestContext.HTTP.Method },
			events.LambdaFunctionURLResponse{StatusCode: 200}, func(a events.LambdaFunctionURLResponse) int { return a.StatusCode })
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
	build func(*idempotent.Guard, func(context.Context, Ev) (Ans, error), ...func(*lambdahttp.Options)) func(context.Context, Ev) (Ans, error),
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
