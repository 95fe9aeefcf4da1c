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
