package lambdahttp_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func TestMiddlewareGivesTheBodyBack(t *testing.T) {
	t.Parallel()
	const long = 100_000
	for name, body := range map[string]io.Reader{
		"with a length": strings.NewReader(strings.Repeat("x", long)),
		"chunked":       io.MultiReader(strings.NewReader(strings.Repeat("x", long))),
		"empty":         http.NoBody,
	} {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || r.Body.Close() != nil {
				t.Error(err)
			}
			if e, ok := idempotent.FromContext(r.Context()); !ok || e.RecordID().Operation() != "POST /charges" {
				t.Error("the handler has no execution of its operation")
			}
			fmt.Fprint(w, len(got), strings.Count(string(got), "x"))
		}, nil)
		a, got := s.send(s.request(t.Context(), body))
		want := fmt.Sprint(long, long)
		if name == "empty" {
			want = "0 0"
		}
		if a.StatusCode != 200 || got != want {
			t.Errorf("%s: got %d %s, want %s", name, a.StatusCode, got, want)
		}
	}
}

// A body that is too long is refused before any call of the store or the
// handler.
func TestHTTP21BodyTooLarge(t *testing.T) {
	t.Parallel()
	limit := func(o *lambdahttp.Options) { o.MaxRequestBody = 10 }
	for name, body := range map[string]io.Reader{
		"announced": strings.NewReader("01234567890"),
		"chunked":   io.MultiReader(strings.NewReader("01234567890")),
	} {
		s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil, limit)
		a, problem := s.send(s.request(t.Context(), body))
		if a.StatusCode != 413 || a.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(problem, "#body-too-large") || s.runs != 0 || s.store.calls != 0 {
			t.Errorf("%s: got %d %s after %d runs and %d calls of the store, want 413", name, a.StatusCode, problem, s.runs, s.store.calls)
		}
	}
	// A body is not read if its Content-Length is too large.
	r := keyed(t.Context())
	unread := strings.NewReader("01234567890")
	r.Body, r.ContentLength = io.NopCloser(unread), 11
	lambdahttp.Middleware(newGuard(t), single, limit)(http.NotFoundHandler()).ServeHTTP(&plainWriter{header: http.Header{}}, r)
	if unread.Len() != 11 {
		t.Errorf("%d bytes were read, want 0", 11-unread.Len())
	}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, nil, limit)
	if a, got := s.do("0123456789"); a.StatusCode != 200 || got != "0123456789" {
		t.Errorf("ten bytes: got %d %s", a.StatusCode, got)
	}
	// Without a key the body is not read, so it has no limit.
	r = s.request(t.Context(), strings.NewReader("01234567890"))
	r.Header.Del("Idempotency-Key")
	if a, got := s.send(r); a.StatusCode != 200 || got != "01234567890" {
		t.Errorf("without a key: got %d %s", a.StatusCode, got)
	}
}

// A scope may read a body that is too long and ignore the error; the
// fingerprint then refuses it. Without a key, the handler gets the whole body.
func TestBodyThatAScopeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, nil, func(o *lambdahttp.Options) {
		o.MaxRequestBody = 4
		o.Operation = func(r *lambdahttp.Request) string {
			_, first := r.Body()
			_, second := r.Body()
			if (first == nil) != (second == nil) {
				t.Error("the second read differs from the first")
			}
			return "charge"
		}
	})
	r := s.request(t.Context(), io.MultiReader(strings.NewReader("0123456789")))
	r.Header.Del("Idempotency-Key")
	if a, got := s.send(r); a.StatusCode != 200 || got != "0123456789" {
		t.Errorf("without a key: got %d %q", a.StatusCode, got)
	}
	if a, _ := s.send(s.request(t.Context(), io.MultiReader(strings.NewReader("0123456789")))); a.StatusCode != 413 {
		t.Errorf("with a key: got %d, want 413", a.StatusCode)
	}
}

// A body that ends early is refused, because its rest is unknown.
func TestHTTP21BodyEndsEarly(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"%s\"\r\nContent-Length: 10\r\n\r\n01234", keyA)
	_ = c.(*net.TCPConn).CloseWrite()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	problem, _ := io.ReadAll(a.Body)
	if a.StatusCode != 400 || !strings.Contains(string(problem), "#invalid-body") || s.runs != 0 || s.store.calls != 0 {
		t.Errorf("got %d %s after %d runs", a.StatusCode, problem, s.runs)
	}
}

// If a layer outside the middleware reads the body, all fingerprints would be
// equal, so the request is refused.
func TestBodyReadOutside(t *testing.T) {
	t.Parallel()
	var told error
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			next.ServeHTTP(w, r)
		})
	}, func(o *lambdahttp.Options) {
		o.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { told = err; w.WriteHeader(500) }
	})
	r := s.request(t.Context(), strings.NewReader("amount=1250"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if a, _ := s.send(r); a.StatusCode != 500 || s.runs != 0 || s.store.calls != 0 || told == nil || !strings.Contains(told.Error(), "put Middleware around it") {
		t.Errorf("got %d after %d runs, ErrorHandler got %v", a.StatusCode, s.runs, told)
	}
}

// The server removes the files of a form, although it has only its own request.
func TestFormFilesAreRemoved(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, _ := m.CreateFormFile("receipt", "receipt.txt")
	_, _ = part.Write(bytes.Repeat([]byte("x"), 1<<20))
	_ = m.Close()
	file := ""
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["receipt"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		file = f.(*os.File).Name()
	}, nil)
	r := s.request(t.Context(), &form)
	r.Header.Set("Content-Type", m.FormDataContentType())
	a, _ := s.send(r)
	s.close()
	if a.StatusCode != 200 || file == "" {
		t.Fatalf("status %d, file %q", a.StatusCode, file)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the form is still there: %v", err)
	}
}

// A key in the body is read after the same checks of the body.
func TestKeyInALongBody(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, nil, func(o *lambdahttp.Options) {
		o.KeyFrom, o.MaxRequestBody = lambdahttp.BodyField("key"), 60
	})
	for body, status := range map[string]int{
		`{"key":"` + keyA + `"}`:                      200,
		`{"key":"` + keyA + `","more":"01234567890"}`: 413,
	} {
		if a, got := s.do(body); a.StatusCode != status {
			t.Errorf("%s: got %d %s, want %d", body, a.StatusCode, got, status)
		}
	}
	if s.runs != 1 {
		t.Errorf("the handler ran %d times", s.runs)
	}
}
