// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"net/http"
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
