// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

const lambda, loadBalancer = 6 << 20, 1 << 20 // bytes of a response as JSON

// A response is stored up to what the service in front of the function accepts, as the
// event that it becomes: with what base64 and JSON add, and 1 KiB for the headers of a
// replay. Beyond that the first caller and a retry get replay-unavailable.
func TestLargestResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"APIGatewayV2":  largest(lambdahttp.APIGatewayV2, "apigatewayv2/post", lambda),
		"FunctionURL":   largest(lambdahttp.FunctionURL, "functionurl/post", lambda),
		"APIGatewayV1":  largest(lambdahttp.APIGatewayV1, "apigatewayv1/post", lambda),
		"ALB":           largest(lambdahttp.ALB, "alb/post", loadBalancer),
		"ALBMultiValue": largest(lambdahttp.ALB, "alb/multivalue", loadBalancer),
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

func largest[Ev, Ans any](build builder[Ev, Ans], event string, limit int) func(*testing.T) {
	return func(t *testing.T) {
		// again returns the log of a request whose response has the body, and the JSON of
		// its replay, as the runtime of Lambda encodes it.
		again := func(body string, base64 bool) (log string, replay []byte) {
			var lines, out bytes.Buffer
			own := transcoded[Ans](t, map[string]any{"statusCode": 201, "body": body, "isBase64Encoded": base64})
			h := build(newGuard(t, logsTo(&lines)), func(context.Context, Ev) (Ans, error) { return own, nil }, single)
			_, err := h(t.Context(), load[Ev](t, event))
			a, again := h(t.Context(), load[Ev](t, event))
			e := json.NewEncoder(&out)
			e.SetEscapeHTML(false)
			if err := errors.Join(err, again, e.Encode(a)); err != nil {
				t.Fatal(err)
			}
			return lines.String(), out.Bytes()
		}
		for name, c := range map[string]struct {
			body   func(size int) string // that takes so much of the JSON
			base64 bool
		}{
			"text":    {func(n int) string { return strings.Repeat("<", n) }, false},
			"escapes": {func(n int) string { return strings.Repeat("x", n%6) + strings.Repeat("\x01", n/6) }, false},
			"base64": {func(n int) string {
				return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, n/4*3))
			}, true},
		} {
			if name != "text" && limit == lambda {
				continue // only takes longer
			}
			_, small := again(c.body(8), c.base64)
			marked := len(`"Idempotent-Replayed":"true"`)
			if bytes.Contains(small, []byte(`["true"]`)) {
				marked += len("[]")
			}
			size, more := limit-1024-(len(small)-marked-8), 1
			if c.base64 { // in groups of four
				size, more = size/4*4, 4
			}
			if log, replay := again(c.body(size), c.base64); !bytes.Contains(replay, []byte("Idempotent-Replayed")) || len(replay) > limit || strings.Contains(log, "ERROR") {
				t.Errorf("%s of %d: not replayed: %.200s\n%s", name, size, replay, log)
			}
			if log, replay := again(c.body(size+more), c.base64); !bytes.Contains(replay, []byte("replay-unavailable")) ||
				!strings.Contains(log, "level=ERROR") || !strings.Contains(log, "bytes as JSON; at most "+map[int]string{lambda: "6290432", loadBalancer: "1047552"}[limit]+" can be sent") {
				t.Errorf("%s of %d: replayed: %.200s\n%s", name, size+more, replay, log)
			}
		}
	}
}

