// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
)

const api = "https://api.example.com/charges"

// server is a scripted server. It plays its answers one after the other, and then
// 201. It records what it receives.
type server struct {
	answers []answer
	got     []received
}

type answer func(*http.Request) (*http.Response, error)

type received struct {
	method, url, key, body string
	length                 int64
	at                     time.Time
	header                 http.Header
	context                context.Context
	answer                 *closes // the body of the answer, if there is one
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	got := received{method: r.Method, url: r.URL.String(), key: strings.Join(r.Header["Idempotency-Key"], "|"), length: r.ContentLength, at: time.Now(), header: r.Header, context: r.Context()}
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		got.body = string(data)
		r.Body.Close()
	}
	s.got = append(s.got, got)
	play := status(http.StatusCreated, `{"id":"ch_1"}`)
	if len(s.answers) > 0 {
		play, s.answers = s.answers[0], s.answers[1:]
	}
	resp, err := play(r)
	if resp != nil {
		got.answer = &closes{ReadCloser: resp.Body}
		resp.Body = got.answer
		s.got[len(s.got)-1] = got
	}
	return resp, err
}

// sameKey fails t unless all requests had one key, which it returns, and all bodies of
// answers are closed.
func (s *server) sameKey(t *testing.T) string {
	t.Helper()
	if len(s.got) == 0 || s.got[0].key == "" {
		t.Fatalf("the server got %d requests, the first without a key", len(s.got))
	}
	for _, r := range s.got {
		if r.key != s.got[0].key {
			t.Errorf("two keys: %s, %s", s.got[0].key, r.key)
		}
		if r.answer != nil && r.answer.n != 1 {
			t.Errorf("the body of an answer was closed %d times", r.answer.n)
		}
	}
	return s.got[0].key
}

// status answers with a status, a body and header lines "Name: value".
func status(code int, body string, lines ...string) answer {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, value)
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
}

