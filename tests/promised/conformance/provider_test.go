// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// provider is the payment provider of all services. It books every charge that it is
// asked for, even under a key that it knows, so that work that runs twice has two
// effects. Tests and services reach it over HTTP.
type provider struct {
	*httptest.Server

	mu       sync.Mutex
	entries  []entry
	conducts map[string]conduct // by customer
}

// entry is one request to the provider. It is an effect if its Status is "succeeded".
type entry struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
	Customer string            `json:"customer"`
	Status   string            `json:"status"`
	Key      string            `json:"idempotency_key"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// conduct is how the provider treats a customer. The zero value books and answers.
type conduct struct {
	status string // of the entry, if not "succeeded": then nothing is booked
	early  bool   // hold the request before it is booked, not after
	hold   *hold
	cut    bool // end the connection instead of answering
}

// hold stops the first request at the provider until it is released. Another request
// that should not have been executed is not held, so its client gets an answer.
type hold struct {
	taken    atomic.Bool
	entered  chan struct{} // gets a value for the request
	released chan struct{}
	once     sync.Once
}

func (h *hold) release() { h.once.Do(func() { close(h.released) }) }

const (
	booked   = "succeeded"
	declined = "declined"
	lost     = "lost"
	deleted  = "deleted"
)

func newProvider() *provider {
	b := &provider{conducts: map[string]conduct{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", b.create)
	mux.HandleFunc("GET /charges", b.list)
	mux.HandleFunc("GET /charges/{id}", func(w http.ResponseWriter, r *http.Request) { b.change(w, r, booked) })
	mux.HandleFunc("DELETE /charges/{id}", func(w http.ResponseWriter, r *http.Request) { b.change(w, r, deleted) })
	b.Server = httptest.NewUnstartedServer(mux)
	// On a connection that was used before, Go's client repeats a request with an
	// Idempotency-Key by itself.
	b.Config.SetKeepAlivesEnabled(false)
	b.Start()
	return b
}

// treat sets the conduct for a customer.
func (b *provider) treat(customer string, c conduct) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conducts[customer] = c
}

func (b *provider) create(w http.ResponseWriter, r *http.Request) {
	var e entry
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	c := b.conducts[e.Customer]
	b.mu.Unlock()
	if c.early && !c.hold.pass(r) {
		return
	}
	e.ID, e.Key, e.Status = "ch_"+rand.Text(), r.Header.Get("Idempotency-Key"), cmp.Or(c.status, booked)
	b.mu.Lock()
	b.entries = append(b.entries, e)
	b.mu.Unlock()
	switch {
	case !c.early && c.hold != nil && !c.hold.pass(r):
	case c.cut:
		panic(http.ErrAbortHandler)
	case e.Status == declined:
		w.WriteHeader(http.StatusPaymentRequired)
	default:
		reply(w, http.StatusCreated, e)
	}
}

// pass returns after the release, or false if the caller disconnects before.
func (h *hold) pass(r *http.Request) bool {
	if h.taken.Swap(true) {
		return true
	}
	h.entered <- struct{}{}
	select {
	case <-h.released:
		return true
	case <-r.Context().Done():
		return false
	}
}

// list answers with the entries of a customer, or the booked one of a key.
func (b *provider) list(w http.ResponseWriter, r *http.Request) {
	customer, key := r.URL.Query().Get("customer"), r.URL.Query().Get("idempotency_key")
	found := []entry{}
	b.mu.Lock()
	for _, e := range b.entries {
		if e.Customer == customer || key != "" && e.Key == key && e.Status == booked {
			found = append(found, e)
		}
	}
	b.mu.Unlock()
	reply(w, http.StatusOK, found)
}

// change gives a booked entry another status and answers with it.
func (b *provider) change(w http.ResponseWriter, r *http.Request, status string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.entries {
		if e := &b.entries[i]; e.ID == r.PathValue("id") && e.Status == booked {
			e.Status = status
			reply(w, http.StatusOK, e)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error: the caller has disconnected
}
