// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Exchanges remembers requests and their answers, by the idempotency key in the
// header or in the body. It is safe for concurrent use.
type Exchanges struct {
	log journal[string, *exchange]
}

// exchange is a request and its answer.
type exchange struct {
	mu sync.Mutex
	exchangeView
}

// exchangeView is an exchange as the page shows it.
type exchangeView struct {
	At       time.Time         `json:"at"`
	Method   string            `json:"method"`
	Path     string            `json:"path"`
	Request  string            `json:"request"`
	Status   int               `json:"status,omitempty"` // missing: not answered yet
	Millis   int64             `json:"ms"`
	Header   map[string]string `json:"header,omitempty"`
	Response string            `json:"response,omitempty"`
	Lost     bool              `json:"lost,omitempty"` // the client had gone before the answer
}

// maxText limits what is remembered of a body, in bytes.
const maxText = 4 << 10

// Middleware remembers the requests that have a key, and passes all on.
func (x *Exchanges) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, err := io.ReadAll(io.LimitReader(r.Body, maxText))
		rest := io.Reader(r.Body)
		if err != nil {
			rest = failing{err}
		}
		r.Body = body{io.MultiReader(bytes.NewReader(begin), rest), r.Body}
		key := keyOf(r, begin)
		if key == "" {
			next.ServeHTTP(w, r)
			return
		}
		e := &exchange{exchangeView: exchangeView{At: time.Now().UTC(), Method: r.Method, Path: r.URL.Path, Request: text(begin)}}
		x.log.add(key, e)
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.Status, e.Millis, e.Response = answer.status, time.Since(e.At).Milliseconds(), text(answer.body.Bytes())
		e.Lost = r.Context().Err() != nil
		e.Header = map[string]string{}
		for name := range w.Header() {
			e.Header[name] = w.Header().Get(name)
		}
	})
}

// of returns the exchanges of a key, the oldest first.
func (x *Exchanges) of(key string) (list []exchangeView) {
	for _, e := range x.log.of(key) {
		e.mu.Lock()
		v := e.exchangeView
		e.mu.Unlock()
		if v.Status == 0 {
			v.Millis = time.Since(v.At).Milliseconds() / 100 * 100 // so that the page changes ten times a second
		}
		list = append(list, v)
	}
	return list
}

// keyOf returns the idempotency key of a request, without the quotes that it has as
// a structured field.
func keyOf(r *http.Request, begin []byte) string {
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		return strings.Trim(key, `"`)
	}
	var body struct {
		Key string `json:"idempotency_key"`
	}
	if json.Unmarshal(begin, &body) != nil {
		return ""
	}
	return body.Key
}

func text(b []byte) string {
	if !utf8.Valid(b) {
		return "(binary)"
	}
	return string(b)
}

// body is the body of a request whose begin was read.
type body struct {
	io.Reader
	io.Closer
}

// failing is a reader whose read has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// answer remembers what is written.
type answer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader remembers the status.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Write remembers the begin of the body.
func (a *answer) Write(p []byte) (int, error) {
	a.body.Write(p[:min(len(p), maxText-a.body.Len())])
	return a.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
