// SPDX-License-Identifier: Apache-2.0

package charge_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// claimed creates the record of a process that was killed before it reached the
// provider.
func claimed(t *testing.T, w *fixture, lease time.Duration) {
	t.Helper()
	now := w.clock.Now().UTC().Truncate(time.Millisecond)
	r := driver.Record{
		ID:          charge.RecordIDOf(key),
		State:       driver.StateInProgress,
		Reason:      driver.ReasonClaimed,
		Version:     driver.Version{1},
		Owner:       driver.Owner{1},
		Codec:       lambdahttp.Encoding,
		Attempt:     1,
		Fingerprint: idempotent.FingerprintBytes(nil),
		LeaseEnd:    now.Add(lease),
		Created:     now,
	}
	if met, err := w.store.Insert(t.Context(), r, now); err != nil || met != nil {
		t.Fatal(met, err)
	}
}

func TestResolveNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	if _, err := w.resolve(key); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("got %v, want ErrNoRecord", err)
	}
}

// While the lease is live, a missing charge at the provider proves nothing.
func TestResolveTooEarly(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	claimed(t, w, time.Minute)
	_, err := w.resolve(key)
	var running *idempotent.InProgressError
	if !errors.As(err, &running) || running.RetryAfter <= 0 || running.RetryAfter > time.Minute {
		t.Fatalf("got %v, want the remaining time of the lease", err)
	}
	w.clock.Advance(time.Minute)
	for range 2 {
		if got, err := w.resolve(key); got != charge.NotExecuted || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// While the handler runs, only the handler reports its outcome. A charge in the
// ledger is not evidence yet.
func TestResolveWhileRunning(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	first := make(chan reply)
	go func() { first <- w.post(key, slow) }()
	<-w.booked
	if got, err := w.resolve(key); !errors.As(err, new(*idempotent.InProgressError)) {
		t.Fatalf("got %q, %v, want InProgressError", got, err)
	}
	close(w.release)
	answer := <-first
	w.want(answer, http.StatusCreated)
	if got, err := w.resolve(key); got != charge.Completed || err != nil { // it agrees
		t.Errorf("got %q, %v", got, err)
	}
	w.wantReplay(w.post(key, slow), answer)
	w.wantCharges(1)
}

// A missing charge is evidence about the attempt that was read before the
// provider was asked. It does not release an attempt that began meanwhile.
func TestResolveAnotherAttempt(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	claimed(t, w, time.Millisecond)
	w.clock.Advance(time.Minute)
	w.asked = func() {
		r, err := w.store.Get(t.Context(), charge.RecordIDOf(key))
		if err != nil {
			t.Error(err)
			return
		}
		next := *r
		next.Attempt, next.Owner, next.Version = 2, driver.Owner{2}, driver.Version{2}
		if met, err := w.store.Replace(t.Context(), next, r.Version); met != nil || err != nil {
			t.Error(met, err)
		}
	}
	if got, err := w.resolve(key); !errors.As(err, new(*idempotent.StaleEvidenceError)) {
		t.Errorf("got %q, %v, want StaleEvidenceError", got, err)
	}
	if r, err := w.store.Get(t.Context(), charge.RecordIDOf(key)); err != nil || r.State != driver.StateInProgress {
		t.Errorf("the record is %v, %v", r, err)
	}
}

// A decline is an outcome, but it is not in the ledger.
func TestResolveSettled(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	first := w.post(key, declined)
	w.want(first, http.StatusPaymentRequired)
	w.clock.Advance(2 * time.Minute)
	if _, err := w.resolve(key); !errors.As(err, new(*idempotent.SettledError)) {
		t.Errorf("got %v, want SettledError", err)
	}
	w.clock.Advance(-2 * time.Minute) // back to the time of the gateway's deadlines
	w.wantReplay(w.post(key, declined), first)
}

// No answer is no evidence.
func TestResolveWithoutProvider(t *testing.T) {
	t.Parallel()
	w := newFixture(t, time.Minute)
	claimed(t, w, time.Millisecond)
	w.clock.Advance(time.Minute)
	w.serve("http://127.0.0.1:1", time.Minute)
	if got, err := w.resolve(key); err == nil {
		t.Errorf("got %q without an answer", got)
	}
	w.serve(w.upstream+"/nowhere", time.Minute)
	if got, err := w.resolve(key); err == nil {
		t.Errorf("got %q from an unclear answer", got)
	}
	r, err := w.store.Get(t.Context(), charge.RecordIDOf(key))
	if err != nil || r.State != driver.StateInProgress {
		t.Errorf("the record is %v, %v", r, err)
	}
}