func fails(err error) answer {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// hangs answers when the request's context ends.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// breaksOff answers with a body that ends with an error after its data.
func breaksOff(data string) answer {
	return func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(data), failing{io.ErrUnexpectedEOF})
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// newTransport returns a Transport without jitter for the server.
func newTransport(t *testing.T, s http.RoundTripper, optFns ...func(*idempotencyclient.Options)) *idempotencyclient.Transport {
	t.Helper()
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts, o.Base, o.Jitter = []string{"api.example.com"}, s, -1
		for _, f := range optFns {
			if f != nil {
				f(o)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func newRequest(t *testing.T, ctx context.Context, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// send sends a charge and returns the status, the body and the error.
func send(t *testing.T, transport *idempotencyclient.Transport) (int, string, error) {
	t.Helper()
	return sendRequest(t, transport, newRequest(t, t.Context(), http.MethodPost, api, "4200"))
}

func sendRequest(t *testing.T, transport *idempotencyclient.Transport, req *http.Request) (int, string, error) {
	t.Helper()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	data, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return resp.StatusCode, string(data), err
}

// failure fails t unless err is an *Error.
func failure(t *testing.T, err error) *idempotencyclient.Error {
	t.Helper()
	var e *idempotencyclient.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}

// What Check reads from a response, which can be read as before.
func TestCheck(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	const advice = ": the request may have been executed; send it again later, with the same key only"
	until := time.Date(2026, 1, 1, 12, 0, 12, 0, time.UTC)
	for name, row := range map[string]struct {
		status  int
		media   string // default: application/json
		body    string
		lines   []string
		want    *idempotencyclient.Problem
		unknown bool
		text    string
	}{
		"a success":        {status: 201, body: `{"code":"in-progress"}`},
		"a 202 of the API": {status: 202, body: `{"code":"accepted"}`},
		"a redirect":       {status: 303, body: `{"code":"in-progress"}`, lines: []string{"Retry-After: 1"}},
		"accepted": {status: 202, body: `{"code":"accepted"}`, lines: []string{"Retry-After: 2"}, unknown: true,
			want: &idempotencyclient.Problem{Status: 202, Code: "accepted", RetryAfter: 2 * time.Second},
			text: `202 Accepted ("accepted")` + advice},
		"a problem document": {status: 409, media: problem + "; charset=utf-8", lines: []string{"Retry-After: 2"}, unknown: true,
			body: `{"type":"https://x/#in-progress","title":"T","status":409,"detail":"D","code":"in-progress","resource":"/charges/ch_1","until":"2026-01-01T12:00:12Z"}`,
			want: &idempotencyclient.Problem{Status: 409, Type: "https://x/#in-progress", Title: "T", Detail: "D", Code: "in-progress", Resource: "/charges/ch_1", Until: until, RetryAfter: 2 * time.Second},
			text: `409 Conflict ("in-progress")` + advice},
		"an error of Stripe": {status: 400, body: `{"error":{"type":"idempotency_error","code":"idempotency_key_reused","message":"M"}}`,
			want: &idempotencyclient.Problem{Status: 400, Type: "idempotency_error", Code: "idempotency_key_reused", Detail: "M"},
			text: `400 Bad Request ("idempotency_key_reused"): the key belongs to another request; send that one unchanged, or use a new key for this one`},
		"a replay that is not available": {status: 409, media: problem, body: `{"code":"replay-unavailable"}`, unknown: true,
			want: &idempotencyclient.Problem{Status: 409, Code: "replay-unavailable"},
			text: `409 Conflict ("replay-unavailable"): the request was executed, and its response is not available; look up its result, and do not use a new key`},
		"an outage": {status: 503, media: "text/html", body: "<p>", unknown: true, want: &idempotencyclient.Problem{Status: 503}, text: "503 Service Unavailable" + advice},
		"a stored outage": {status: 500, media: "text/html", lines: []string{"Idempotent-Replayed: true"}, want: &idempotencyclient.Problem{Status: 500, Replayed: true},
			text: "500 Internal Server Error"},
		"an unsupported method": {status: 501, want: &idempotencyclient.Problem{Status: 501}, text: "501 Not Implemented"},
		"a final outcome": {status: 402, body: `{"code":"card_declined","detail":"no key here"}`,
			want: &idempotencyclient.Problem{Status: 402, Code: "card_declined", Detail: "no key here"}, text: `402 Payment Required ("card_declined")`},
		"a stored throttle": {status: 429, lines: []string{"Idempotent-Replayed: true", "Retry-After: Thu, 01 Jan 2015 12:00:00 GMT"},
			want: &idempotencyclient.Problem{Status: 429, Replayed: true}, text: "429 Too Many Requests"},
		"a stored conflict": {status: 409, lines: []string{"Idempotent-Replayed: true", "Retry-After: 1"}, want: &idempotencyclient.Problem{Status: 409, RetryAfter: time.Second, Replayed: true}, text: "409 Conflict"},
		"a conflict of a type": {status: 409, media: problem, body: `{"type":"https://x/out-of-stock"}`,
			want: &idempotencyclient.Problem{Status: 409, Type: "https://x/out-of-stock"}, text: "409 Conflict"},
		"a conflict of a declared type": {status: 409, media: problem, body: `{"type":"https://x/#outcome-unknown"}`, unknown: true,
			want: &idempotencyclient.Problem{Status: 409, Type: "https://x/#outcome-unknown"}, text: "409 Conflict" + advice},
		"a conflict of no type": {status: 409, media: problem, body: `{"type":"about:blank"}`, unknown: true,
			want: &idempotencyclient.Problem{Status: 409, Type: "about:blank"}, text: "409 Conflict" + advice},
		"a conflict that passes": {status: 409, body: `{"code":"locked"}`, lines: []string{"Retry-After: 1"}, unknown: true,
			want: &idempotencyclient.Problem{Status: 409, Code: "locked", RetryAfter: time.Second}, text: `409 Conflict ("locked")` + advice},
		"a conflict": {status: 409, unknown: true, want: &idempotencyclient.Problem{Status: 409}, text: "409 Conflict" + advice},
		"members of other types": {status: 422, body: `{"type":1,"title":"T","code":"x","until":"soon","error":"failed"}`,
			want: &idempotencyclient.Problem{Status: 422, Title: "T", Code: "x"}, text: `422 Unprocessable Entity ("x")`},
		"another media type":     {status: 422, media: "text/plain", body: `{"code":"x"}`, want: &idempotencyclient.Problem{Status: 422}, text: "422 Unprocessable Entity"},
		"broken JSON":            {status: 422, body: `{"code":"x"`, want: &idempotencyclient.Problem{Status: 422}, text: "422 Unprocessable Entity"},
		"a long code":            {status: 422, body: `{"code":"` + strings.Repeat("x", 99) + `"}`, want: &idempotencyclient.Problem{Status: 422, Code: strings.Repeat("x", 99)}, text: `422 Unprocessable Entity ("` + strings.Repeat("x", 64) + `")`},
		"a long body":            {status: 422, body: `{"code":"x"}` + strings.Repeat(" ", 70<<10), want: &idempotencyclient.Problem{Status: 422, Code: "x"}, text: `422 Unprocessable Entity ("x")`},
		"a body above the limit": {status: 422, body: strings.Repeat(" ", 64<<10) + `{"code":"x"}`, want: &idempotencyclient.Problem{Status: 422}, text: "422 Unprocessable Entity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := row.lines
			if row.media != "" {
				lines = append(lines, "Content-Type: "+row.media)
			}
			resp, _ := status(row.status, row.body, lines...)(nil)
			closed := &closes{ReadCloser: resp.Body}
			resp.Body = closed
			err := idempotencyclient.Check(resp)
			if rest, readErr := io.ReadAll(resp.Body); string(rest) != row.body || readErr != nil || closed.n != 0 {
				t.Errorf("afterwards the body is %q, %v, closed %d times", rest, readErr, closed.n)
			}
			if row.want == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var got *idempotencyclient.Problem
			if !errors.As(err, &got) || *got != *row.want {
				t.Fatalf("got %+v, want %+v", err, row.want)
			}
			if want := "idempotencyclient: the server answered " + row.text; got.Error() != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got.Unknown() != row.unknown {
				t.Errorf("unknown: %t", got.Unknown())
			}
		})
	}
}

// A body that breaks off while a problem is read breaks off for the caller too.
func TestCheck_BrokenBody(t *testing.T) {
	t.Parallel()
	resp := &http.Response{StatusCode: 422, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{io.ErrUnexpectedEOF}))}
	if err := idempotencyclient.Check(resp); err == nil {
		t.Error("no problem")
	}
	if data, err := io.ReadAll(resp.Body); string(data) != "{" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v", data, err)
	}
}