// The outcome of a response that is too large is stored without it, and the key does not run
// again. Its first caller and each retry get the answer for that, with the resource.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	big := func(status int, err error) handler {
		return func(ctx context.Context, r request) (reply, error) {
			a, _ := created(ctx, r)
			a.status, a.body = status, large
			return a, err
		}
	}
	commits := func(response lambdahttp.Response, h handler) handler {
		return func(ctx context.Context, r request) (reply, error) {
			e, _ := idempotent.FromContext(ctx)
			_ = e.SetRef("/charges/ch_1")
			if err := e.Commit(ctx, response, e.Store().Replace); err != nil {
				t.Error(err)
			}
			return h(ctx, r)
		}
	}
	stored := lambdahttp.Response{Status: 201, Body: []byte(large)}
	for name, c := range map[string]struct {
		options      func(*lambdahttp.Options)
		h            handler
		first, again int    // 409: replay-unavailable
		detail       string // of the problem; "": the standard one
		record       string
		runs         int
	}{
		"returned":             {nil, big(201, nil), 409, 409, "", "completed", 1},
		"a 5xx that is stored": {serverErrors(lambdahttp.StoreServerErrors), big(500, nil), 409, 409, "", "completed", 1},
		"a 5xx that is not":    {nil, big(500, nil), 500, 0, "", "unknown", 1},
		"not executed":         {nil, big(429, idempotent.NotExecuted(nil)), 429, 429, "", "retryable", 2},
		"NoStore": {nil, func(ctx context.Context, r request) (reply, error) {
			lambdahttp.NoStore(ctx, "Roll the key.")
			return big(201, nil)(ctx, r)
		}, 409, 409, "Roll the key.", "completed", 1},
		"committed":                   {nil, commits(stored, big(201, nil)), 409, 409, "", "completed", 1},
		"another committed":           {nil, commits(committed, big(201, nil)), 201, 201, "", "completed", 1},
		"committed, another returned": {nil, commits(stored, created), 409, 409, "", "completed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, on := range wires {
				if on.constructor != "ALB" { // the limit of the others is in TestLargestResponse
					continue
				}
				w := newFixture(t, on, optionally(c.options))
				w.becomes(c.h)
				check := func(which string, status int) {
					a := w.post(charge())
					unavailable := strings.Contains(a.body, "replay-unavailable")
					if status != 0 && a.status != status || status == 409 && (!unavailable || a.cookies != nil || len(a.body) > 1000 ||
						!strings.Contains(a.body, c.detail) || !strings.Contains(a.body, `"resource":"/charges/ch_1"`)) || status != 409 && unavailable {
						t.Errorf("%s, %s: got %d %v %.300s, want %d", on.name, which, a.status, a.header, a.body, status)
					}
					if says := a.header["Idempotency-Status"]; status == 409 && (says == "not-stored") != (which == "first") {
						t.Errorf("%s, %s: Idempotency-Status is %q", on.name, which, says)
					}
				}
				check("first", c.first)
				w.wantRecord(1, c.record)
				check("a retry", c.again)
				w.wantRecord(c.runs, c.record)
			}
		})
	}
}

// A stored response that another service accepts, or evidence, is not sent to one that does
// not. Behind the middleware its own limit applies.
func TestTooLargeForThisService(t *testing.T) {
	t.Parallel()
	same := func(o *lambdahttp.Options) {
		o.Scope, o.Operation, o.MaxResponseBody = lambdahttp.SingleTenant, func(*lambdahttp.Request) string { return "charge" }, 8<<20
	}
	var log bytes.Buffer
	w := newFixtureWith(t, wires[0], logsTo(&log), same)
	large := func(ctx context.Context, r request) (reply, error) {
		a, _ := created(ctx, r)
		a.body = strings.Repeat("x", 2<<20)
		return a, nil
	}
	for i, send := range []struct {
		build  func(*idempotent.Guard, handler, ...func(*lambdahttp.Options)) sender
		status int
	}{{buildV2, 201}, {buildHTTP, 201}, {buildALB(true), 409}, {buildALB(false), 409}, {buildURL, 201}} {
		a, err := send.build(w.guard, large, same)(t.Context(), charge())
		if err != nil || a.status != send.status || (a.header["Idempotent-Replayed"] == "true") != (i > 0 && send.status == 201) || strings.Contains(log.String(), "ALB: the response has") != (i > 1) {
			t.Errorf("%d: got %d %v %.300s, error %v; the log:\n%s", i, a.status, a.header, a.body, err, &log)
		}
	}
	w.becomes(answers(504, nil))
	other := charge(withKey(`"` + keyB + `"`))
	w.post(other)
	if err := w.guard.Resolve(t.Context(), w.store.record(t).ID, lambdahttp.Resolved(lambdahttp.Response{Status: http.StatusCreated, Body: make([]byte, 5<<20)})); err != nil {
		t.Fatal(err)
	}
	if a := w.post(other); a.status != 409 || !strings.Contains(a.body, "replay-unavailable") || !strings.Contains(log.String(), "APIGatewayV2: the response has") {
		t.Errorf("evidence: got %d %.300s", a.status, a.body)
	}
}
