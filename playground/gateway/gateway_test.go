// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/playground/gateway"
)

type (
	request  = events.APIGatewayV2HTTPRequest
	response = events.APIGatewayV2HTTPResponse
)

// log collects what the gateway logs.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newGateway(t *testing.T, h gateway.Handler, optFns ...func(*gateway.Options)) (*gateway.Gateway, *log) {
	t.Helper()
	l := &log{}
	g, err := gateway.New(h, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Logger = slog.New(slog.NewTextHandler(l, nil))
	}}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g, l
}

// send returns the event that the handler gets for r.
func send(t *testing.T, r *http.Request) (event request) {
	t.Helper()
	g, _ := newGateway(t, func(_ context.Context, ev request) (response, error) {
		event = ev
		return response{StatusCode: 204}, nil
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	if w.Code != 204 {
		t.Fatalf("got status %d: %s", w.Code, w.Body)
	}
	return event
}

func TestEvent(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "http://pay.test:8080/charges?b=2&a=1&a=x%20y", strings.NewReader(`{"a":"ü"}`))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Add("Idempotency-Key", `"one"`)
	r.Header.Add("Idempotency-Key", `"two"`)
	r.Header.Add("Cookie", "a=1; b=2")
	r.Header.Add("Cookie", "c=3")
	r.Header.Set("User-Agent", "test")
	ev := send(t, r)

	for _, row := range []struct {
		what      string
		got, want any
	}{
		{"version", ev.Version, "2.0"},
		{"route key", ev.RouteKey, "$default"},
		{"raw path", ev.RawPath, "/charges"},
		{"raw query", ev.RawQueryString, "b=2&a=1&a=x%20y"},
		{"query", ev.QueryStringParameters, map[string]string{"a": "1,x y", "b": "2"}},
		{"cookies", ev.Cookies, []string{"a=1", "b=2", "c=3"}},
		{"headers", ev.Headers, map[string]string{
			"content-type": "application/json; charset=utf-8", "host": "pay.test:8080",
			"idempotency-key": `"one","two"`, "user-agent": "test",
		}},
		{"body", ev.Body, `{"a":"ü"}`},
		{"base64", ev.IsBase64Encoded, false},
		{"context's route key", ev.RequestContext.RouteKey, "$default"},
		{"domain", ev.RequestContext.DomainName, "pay.test"},
		{"stage", ev.RequestContext.Stage, "$default"},
		{"http", ev.RequestContext.HTTP, events.APIGatewayV2HTTPRequestContextHTTPDescription{
			Method: "POST", Path: "/charges", Protocol: "HTTP/1.1", SourceIP: "192.0.2.1", UserAgent: "test",
		}},
	} {
		if !reflect.DeepEqual(row.got, row.want) {
			t.Errorf("%s: got %#v, want %#v", row.what, row.got, row.want)
		}
	}
	if ev.RequestContext.RequestID == "" || ev.RequestContext.Time == "" || ev.RequestContext.TimeEpoch == 0 {
		t.Errorf("got the request context %+v", ev.RequestContext)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := gateway.New(nil, func(o *gateway.Options) { o.Timeout = -1 }); err == nil {
		t.Error("a negative time-out was accepted")
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		contentType, body string
		base64            bool
	}{
		{"application/json", `{}`, false},
		{"application/problem+json", `{}`, false},
		{"text/plain; charset=utf-8", "ü", false},
		{"application/json", "\xff\xfe", true},
		{"application/octet-stream", "text", true},
		{"application/x-www-form-urlencoded", "a=b", true},
		{"", "text", true},
		{"image/png", "\x89PNG", true},
		{"image/png", "", false},
	} {
		r := httptest.NewRequest("POST", "/charges", strings.NewReader(row.body))
		r.Header.Set("Content-Type", row.contentType)
		ev := send(t, r)
		want := row.body
		if row.base64 {
			want = base64.StdEncoding.EncodeToString([]byte(row.body))
		}
		if ev.Body != want || ev.IsBase64Encoded != row.base64 {
			t.Errorf("%q %q: got %q, base64 %t", row.contentType, row.body, ev.Body, ev.IsBase64Encoded)
		}
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	g, _ := newGateway(t, func(context.Context, request) (response, error) {
		return response{
			StatusCode:      http.StatusCreated,
			Headers:         map[string]string{"content-type": "image/png", "Location": "/charges/ch_1"},
			Cookies:         []string{"a=1; HttpOnly", "b=2"},
			Body:            base64.StdEncoding.EncodeToString([]byte("\x89PNG")),
			IsBase64Encoded: true,
		}, nil
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusCreated || w.Body.String() != "\x89PNG" || w.Header().Get("Content-Type") != "image/png" ||
		w.Header().Get("Location") != "/charges/ch_1" || !reflect.DeepEqual(w.Header()["Set-Cookie"], []string{"a=1; HttpOnly", "b=2"}) ||
		w.Header().Get("Apigw-Requestid") == "" {
		t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
	}
}

// workerEnded has a text for logs.
type workerEnded struct{}

func (workerEnded) Error() string        { return "4242424242424242" }
func (workerEnded) LogValue() slog.Value { return slog.StringValue("worker 7 ended") }

// If the handler fails, the client gets no details, the log only the kind of
// failure and a text that is declared safe, and the next request is served.
func TestFailures(t *testing.T) {
	t.Parallel()
	const secret = "4242424242424242"
	for name, row := range map[string]struct {
		handler gateway.Handler
		logs    []string
	}{
		"error": {func(context.Context, request) (response, error) { return response{}, errors.New(secret) }, []string{"the handler failed", "*errors.errorString"}},
		"loggable error": {func(context.Context, request) (response, error) {
			return response{}, fmt.Errorf("%s: %w", secret, workerEnded{})
		}, []string{"the handler failed", "*fmt.wrapError", "worker 7 ended"}},
		"panic": {func(context.Context, request) (response, error) { panic(errors.New(secret)) }, []string{"the handler panicked", "*errors.errorString", "gateway_test.go:"}},
		"bad index": {func(_ context.Context, ev request) (response, error) {
			return response{Body: strings.Split(ev.Body, secret)[1]}, nil
		}, []string{"the handler panicked", "runtime.boundsError", "gateway_test.go:"}},
		"no status":  {func(context.Context, request) (response, error) { return response{Body: secret}, nil }, []string{"has no status from 200 to 599"}},
		"bad status": {func(context.Context, request) (response, error) { return response{StatusCode: 102}, nil }, []string{"has no status from 200 to 599"}},
		"no base64": {func(context.Context, request) (response, error) {
			return response{StatusCode: 200, Body: "%" + secret, IsBase64Encoded: true}, nil
		}, []string{"declared as base64"}},
		"too large": {func(context.Context, request) (response, error) {
			return response{StatusCode: 200, Body: strings.Repeat("x", gateway.MaxPayload+1)}, nil
		}, []string{"larger than the 6 MB"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, logged := newGateway(t, row.handler)
			for range 2 {
				w := httptest.NewRecorder()
				g.ServeHTTP(w, httptest.NewRequest("POST", "/charges", nil))
				if w.Code != http.StatusBadGateway || w.Body.String() != `{"message":"Internal Server Error"}` || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			for _, want := range row.logs {
				if !strings.Contains(logged.String(), want) {
					t.Errorf("the log does not contain %q: %s", want, logged)
				}
			}
			if strings.Contains(logged.String(), secret) {
				t.Errorf("the log contains data of the handler: %s", logged)
			}
		})
	}
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	calls := 0
	g, _ := newGateway(t, func(context.Context, request) (response, error) {
		calls++
		return response{StatusCode: 200}, nil
	})
	server := httptest.NewServer(g)
	defer server.Close()
	post := func(size int, expect bool) (*http.Response, string) {
		r, err := http.NewRequest("POST", server.URL, bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		if expect {
			r.Header.Set("Expect", "100-continue")
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	if resp, _ := post(gateway.MaxPayload, false); resp.StatusCode != 200 || calls != 1 {
		t.Errorf("a body of 6 MB: got %d, %d calls", resp.StatusCode, calls)
	}
	for _, expect := range []bool{false, true} {
		for _, size := range []int{gateway.MaxPayload + 1, 3 * gateway.MaxPayload} {
			resp, body := post(size, expect)
			if resp.StatusCode != http.StatusRequestEntityTooLarge || resp.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, "6291456") || !strings.Contains(body, "Nothing was run") {
				t.Errorf("a body of %d bytes: got %d %s", size, resp.StatusCode, body)
			}
		}
	}
	if calls != 1 {
		t.Errorf("the handler was called %d times, want 1", calls)
	}
}

func TestBrokenBody(t *testing.T) {
	t.Parallel()
	g, _ := newGateway(t, func(context.Context, request) (response, error) {
		t.Error("the handler was called")
		return response{}, nil
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("POST", "/charges", io.MultiReader(strings.NewReader("{"), brokenReader{})))
	if w.Code != http.StatusBadRequest {
		t.Errorf("got %d", w.Code)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("reset") }

// A handler that outlives its deadline continues, and the gateway answers for
// it.
func TestDeadline(t *testing.T) {
	t.Parallel()
	release, finished := make(chan struct{}), false
	g, logged := newGateway(t, func(ctx context.Context, _ request) (response, error) {
		<-ctx.Done()
		<-release
		finished = true
		return response{StatusCode: 200}, nil
	}, func(o *gateway.Options) { o.Timeout = time.Millisecond })
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("POST", "/charges", nil))
	if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), "timed out") || !strings.Contains(logged.String(), "outlived its deadline") {
		t.Errorf("got %d %s\n%s", w.Code, w.Body, logged)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain with a handler running: got %v", err)
	}
	close(release)
	if err := g.Drain(t.Context()); err != nil || !finished {
		t.Errorf("Drain: got %v, the handler has finished: %t", err, finished)
	}
}

// The handler's context has the deadline and the request's id, and does not end
// with the client's connection, as on Lambda.
func TestContext(t *testing.T) {
	t.Parallel()
	g, _ := newGateway(t, func(ctx context.Context, ev request) (response, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left < time.Minute || left > time.Hour {
			t.Errorf("the deadline is in %s (%t)", left, ok)
		}
		if lc, ok := lambdacontext.FromContext(ctx); !ok || lc.AwsRequestID != ev.RequestContext.RequestID {
			t.Errorf("got the Lambda context %+v", lc)
		}
		if ctx.Err() != nil {
			t.Error("the handler's context ended with the client")
		}
		return response{StatusCode: 200}, nil
	}, func(o *gateway.Options) { o.Timeout = time.Hour })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("POST", "/charges", nil).WithContext(gone))
	if w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}
