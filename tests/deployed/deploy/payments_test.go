// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/playground/provider"
)

// payments is the payment provider. It books as the example's does, and lets a test
// act between the booking and the answer.
type payments struct {
	provider *provider.Provider
	server   *httptest.Server

	mu     sync.Mutex
	asked  map[string]int // charges, by version of the address
	booked map[string]afterwards
	silent map[string]bool // keys without an answer
}

// afterwards is called when a charge has been booked or found, with the number of
// times that it was requested. It returns whether the caller gets an answer.
type afterwards func(times int) (answer bool)

// versions are addresses that lead to the same ledger.
var versions = []string{"v1", "v2"}

func newPayments(dir string) (*payments, error) {
	p, err := provider.New(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		return nil, err
	}
	b := &payments{provider: p, asked: map[string]int{}, booked: map[string]afterwards{}, silent: map[string]bool{}}
	mux := http.NewServeMux()
	for _, v := range versions {
		mux.Handle("/"+v+"/", http.StripPrefix("/"+v, b.handler(v)))
	}
	b.server = httptest.NewServer(mux)
	return b, nil
}

func (b *payments) close() {
	b.server.CloseClientConnections()
	b.server.Close()
	b.provider.Close()
}

func (b *payments) address(version string) string { return b.server.URL + "/" + version }

func (b *payments) handler(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			b.mu.Lock()
			silent := b.silent[r.URL.Query().Get("idempotency_key")]
			b.mu.Unlock()
			if silent {
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			b.provider.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		var charge provider.Charge
		if err != nil || json.Unmarshal(body, &charge) != nil {
			http.Error(w, "no charge", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		b.provider.ServeHTTP(answer, r)
		b.mu.Lock()
		b.asked[version]++
		b.asked[charge.Customer]++
		then, times := b.booked[charge.Customer], b.asked[charge.Customer]
		b.mu.Unlock()
		if then != nil && !then(times) {
			http.Error(w, "the answer was lost", http.StatusBadGateway)
			return
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()) // an error means that the caller has disconnected
	}
}

// after sets what happens after a charge of the customer was booked.
func (b *payments) after(customer string, then afterwards) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.booked[customer] = then
}

// hold delays the answers for a customer until it is released.
func (b *payments) hold(t *testing.T, customer string) (release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	b.after(customer, func(int) bool { <-gate; return true })
	return release
}

// hush makes the provider refuse requests about a key.
func (b *payments) hush(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent[key] = true
}

// times returns how often a customer's charges, or those of a version of the
// address, were requested.
func (b *payments) times(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[what]
}

// charges returns a customer's charges in the ledger.
func (b *payments) charges(t *testing.T, customer string) (list []provider.Charge) {
	t.Helper()
	for _, c := range b.ledger(t) {
		if c.Customer == customer {
			list = append(list, c)
		}
	}
	return list
}

func (b *payments) ledger(t *testing.T) (list []provider.Charge) {
	t.Helper()
	answer := httptest.NewRecorder()
	b.provider.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/charges", strings.NewReader("")))
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// wantCharges checks how often a customer was charged.
func wantCharges(t *testing.T, customer string, want int) {
	t.Helper()
	if got := len(pay.charges(t, customer)); got != want {
		t.Errorf("%s was charged %d times, want %d", customer, got, want)
	}
}
