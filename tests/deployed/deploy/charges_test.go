// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/playground/provider"
)

// newCustomer returns a customer that no other test uses.
func newCustomer() string { return "cus_" + strings.ToLower(rand.Text()) }

// FM05: while the first request runs, the same request gets a conflict, and another
// request gets the answer that its key is used.
func TestRequestsAtTheSameTime(t *testing.T) {
	t.Parallel()
	d := byREST(0)
	customer, key := newCustomer(), rand.Text()
	release := pay.hold(t, customer)
	running := make(chan reply, 1)
	go func() { running <- d.post(t, key, aCharge(customer)) }()
	kit.Eventually(t, "the charge is booked", func() bool { return pay.times(customer) == 1 })
	again := d.post(t, key, aCharge(customer))
	wantProblem(t, again, http.StatusConflict, "in-progress")
	if s, err := strconv.Atoi(again.header.Get("Retry-After")); err != nil || s < 1 {
		t.Errorf("409 with Retry-After %q", again.header.Get("Retry-After"))
	}
	wantProblem(t, d.post(t, key, strings.Replace(aCharge(customer), "4200", "9000", 1)), http.StatusUnprocessableEntity, "key-reused")
	release()
	first := <-running
	if first.status != http.StatusCreated {
		t.Fatalf("got %v, want a charge", first)
	}
	wantReplay(t, d.post(t, key, aCharge(customer)), first)
	wantCharges(t, customer, 1)
	if asked := pay.times(customer); asked != 1 {
		t.Errorf("the provider got %d requests, want one", asked)
	}
}

// INV-7: two tenants with the same key and the same request: two charges, and each gets
// its own. A request without an API key gets no charge.
func TestTenantsApart(t *testing.T) {
	t.Parallel()
	customer, key := newCustomer(), rand.Text()
	first := map[int]reply{}
	for tenant := range stack.tenants {
		r := byREST(tenant).post(t, key, aCharge(customer))
		if r.status != http.StatusCreated || r.replayed() {
			t.Fatalf("tenant %d got %v, want a charge", tenant, r)
		}
		first[tenant] = r
	}
	if first[0].body == first[1].body {
		t.Errorf("both tenants got %v", first[0])
	}
	for tenant := range stack.tenants {
		wantReplay(t, byREST(tenant).post(t, key, aCharge(customer)), first[tenant])
	}
	// One tenant's request under the key does not affect the other tenant.
	other := byREST(1)
	wantProblem(t, other.post(t, key, strings.Replace(aCharge(customer), "4200", "9000", 1)), http.StatusUnprocessableEntity, "key-reused")
	wantCharges(t, customer, 2)

	for _, apiKey := range []string{"", "not-a-key-of-anybody"} {
		stranger := door{url: byREST(0).url, apiKey: apiKey}
		if r := stranger.post(t, key, aCharge(customer)); r.status != http.StatusForbidden || strings.Contains(r.body, "ch_") {
			t.Errorf("got %v with API key %q, want 403", r, apiKey)
		}
	}
	wantCharges(t, customer, 2)
}

// reply is the reply to a client. Without a status, there was no reply.
type reply struct {
	status int
	header http.Header
	body   string
}

// door is one way to reach the charges function.
type door struct {
	name   string
	url    string
	apiKey string
}

func byFunctionURL() door {
	return door{name: "function URL", url: stack.functionURL.JoinPath("charges").String()}
}

func byREST(tenant int) door {
	id, _, _ := strings.Cut(stack.rest.Host, ".")
	u := url.URL{Scheme: "http", Host: id + ".execute-api.localhost", Path: "/prod/charges"}
	return door{name: fmt.Sprintf("REST API, tenant %c", 'A'+tenant), url: u.String(), apiKey: stack.tenants[tenant]}
}

// client reaches every host at LocalStack's address, which distinguishes them
// by their names.
var client = &http.Client{
	Timeout: kit.Patience,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			u, err := url.Parse(stack.cdk.endpoint)
			if err != nil {
				return nil, err
			}
			var d net.Dialer
			return d.DialContext(ctx, network, u.Host)
		},
	},
}

// post requests a charge.
func (d door) post(t *testing.T, key, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", strconv.Quote(key))
	}
	if d.apiKey != "" {
		req.Header.Set("x-api-key", d.apiKey)
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{body: err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{body: err.Error()}
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

func aCharge(customer string) string {
	return fmt.Sprintf(`{"amount":4200,"currency":"usd","customer":%q}`, customer)
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// is reports whether the reply is a problem of a kind.
func (r reply) is(status int, kind string) bool {
	var problem struct{ Code string }
	return r.status == status && json.Unmarshal([]byte(r.body), &problem) == nil && problem.Code == kind
}

func (r reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

func wantProblem(t *testing.T, r reply, status int, kind string) {
	t.Helper()
	if !r.is(status, kind) {
		t.Errorf("got %v, want %d %s", r, status, kind)
	}
}

// wantReplay checks that r is the stored first.
func wantReplay(t *testing.T, r, first reply) {
	t.Helper()
	if r.status != first.status || r.body != first.body || !r.replayed() {
		t.Errorf("got %v, want the replay of %v", r, first)
	}
}

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
