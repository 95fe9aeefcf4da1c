// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Provider is a payment provider that counts its charges, by key. A POST makes one and
// is answered with 201, or finds the one that its Idempotency-Key has made. Without that
// header it makes one each time, under the header Reference. A GET finds the charge of
// the parameter idempotency_key, or answers 404. The zero value is ready. It is safe for
// concurrent use.
type Provider struct {
	// Before, if set, is called for each POST. Its answer, if not zero, is the status, and
	// there is no charge.
	Before func(*http.Request) (status int)
	// After, if set, is called after each POST has its charge, before the answer. To lose
	// the answer, it panics with [http.ErrAbortHandler].
	After func()
	// Known is how long a key is known, by the clock Now. Zero: always.
	Known time.Duration
	Now   func() time.Time

	mu      sync.Mutex
	asked   int
	charges []made
}

type made struct {
	key, id string
	at      time.Time
}

// ServeHTTP serves one request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, id := p.serve(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"id":%q,"status":"succeeded"}`, id)
}

func (p *Provider) serve(r *http.Request) (status int, id string) {
	if r.Method == http.MethodGet {
		p.mu.Lock()
		defer p.mu.Unlock()
		if id = p.find(r.FormValue("idempotency_key")); id == "" {
			return http.StatusNotFound, ""
		}
		return http.StatusOK, id
	}
	if p.Before != nil {
		if status := p.Before(r); status != 0 {
			return status, ""
		}
	}
	key := r.Header.Get("Idempotency-Key")
	id = p.charge(cmp.Or(key, r.Header.Get("Reference")), key != "")
	if p.After != nil {
		p.After()
	}
	return http.StatusCreated, id
}

// Charge makes the charge of a key, or finds it, without a request. It returns its id.
func (p *Provider) Charge(key string) (id string) { return p.charge(key, true) }

func (p *Provider) charge(key string, find bool) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if id := p.find(key); find && id != "" {
		return id
	}
	p.charges = append(p.charges, made{key, fmt.Sprintf("ch_%d", len(p.charges)+1), p.now()})
	return p.charges[len(p.charges)-1].id
}

// find returns the id of the charge of a key, or "".
func (p *Provider) find(key string) (id string) {
	for _, c := range p.charges {
		if c.key == key && (p.Known == 0 || p.now().Sub(c.at) <= p.Known) {
			id = c.id
		}
	}
	return id
}

func (p *Provider) now() (t time.Time) {
	if p.Now != nil {
		t = p.Now()
	}
	return t
}

// Charges returns how many charges were made.
func (p *Provider) Charges() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges)
}

// Asked returns how many charges were requested, those that were known included.
func (p *Provider) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// Once fails t unless so many keys have one charge each, and no key has more.
func (p *Provider) Once(t testing.TB, keys int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	different := map[string]bool{}
	for _, c := range p.charges {
		different[c.key] = true
	}
	if len(different) != keys || len(p.charges) != keys {
		t.Errorf("the charges are %v, want one for each of %d keys", p.charges, keys)
	}
}
