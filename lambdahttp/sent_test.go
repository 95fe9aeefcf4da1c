// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/lambdahttp"
)

// A layer around Middleware can change a request, and two different requests must not
// become equal by that.

// front brings a client's request to a handler, and its response back.
type front struct {
	name string
	// lengths reports whether the handler is given the length of a body that the
	// client sends in parts.
	lengths bool
	serve   func(*testing.T, http.Handler) func(*http.Request) *http.Response
}

var fronts = []front{
	{"HTTP/1.1", false, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return toServer(t, server)
	}},
	{"HTTP/2", false, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 {
				t.Error("the request has not come by HTTP/2")
			}
			h.ServeHTTP(w, r)
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		return toServer(t, server)
	}},
	{"function URL", true, func(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
		invoke := lambdaurl.Wrap(h)
		return func(r *http.Request) *http.Response {
			event := &events.LambdaFunctionURLRequest{RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery, Headers: map[string]string{}}
			event.RequestContext.DomainName, event.RequestContext.HTTP.Method = r.Host, r.Method
			for name := range r.Header {
				event.Headers[name] = r.Header.Get(name)
			}
			if r.Body != nil {
				body, _ := io.ReadAll(r.Body)
				if event.Body = string(body); r.ContentLength <= 0 {
					event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
				}
			}
			a, err := invoke(t.Context(), event)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{}
			for name, value := range a.Headers {
				header.Set(name, value)
			}
			return &http.Response{StatusCode: a.StatusCode, Header: header, Body: io.NopCloser(a.Body)}
		}
	}},
}

func toServer(t *testing.T, server *httptest.Server) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		at := strings.TrimPrefix(strings.TrimPrefix(server.URL, "http://"), "https://")
		r.URL.Scheme, _, _ = strings.Cut(server.URL, ":")
		r.URL.Host = at // r.Host names the host that the client asks
		a, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

// quiet leaves out the log line of an error, and lets all callers share their keys.
func quiet(o *lambdahttp.Options) {
	single(o)
	o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 500) }
}

// HTTP-21: requests are compared only if the whole body is known.
func TestBodyIsWhole(t *testing.T) {
	t.Parallel()
	const form, part = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	read := func(read func(*http.Request)) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read(r)
				next.ServeHTTP(w, r)
			})
		}
	}
	inflate := func(length func(r *http.Request, n int64)) func(http.Handler) http.Handler {
		return read(func(r *http.Request) {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body, _ := io.ReadAll(z)
			r.Body = io.NopCloser(bytes.NewReader(body))
			length(r, int64(len(body)))
		})
	}
	for _, row := range []struct {
		layer      string
		media      string
		around     func(http.Handler) http.Handler
		first      int // the status of the first request, if the length is known
		undeclared int // and if it is not
	}{
		{"none", form, read(func(*http.Request) {}), 200, 200},
		{"a limit", form, func(next http.Handler) http.Handler { return http.MaxBytesHandler(next, 1<<20) }, 200, 200},
		{"FormValue", form, read(func(r *http.Request) { _ = r.FormValue("amount") }), 500, 411},
		{"ParseMultipartForm", part, read(func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }), 500, 411},
		{"it reads a byte", form, read(func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }), 500, 0}, // 0: that cannot be seen
		{"it adds a byte", form, read(func(r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader("x")))
		}), 500, 200},
		{"it inflates and sets the length", "gzip", inflate(func(r *http.Request, n int64) { r.ContentLength = n }), 200, 200},
		{"it inflates and declares no length", "gzip", inflate(func(r *http.Request, _ int64) { r.ContentLength = -1 }), 200, 200},
		{"it inflates and leaves the length", "gzip", inflate(func(*http.Request, int64) {}), 500, 200},
	} {
		for _, front := range fronts {
			for _, declared := range []bool{true, false} {
				want := row.first
				if !declared && !front.lengths {
					want = row.undeclared
				}
				if want == 0 {
					continue
				}
				w := newFixture(t, wires[0])
				h := lambdahttp.Middleware(w.guard, quiet)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ }))
				send := front.serve(t, row.around(h))
				got := [3]int{}
				for i, amount := range []string{"1250", "1250", "9999"} {
					body := "amount=" + amount
					switch row.media {
					case part:
						body = "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n" + amount + "\r\n--b--\r\n"
					case "gzip":
						body = gzipped(gzip.BestSpeed, body)
					}
					var reader io.Reader = strings.NewReader(body)
					if !declared {
						reader = io.MultiReader(reader)
					}
					a := send(keyedPost(t, "http://api.example/charges", row.media, reader))
					got[i] = a.StatusCode
					if says, _ := io.ReadAll(a.Body); a.StatusCode == 500 && !strings.Contains(string(says), "let it set ContentLength") {
						t.Errorf("%s, layer %s: the error is %s", front.name, row.layer, says)
					}
				}
				wanted, runs := [3]int{want, want, 422}, 1
				if want != 200 {
					wanted[2], runs = want, 0
				}
				if got != wanted || w.runs != runs {
					t.Errorf("%s, declared %t, layer %s: got %v after %d runs, want %v after %d", front.name, declared, row.layer, got, w.runs, wanted, runs)
				}
			}
		}
	}
}

