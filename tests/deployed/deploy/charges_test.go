// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit"
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
