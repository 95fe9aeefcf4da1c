// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
)

// traffic is a set of clients that charge one customer after the other and repeat
// every request until it has its outcome.
type traffic struct {
	enough chan struct{} // closed by stop
	stop   func()
	wg     sync.WaitGroup

	mu      sync.Mutex
	paid    []payment
	refused map[int]int // answers without an outcome, by status
}

// payment is a request with its outcome.
type payment struct {
	door          door
	customer, key string
	outcome       reply
}

func (tr *traffic) start(t *testing.T, doors ...door) {
	for _, d := range doors {
		tr.wg.Go(func() {
			for {
				select {
				case <-tr.enough:
					return
				default:
					tr.pay(t, d)
				}
			}
		})
	}
}

func (tr *traffic) pay(t *testing.T, d door) {
	p := payment{door: d, customer: newCustomer(), key: rand.Text()}
	pay.after(p.customer, func(int) bool {
		time.Sleep(100 * time.Millisecond) // the time in which the function may be replaced
		return true
	})
	if !tr.try(t, &p) {
		tr.wg.Go(func() { tr.insist(t, &p) }) // and the loop continues
	}
}

// try sends the request once, and reports whether it was the last time.
func (tr *traffic) try(t *testing.T, p *payment) (over bool) {
	p.outcome = p.door.post(t, p.key, aCharge(p.customer))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch s := p.outcome.status; {
	case s == http.StatusCreated:
		tr.paid = append(tr.paid, *p)
		return true
	case s >= 400 && s < 500 && s != http.StatusConflict && s != http.StatusTooManyRequests:
		t.Errorf("%s: got %v", p.door.name, p.outcome)
		tr.stop() // one such failure is enough
		return true
	default:
		tr.refused[s]++
		return false
	}
}

func (tr *traffic) insist(t *testing.T, p *payment) {
	for deadline := time.Now().Add(kit.Patience); !tr.try(t, p); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: no outcome for %s: %v", p.door.name, p.key, p.outcome)
			return
		}
	}
}

func (tr *traffic) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.paid)
}

// The functions get new code and a new configuration while requests run, as in a
// deployment of the stack. LocalStack ends the old ones at once, with their
// running requests. No charge is made twice, and every client gets its outcome.
func TestRedeployUnderTraffic(t *testing.T) {
	tr := &traffic{enough: make(chan struct{}), refused: map[int]int{}}
	tr.stop = sync.OnceFunc(func() { close(tr.enough) })
	tr.start(t, byFunctionURL(), byREST(0), byREST(1))
	defer tr.wg.Wait()
	defer tr.stop()
	kit.Eventually(t, "there is traffic", func() bool { return tr.count() >= 20 })
	for _, function := range []string{stack.chargesURL, stack.chargesREST, stack.chargesURL, stack.chargesREST} {
		stack.redeploy(t, function, pay.address("v2"))
		more := tr.count() + 10
		kit.Eventually(t, "the traffic goes on", func() bool { return tr.count() >= more })
	}
	tr.stop()
	// Requests that were cut off have to wait for the reconciler.
	t.Parallel()
	tr.wg.Wait()

	t.Logf("%d charges, %d requests by the old functions and %d by the new; not yet an outcome, by status: %v",
		len(tr.paid), pay.times("v1"), pay.times("v2"), tr.refused)
	if old, replaced := pay.times("v1"), pay.times("v2"); old < 20 || replaced < 20 {
		t.Errorf("%d requests by the old functions and %d by the new, want 20 of each", old, replaced)
	}
	if cut := tr.refused[http.StatusBadGateway] + tr.refused[http.StatusInternalServerError]; cut == 0 {
		t.Error("no request was cut off")
	}
	for _, p := range tr.paid {
		wantCharges(t, p.customer, 1)
		if r := p.door.post(t, p.key, aCharge(p.customer)); r.status != p.outcome.status || r.body != p.outcome.body || !r.replayed() {
			t.Errorf("%s: got %v, want the replay of %v", p.door.name, r, p.outcome)
		}
	}
}
