package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// seen is the rules' view of an event; testdata contains one for each.
type seen struct {
	Method, Path, Route, RawQuery, RequestID, Operation string

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
		Method: r.Method, Path: r.Path, Route: r.Route, RawQuery: r.RawQuery, RequestID: r.RequestID, Operation: lambdahttp.OperationOf(r),
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

// echoed is the response of a handler that returns the request's body.
type echoed struct {
	status   int
	body     string
	base64   bool
	replayed bool
}

// echo builds a handler that responds with the body it gets, for the event type
// that the file's name starts with, and returns a function that sends the
// event.
func echo(t *testing.T, file string, data []byte, g *idempotent.Guard, opts func(*lambdahttp.Options)) func() echoed {
	kind, _, _ := strings.Cut(filepath.Base(file), "-")
	switch kind {
	case "apigatewayv2":
		type answer = events.APIGatewayV2HTTPResponse
		h := lambdahttp.APIGatewayV2(g, func(_ context.Context, ev events.APIGatewayV2HTTPRequest) (answer, error) {
			return answer{StatusCode: 200, Body: ev.Body, IsBase64Encoded: ev.IsBase64Encoded}, nil
		}, opts)
		return sending(t, data, h, func(a answer) echoed {
			return echoed{a.StatusCode, a.Body, a.IsBase64Encoded, a.Headers["Idempotent-Replayed"] == "true"}
		})
	case "functionurl":
		type answer = events.LambdaFunctionURLResponse
		h := lambdahttp.FunctionURL(g, func(_ context.Context, ev events.LambdaFunctionURLRequest) (answer, error) {
			return answer{StatusCode: 200, Body: ev.Body, IsBase64Encoded: ev.IsBase64Encoded}, nil
		}, opts)
		return sending(t, data, h, func(a answer) echoed {
			return echoed{a.StatusCode, a.Body, a.IsBase64Encoded, a.Headers["Idempotent-Replayed"] == "true"}
		})
	case "apigatewayv1":
		type answer = events.APIGatewayProxyResponse
		h := lambdahttp.APIGatewayV1(g, func(_ context.Context, ev events.APIGatewayProxyRequest) (answer, error) {
			return answer{StatusCode: 200, Body: ev.Body, IsBase64Encoded: ev.IsBase64Encoded}, nil
		}, opts)
		return sending(t, data, h, func(a answer) echoed {
			return echoed{a.StatusCode, a.Body, a.IsBase64Encoded, len(a.MultiValueHeaders["Idempotent-Replayed"]) == 1}
		})
	case "alb":
		type answer = events.ALBTargetGroupResponse
		h := lambdahttp.ALB(g, func(_ context.Context, ev events.ALBTargetGroupRequest) (answer, error) {
			return answer{StatusCode: 200, StatusDescription: "200 OK", Body: ev.Body, IsBase64Encoded: ev.IsBase64Encoded}, nil
		}, opts)
		return sending(t, data, h, func(a answer) echoed {
			if a.StatusDescription != "200 OK" {
				t.Errorf("%s: status description %q", file, a.StatusDescription)
			}
			return echoed{a.StatusCode, a.Body, a.IsBase64Encoded, a.Headers["Idempotent-Replayed"] == "true" || len(a.MultiValueHeaders["Idempotent-Replayed"]) == 1}
		})
	case "nethttp":
		h := lambdahttp.Middleware(g, opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Error(err)
			}
		}))
		return func() echoed {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			w := &plainWriter{header: http.Header{}}
			h.ServeHTTP(w, r)
			a := w.reply()
			return echoed{a.status, a.body, a.base64, a.header["Idempotent-Replayed"] == "true"}
		}
	}
	t.Fatalf("%s: the name does not start with an event type", file)
	return nil
}

func sending[Ev, Ans any](t *testing.T, data []byte, h func(context.Context, Ev) (Ans, error), look func(Ans) echoed) func() echoed {
	return func() echoed {
		var ev Ev
		if err := json.Unmarshal(data, &ev); err != nil {
			t.Fatal(err)
		}
		a, err := h(t.Context(), ev)
		if err != nil {
			t.Error(err)
		}
		return look(a)
	}
}

// Every event of testdata has the view in its golden file and gets a response:
// first the handler's, then the stored one if it is guarded.
func TestEvents(t *testing.T) {
	t.Parallel()
	files, _ := filepath.Glob("testdata/*-*.*")
	kinds := map[string]int{}
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		kind, _, _ := strings.Cut(filepath.Base(file), "-")
		kinds[kind]++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var view seen
			send := echo(t, file, data, newGuard(t), func(o *lambdahttp.Options) {
				o.Scope = lambdahttp.SingleTenant
				o.Profile.Methods = []string{"POST", "PATCH", "GET"}
				o.Operation = func(r *lambdahttp.Request) string {
					view = newSeen(t, r)
					return lambdahttp.OperationOf(r)
				}
			})
			first := send()
			golden(t, file+".golden", view)
			if first.status != 200 || first.replayed || first.body != view.Body {
				t.Errorf("got the first response %+v", first)
			}
			second := send()
			if want := len(view.Key) == 1; second.replayed != want {
				t.Errorf("the second response is replayed: %t, want %t", second.replayed, want)
			}
			second.replayed = false
			if second != first {
				t.Errorf("got the second response %+v, want the first one %+v", second, first)
			}
		})
	}
	for _, kind := range []string{"apigatewayv2", "functionurl", "apigatewayv1", "alb", "nethttp"} {
		if kinds[kind] < 2 {
			t.Errorf("testdata has %d events of the type %s, want more", kinds[kind], kind)
		}
	}
}

// golden compares v with the file, and writes the file with -update.
func golden(t *testing.T, file string, v any) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	got := b.Bytes()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the view of the event (-update writes it): %v\n%s", file, err, got)
	}
}
