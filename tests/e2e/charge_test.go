package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	aCharge   = `{"amount":4200,"currency":"usd","customer":"cus_1"}`
	another   = `{"amount":9000,"currency":"usd","customer":"cus_1"}`
	slow      = `{"amount":4200,"currency":"usd","customer":"cus_slow"}`
	otherSlow = `{"amount":9000,"currency":"usd","customer":"cus_slow"}`
	declined  = `{"amount":4200,"currency":"usd","customer":"cus_declined"}`
	key       = "order-2026-000001"
)

// F90: the same request twice is one charge, and another one under its key is
// refused.
func TestCharge(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	first := p.post(key, aCharge)
	p.want(first, http.StatusCreated)
	location := first.header.Get("Location")
	if !strings.HasPrefix(location, "/charges/ch_") || !strings.Contains(first.body, `"id":"`+strings.TrimPrefix(location, "/charges/")+`"`) {
		t.Fatalf("got Location %q and body %s", location, first.body)
	}
	p.wantSame(p.post(key, aCharge), first)
	// Another spelling of the same request.
	p.wantSame(p.post(key, ` { "customer":"cus_1", "currency":"usd", "amount":4.2e3 } `), first)
	p.wantProblem(p.post(key, another), http.StatusUnprocessableEntity, "key-reused")
	p.wantCharges(1)
	p.want(p.send("GET", location, "", ""), http.StatusOK)
	p.want(p.send("GET", "/charges/ch_none", "", ""), http.StatusNotFound)

	second := p.post("order-2026-000002", aCharge)
	p.want(second, http.StatusCreated)
	if second.body == first.body {
		t.Fatal("another key got the first one's charge")
	}
	p.wantCharges(2)
}

func TestDeclineIsStored(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	first := p.post(key, declined)
	p.want(first, http.StatusPaymentRequired)
	p.wantSame(p.post(key, declined), first)
	p = p.restart()
	p.wantSame(p.post(key, declined), first)
	p.wantCharges(0)
}

// Bad input: each gets a clear answer with the correction, and leaves no
// record.
func TestBadInput(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	p.wantProblem(p.post("", aCharge), http.StatusBadRequest, "missing-key")
	p.wantProblem(p.post("short", aCharge), http.StatusBadRequest, "invalid-key")
	for i, row := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"amount":`, http.StatusBadRequest, "JSON"},
		{`{"amount":0,"currency":"usd","customer":"cus_1"}`, http.StatusBadRequest, "amount"},
		{`{"amount":-1,"currency":"usd","customer":"cus_1"}`, http.StatusBadRequest, "amount"},
		{`{"amount":1,"customer":"cus_1"}`, http.StatusBadRequest, "currency"},
		{`{"amount":1,"currency":"usd"}`, http.StatusBadRequest, "customer"},
		{`{"amount":1,"currency":"usd","customer":"` + strings.Repeat("x", 6<<20) + `"}`, http.StatusRequestEntityTooLarge, "6"},
	} {
		r := p.post(fmt.Sprintf("bad-input-key-%04d", i), row.body)
		p.want(r, row.status)
		if !strings.Contains(r.body, row.says) {
			t.Errorf("row %d: the answer does not name %q: %s", i, row.says, r.body)
		}
	}
	p.wantCharges(0)
	// The body that the gateway refused left no record: its key is free.
	p.want(p.post("bad-input-key-0005", aCharge), http.StatusCreated)
}

// F50, F90: 64 concurrent requests with one key: one charge.
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	var created reply
	for range 64 {
		wg.Go(func() {
			r := p.post(key, slow)
			mu.Lock()
			defer mu.Unlock()
			statuses[r.status]++
			switch {
			case r.status == http.StatusConflict:
				if s, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || s < 1 {
					t.Errorf("409 with Retry-After %q", r.header.Get("Retry-After"))
				}
			case r.status == http.StatusCreated && r.header.Get("Idempotent-Replayed") == "":
				created = r
			}
		})
	}
	// Another body under the key, while the first is running.
	eventually(t, 10*time.Second, "the provider has booked", func() bool { return p.charges() == 1 })
	p.wantProblem(p.post(key, otherSlow), http.StatusUnprocessableEntity, "key-reused")
	wg.Wait()
	t.Logf("statuses: %v", statuses)
	if statuses[http.StatusConflict] == 0 || statuses[http.StatusConflict]+statuses[http.StatusCreated] != 64 || created.status == 0 {
		t.Fatalf("got statuses %v, want 201 and 409 alone and at least one 409", statuses)
	}
	p.wantSame(p.post(key, slow), created)
	p.wantProblem(p.post(key, otherSlow), http.StatusUnprocessableEntity, "key-reused")
	p.wantCharges(1)
}

// SIGKILL after completion: the next process replays.
func TestKillAfterCompletion(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, env []string) {
		p := start(t, t.TempDir(), env...)
		first := p.post(key, aCharge)
		p.want(first, http.StatusCreated)
		p = p.restart()
		p.wantSame(p.post(key, aCharge), first)
		p.wantCharges(1)
	})
}

// F36, F90: SIGKILL while the provider works: the effect has happened, but no
// answer was received. The key is refused, never charged again, and evidence
// resolves it.
func TestKillWhileTheProviderWorks(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, env []string) {
		p := start(t, t.TempDir(), append(env, "TIMEOUT=6s")...)
		broken := make(chan reply, 1)
		go func() { broken <- p.post(key, slow) }()
		eventually(t, 10*time.Second, "the provider has booked", func() bool { return p.charges() == 1 })
		p = p.restart()
		if r := <-broken; r.err == nil {
			t.Fatalf("the first request was answered with %d before the kill", r.status)
		}
		p.wantProblem(p.post(key, slow), http.StatusConflict, "in-progress")
		var last reply
		eventually(t, 15*time.Second, "the lease has ended", func() bool {
			last = p.post(key, slow)
			return !strings.Contains(last.body, "in-progress")
		})
		p.wantProblem(last, http.StatusConflict, "outcome-unknown")
		if s, err := strconv.Atoi(last.header.Get("Retry-After")); err != nil || s < 1 {
			t.Fatalf("409 with Retry-After %q", last.header.Get("Retry-After"))
		}
		p.wantProblem(p.post(key, otherSlow), http.StatusUnprocessableEntity, "key-reused")
		p.wantCharges(1)

		resolved := p.send("POST", "/admin/resolve", "", `{"idempotency_key":"`+key+`"}`)
		p.want(resolved, http.StatusOK)
		if !strings.Contains(resolved.body, "completed") {
			t.Fatalf("the resolution is %s", resolved.body)
		}
		r := p.post(key, slow)
		p.want(r, http.StatusCreated)
		if r.header.Get("Idempotent-Replayed") != "true" || !strings.HasPrefix(r.header.Get("Location"), "/charges/ch_") {
			t.Fatalf("got %v, want the replay with its Location", r.header)
		}
		p.want(p.send("GET", r.header.Get("Location"), "", ""), http.StatusOK)
		p.wantCharges(1)
	})
}
