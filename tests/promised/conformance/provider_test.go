// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/kit/exchange"
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

// build builds the playground, which runs the charge example, once, and returns the path of the program.
var build = sync.OnceValues(func() (string, error) {
	program := filepath.Join(scratch, "playground")
	return program, engine.Build(program, "./playground")
})

func (f failure) Error() string { return f.text }

// process is the charge example as a separate process, with the tests' provider.
type process struct {
	program     string
	dir         string
	env         []string
	providerURL string
	api         api

	running *engine.Process
}

// startProcess starts the example with a profile, on a free port.
func startProcess(t *testing.T, p *exchange.Profile, providerURL string, env ...string) (*process, error) {
	program, err := build()
	if err != nil {
		return nil, err
	}
	x := &process{program: program, dir: t.TempDir(), env: append(env, "PORT=0", "PROFILE="+p.Name), providerURL: providerURL}
	t.Cleanup(x.kill)
	return x, x.start()
}

func (x *process) start() (err error) {
	cmd := exec.Command(x.program)
	cmd.Env = append(os.Environ(), append(x.env, "DATA="+x.dir, "PROVIDER_URL="+x.providerURL)...)
	engine.EndWithParent(cmd)
	x.running, x.api.url, err = engine.StartUntil(cmd, "listening on ")
	return err
}

// kill ends the process with SIGKILL, and waits until it has ended.
func (x *process) kill() {
	if x.running != nil {
		_ = x.running.End(syscall.SIGKILL) // reports the signal
	}
}

// openProcess gives the check a running example: the one that all checks of the
// profile share, or its own.
func openProcess(c *check, shared *process, r *requirement) *api {
	x := shared
	if r.alone {
		providerURL := c.provider.URL
		if r.unreachable {
			providerURL = nowhere
		}
		var err error
		x, err = startProcess(c.t, c.profile, providerURL, r.env...)
		c.must(err)
	}
	return x.open(c)
}

func (x *process) open(c *check) *api {
	a := &api{url: x.api.url}
	a.document = func() []byte {
		cmd := exec.Command(x.program, "policy", "openapi")
		cmd.Env = append(os.Environ(), x.env...)
		out, err := cmd.Output()
		c.must(err)
		return out
	}
	a.settle = func(key string) {
		body, err := json.Marshal(map[string]string{"idempotency_key": key})
		c.must(err)
		c.want(c.charge("", at("POST", "/admin/resolve"), withBody(string(body))), http.StatusOK)
	}
	a.crash = func(...func(*life)) {
		x.kill()
		x.providerURL = c.provider.URL
		c.must(x.start())
		a.url = x.api.url
	}
	a.stored = func() string {
		data, err := os.ReadFile(filepath.Join(x.dir, "once.db"))
		c.must(err)
		dump := string(data)
		for _, r := range x.records(c) { // the file has bytes in base64
			dump += fmt.Sprintf("%+v %s\n", r, r.Result)
		}
		return dump
	}
	a.fingerprints = func() (all []string) {
		for _, r := range x.records(c) {
			all = append(all, string(r.Fingerprint[:]))
		}
		return all
	}
	return a
}

// records ends the process and returns what is in its file.
func (x *process) records(c *check) (all []driver.Record) {
	x.kill()
	store, err := boltstore.Open(filepath.Join(x.dir, "once.db"))
	c.must(err)
	defer store.Close()
	for r, err := range store.All(c.t.Context()) {
		c.must(err)
		all = append(all, r)
	}
	return all
}