// keyedPost returns a client's request with keyA.
func keyedPost(t *testing.T, url, media string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Idempotency-Key", `"`+keyA+`"`)
	return r
}

// An empty body is compared if its length is known to be zero.
func TestEmptyBody(t *testing.T) {
	t.Parallel()
	for _, front := range fronts {
		for name, body := range map[string]io.Reader{"none": nil, "declared": http.NoBody, "undeclared": io.MultiReader()} {
			want := 200
			if name == "undeclared" && !front.lengths {
				want = 411
			}
			guarded := lambdahttp.Middleware(newGuard(t), quiet)
			h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			a := front.serve(t, guarded(h))(keyedPost(t, "http://api.example/charges", "text/plain", body))
			if problem, _ := io.ReadAll(a.Body); a.StatusCode != want || want == 411 && !strings.Contains(string(problem), `"code":"length-required"`) {
				t.Errorf("%s, body %s: got %d %s, want %d", front.name, name, a.StatusCode, problem, want)
			}
			if name != "none" {
				continue
			}
			a = front.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader("x"))
				guarded(h).ServeHTTP(w, r)
			}))(keyedPost(t, "http://api.example/charges", "text/plain", nil))
			if a.StatusCode != 500 {
				t.Errorf("%s, a layer adds a body: got %d, want 500", front.name, a.StatusCode)
			}
		}
	}
	// A request that no server has made has no declared length, unless its reader has one.
	// The key can be in its body.
	for body, want := range map[string]int{`{"key":"` + keyA + `"}`: 200, "": 411} {
		out := httptest.NewRecorder()
		h := lambdahttp.Middleware(newGuard(t), quiet, func(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("key") })
		h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(out, keyedPost(t, "http://api.example/charges", "application/json", io.MultiReader(strings.NewReader(body))))
		if out.Code != want {
			t.Errorf("made by a client, %q: got %d %s, want %d", body, out.Code, out.Body, want)
		}
	}
}

// HTTP-09: the path of a request is the one that its client sent, and the host is that
// of the pattern, so that an endpoint never gets the answer of another one.
func TestEndpointIsWhatTheClientNamed(t *testing.T) {
	t.Parallel()
	mount := func(mux *http.ServeMux, prefix string, h http.Handler) {
		mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	}
	for _, row := range []struct {
		name  string
		mux   func(mux *http.ServeMux, guarded http.Handler)
		other string // an endpoint that is not http://test.example/test/charges/7
		want  int    // its status: 422, or 200 if the path belongs to the key
	}{
		{"the same", func(mux *http.ServeMux, h http.Handler) { mux.Handle("POST /test/charges/{id}", h) }, "http://live.example:81/test/charges/%37?", 200},
		{"prefixes", func(mux *http.ServeMux, h http.Handler) { mount(mux, "/test", h); mount(mux, "/live", h) }, "http://test.example/live/charges/7", 200},
		{"prefixes around a route", func(mux *http.ServeMux, h http.Handler) {
			inner := http.NewServeMux()
			inner.Handle("POST /charges/{id}", h)
			mount(mux, "/test", inner)
			mount(mux, "/live", inner)
		}, "http://test.example/live/charges/7", 422},
		{"hosts", func(mux *http.ServeMux, h http.Handler) {
			mux.Handle("POST test.example/test/charges/{id}", h)
			mux.Handle("POST live.example/test/charges/{id}", h)
		}, "http://live.example/test/charges/7", 422},
		{"hosts of prefixes", func(mux *http.ServeMux, h http.Handler) {
			mux.Handle("test.example/test/", h)
			mux.Handle("live.example/test/", h)
		}, "http://live.example/test/charges/7", 200},
	} {
		for _, front := range fronts {
			w := newFixture(t, wires[0])
			mux := http.NewServeMux()
			row.mux(mux, lambdahttp.Middleware(w.guard, quiet)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ })))
			send := front.serve(t, mux)
			const first = "http://test.example/test/charges/7"
			for i, c := range []struct {
				url      string
				status   int
				replayed bool
			}{{first, 200, false}, {first, 200, true}, {row.other, row.want, row.name == "the same"}} {
				a := send(keyedPost(t, c.url, "text/plain", strings.NewReader("x")))
				if _ = a.Body.Close(); a.StatusCode != c.status || (a.Header.Get("Idempotent-Replayed") != "") != c.replayed {
					t.Errorf("%s, %s: request %d got %d %v, want %d, replayed %t", front.name, row.name, i, a.StatusCode, a.Header, c.status, c.replayed)
				}
			}
		}
	}
}

// A proxy sends the whole URL. It is the same path.
func TestAbsoluteForm(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0])
	mux := http.NewServeMux()
	mux.Handle("/test/", http.StripPrefix("/test", lambdahttp.Middleware(w.guard, quiet)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ }))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for i, target := range []string{"/test/charges", "http://api.example/test/charges", "/test/charges?", "http://api.example/test/refunds"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: api.example\r\nIdempotency-Key: \"%s\"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", target, keyA)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if replayed := a.Header.Get("Idempotent-Replayed") != ""; a.StatusCode != 200 || replayed != (i == 1 || i == 2) {
			t.Errorf("%s: got %d, replayed %t", target, a.StatusCode, replayed)
		}
		_ = c.Close()
	}
}
