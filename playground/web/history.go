// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent/driver"
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

// maxText limits each text of an exchange, and the names and values of its headers
// together, in bytes. maxKey limits a key: the API accepts no longer one.
const (
	maxText = 2 << 10
	maxKey  = 255
)

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
		e := &exchange{exchangeView: exchangeView{At: time.Now().UTC(), Method: cut(r.Method), Path: cut(r.URL.Path), Request: text(begin)}}
		x.log.add(key, e)
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.Status, e.Millis, e.Response = answer.status, time.Since(e.At).Milliseconds(), text(answer.body.Bytes())
		e.Lost = r.Context().Err() != nil
		e.Header = map[string]string{}
		room := maxText
		for _, name := range slices.Sorted(maps.Keys(w.Header())) {
			value := cut(w.Header().Get(name))
			if room -= len(name) + len(value); room < 0 {
				break
			}
			e.Header[strings.Clone(name)] = value
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

// keyOf returns the idempotency key of a request, or an empty text.
func keyOf(r *http.Request, begin []byte) string {
	var body struct {
		Key string `json:"idempotency_key"`
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" && json.Unmarshal(begin, &body) == nil {
		key = body.Key
	}
	if key = unquote(key); len(key) > maxKey {
		return ""
	}
	return cut(key)
}

// KeyOf returns the idempotency key in the header of an event.
func KeyOf(ev *events.APIGatewayV2HTTPRequest) string {
	return unquote(ev.Headers["idempotency-key"])
}

// unquote returns a key without the quotes that it has as a structured field.
func unquote(key string) string { return strings.Trim(key, `"`) }

// cut returns the begin of s as a copy: a part of s would keep all of it, and the
// whole head of its request, in memory.
func cut(s string) string { return strings.Clone(s[:min(len(s), maxText)]) }

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

// The newest so many keys are remembered, and so many entries of each. With the limits
// of an exchange, that is 20 MB at most.
const (
	maxKeys    = 50
	maxEntries = 30
)

// History remembers the writes that reach a store, and the workers that were killed.
// It is safe for concurrent use.
type History struct {
	store driver.Store
	log   journal[driver.RecordID, entry]
}

// entry is a change of a record, or the death of its worker.
type entry struct {
	At      time.Time     `json:"at"`
	State   string        `json:"state"`
	Attempt int           `json:"attempt,omitempty"`
	Reason  driver.Reason `json:"reason"` // or a sentence
	By      string        `json:"by,omitempty"`
}

// NewHistory returns an empty history of a store.
func NewHistory(store driver.Store) *History { return &History{store: store} }

// By returns the store for one writer. The page shows the sentence by with its
// writes.
func (h *History) By(by string) driver.Store { return &writer{h, by} }

func (h *History) killed(id driver.RecordID, pid int) {
	h.log.add(id, entry{At: time.Now().UTC(), State: "worker killed", Reason: driver.Reason(fmt.Sprintf("Process %d got SIGKILL while the provider worked.", pid))})
}

// writer is the store as one of its writers has it.
type writer struct {
	*History
	by string
}

// Get reads a record.
func (w *writer) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	return w.store.Get(ctx, id)
}

// Insert remembers a record that was written.
func (w *writer) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	existing, err := w.store.Insert(ctx, r, now)
	w.note(r, existing, err)
	return existing, err
}

// Replace remembers a record that was written.
func (w *writer) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	current, err := w.store.Replace(ctx, r, was)
	w.note(r, current, err)
	return current, err
}

func (w *writer) note(r driver.Record, other *driver.Record, err error) {
	if err == nil && other == nil {
		w.log.add(r.ID, entry{time.Now().UTC(), r.State.String(), r.Attempt, r.Reason, w.by})
	}
}

// journal has the newest entries of the newest keys.
type journal[K comparable, E any] struct {
	mu      sync.Mutex
	keys    []K // the oldest first
	entries map[K][]E
}

func (j *journal[K, E]) add(key K, e E) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries == nil {
		j.entries = map[K][]E{}
	}
	if _, known := j.entries[key]; !known {
		if len(j.keys) == maxKeys {
			delete(j.entries, j.keys[0])
			j.keys = j.keys[1:]
		}
		j.keys = append(j.keys, key)
	}
	list := append(j.entries[key], e)
	j.entries[key] = list[max(0, len(list)-maxEntries):]
}

func (j *journal[K, E]) of(key K) []E {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries[key])
}
