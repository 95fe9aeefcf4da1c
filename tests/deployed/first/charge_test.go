// SPDX-License-Identifier: Apache-2.0

package first

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// G13: a charge is made once, for every request that repeats it, and another request under
// its key is refused.
func TestCharge(t *testing.T) {
	t.Parallel()
	pay := newPayments(t)
	f := newCharges(t, pay, 15*time.Minute, nil) // enough on a busy machine
	customer, key := rand.Text(), rand.Text()
	first := f.answer(t, key, customer, 4200)
	if first.status != http.StatusCreated || first.replayed {
		t.Fatalf("got %+v, want a charge", first)
	}
	if again := f.answer(t, key, customer, 4200); again.status != first.status || again.body != first.body || !again.replayed {
		t.Errorf("got %+v, want the replay of %+v", again, first)
	}
	f.answer(t, key, customer, 9000).want(t, http.StatusUnprocessableEntity, "key-reused")
	if n := pay.times(customer); n != 1 {
		t.Errorf("the provider was asked %d times, want once", n)
	}
	if next := f.answer(t, rand.Text(), customer, 4200); next.status != http.StatusCreated || next.replayed || next.body == first.body {
		t.Errorf("got %+v for a new key, want a new charge", next)
	}
	pay.Once(t, 2)
}

// FM10: Lambda kills the function at its time-out, after the charge and before the record
// of it. The charge is not made again, and the client learns that its outcome is unknown.
func TestKilledAfterTheCharge(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	pay := newPayments(t)
	f := newCharges(t, pay, timeout, nil)
	pay.charged = func(string) { engine.SignalFunction(f.name, syscall.SIGSTOP) } // so it cannot read the answer
	var customer, key string
	kit.Eventually(t, "Lambda kills the function after a charge", func() bool {
		customer, key = rand.Text(), rand.Text()
		began := time.Now()
		r := f.post(t, key, customer, 4200)
		if pay.times(customer) == 0 || r.problem != "" { // on a busy machine, the time ends before the charge, or before the signal
			return false
		}
		if took := time.Since(began); r.status < http.StatusInternalServerError || took < timeout {
			t.Fatalf("got %+v after %s, want a function that is killed after %s", r, took, timeout)
		}
		return true
	})
	var r reply
	kit.Eventually(t, "the lease ends", func() bool {
		r = f.post(t, key, customer, 4200)
		return r.status < http.StatusInternalServerError && r.problem != "in-progress" || pay.times(customer) > 1
	})
	r.want(t, http.StatusConflict, "outcome-unknown")
	if n := pay.times(customer); n != 1 {
		t.Errorf("the provider was asked %d times, want once", n)
	}
}

// A table that accepts connections and never answers costs no client its answer, and no
// customer a charge. On a busy machine, Lambda can kill a function that is about to answer.
func TestTableDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	pay := newPayments(t)
	f := newCharges(t, pay, 3*time.Second, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://" + silent.Addr().String()})
	customer := rand.Text()
	var r reply
	kit.Eventually(t, "an answer before the time-out", func() bool {
		r = f.post(t, rand.Text(), customer, 4200)
		return r.problem != "" || r.status < http.StatusInternalServerError
	})
	r.want(t, http.StatusServiceUnavailable, "store-unavailable")
	if n := pay.times(customer); n != 0 {
		t.Errorf("the provider was asked %d times, want never", n)
	}
}

// charges is the charge example behind a function URL.
type charges struct{ name, host string }

func newCharges(t *testing.T, pay *payments, timeout time.Duration, more map[string]string) *charges {
	t.Helper()
	env := map[string]string{"PROVIDER_URL": pay.url, "ONCE_METRICS_NAMESPACE": "First"}
	maps.Copy(env, more)
	f := &charges{name: create(t, "charge", timeout, env)}
	f.host = urlOf(t, f.name)
	return f
}

// reply is a response of the function, or of Lambda for it.
type reply struct {
	status   int
	replayed bool
	body     string
	problem  string // its code
}

// answer repeats the request until the function answers it.
func (f *charges) answer(t *testing.T, key, customer string, amount int) (r reply) {
	t.Helper()
	kit.Eventually(t, "an answer", func() bool {
		r = f.post(t, key, customer, amount)
		return r.status < http.StatusInternalServerError
	})
	return r
}

func (f *charges) post(t *testing.T, key, customer string, amount int) reply {
	t.Helper()
	body := fmt.Sprintf(`{"amount":%d,"currency":"usd","customer":%q}`, amount, customer)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/charges", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = f.host // by which LocalStack selects the function
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strconv.Quote(key))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(text, &problem) // a charge has no code
	return reply{resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", string(text), problem.Code}
}

// want checks that the response is a problem with a code.
func (r reply) want(t *testing.T, status int, problem string) {
	t.Helper()
	if r.status != status || r.problem != problem {
		t.Errorf("got %+v, want %d %s", r, status, problem)
	}
}
