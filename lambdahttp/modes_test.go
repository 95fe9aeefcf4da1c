package lambdahttp_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// The failure modes to which HTTP adds rules, by their ids.

func TestFM05ConcurrentRequestsRunOnce(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		const requests = 64
		w := newWorld(t, on)
		others := make(chan struct{}) // closed when all other requests have a response
		w.becomes(duringRun(func() { <-others }))
		replies := make(chan reply, requests)
		for range requests {
			go func() {
				a, err := w.send(t.Context(), charge())
				if err != nil {
					t.Error(err)
				}
				replies <- a
			}()
		}
		for range requests - 1 {
			if a := <-replies; a.status != 409 {
				t.Errorf("status %d beside the running request, want 409", a.status)
			}
		}
		close(others)
		if a := <-replies; a.status != 201 || a.header["Idempotent-Replayed"] != "" {
			t.Errorf("the owner got %d %v, want its own 201", a.status, a.header)
		}

		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				if a, err := w.send(t.Context(), charge()); err != nil || a.status != 201 || a.header["Idempotent-Replayed"] != "true" {
					t.Errorf("got %d %v %v, want a replayed 201", a.status, a.header, err)
				}
			})
		}
		wg.Wait()
		if w.runs != 1 {
			t.Errorf("the handler ran %d times", w.runs)
		}
	})
}

func TestFM06OtherFingerprintInProgress(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		if a := meanwhile(withBody(`{"amount":1}`))(w); a.status != 422 || w.runs != 1 {
			t.Errorf("status %d after %d runs, want 422 after 1: a mismatch comes before the state", a.status, w.runs)
		}
	})
}

func TestFM07OtherFingerprintCompleted(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.post(charge())
		for name, mod := range map[string]func(*request){
			"body":           withBody(`{"amount":1}`),
			"query":          func(r *request) { r.query = "expand=merchant&dry_run=false" },
			"query appended": func(r *request) { r.query += "&x" },
			"no query":       func(r *request) { r.query = "" },
			"content type":   withHeader("content-type", "text/plain"),
		} {
			if a := w.post(charge(mod)); a.status != 422 {
				t.Errorf("other %s: status %d, want 422", name, a.status)
			}
		}
		if w.runs != 1 {
			t.Errorf("the handler ran %d times", w.runs)
		}
	})
}

// F10: two resources of one route share an operation, but have different paths.
func TestFM07OtherPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	at := func(path string) func(*request) {
		return func(r *request) { r.path, r.route = path, "/charges/{id}/capture" }
	}
	w.post(charge(at("/charges/1/capture")))
	if a := w.post(charge(at("/charges/2/capture"))); a.status != 422 {
		t.Errorf("status %d for another path of the route, want 422", a.status)
	}
	if a := w.post(charge(func(r *request) { r.path, r.route = "/refunds", "/refunds" })); a.status != 201 || w.runs != 2 {
		t.Errorf("status %d on another route after %d runs, want a separate run", a.status, w.runs)
	}
}

func TestFM52KeysAndScopesDoNotCollide(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on, func(o *lambdahttp.Options) {
			o.Profile.Syntax = lambdahttp.QuotedOrBareKey
			o.Profile.MinKeyLength = 1
		})
		distinct := []struct{ caller, key string }{
			{"a", `"b|c"`}, {"a|b", `"c"`}, {"a", `"b#c"`}, {"a#b", `"c"`}, {"ab", `"c"`}, {"a", `"bc"`},
			{"a", `"B|C"`},                        // keys are bytes, not words
			{"a", `"b\\|c"`},                      // an escape is one character
			{"\u00e9", `"c"`}, {"e\u0301", `"c"`}, // NFC and NFD
			{"a ", `"c"`}, {"a", `"c "`}, {"a", `"c"`}, // inner spaces count
			{"global", `"c"`},
		}
		for i, d := range distinct {
			if a := w.post(charge(withCaller(d.caller), withKey(d.key))); a.status != 201 || w.runs != i+1 {
				t.Errorf("%+v: status %d after %d runs, want a separate run", d, a.status, w.runs)
			}
		}
		runs := w.runs
		for _, same := range []string{`c`, ` c `, `"c";a=1`, `c;a`} {
			if a := w.post(charge(withCaller("a"), withKey(same))); a.header["Idempotent-Replayed"] != "true" || w.runs != runs {
				t.Errorf("%q was not read as the key \"c\": status %d", same, a.status)
			}
		}
	})
}

func TestFM31PanicGoesOn(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.becomes(duringRun(func() { panic("boom") }))
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v, want the handler's panic", p)
				}
			}()
			w.post(charge())
		}()
		w.becomes(created)
		if a := w.post(charge()); a.status != 409 {
			t.Errorf("status %d after a panic, want 409", a.status)
		}
	})
}

// A request that has to wait gets the remaining time of the lease in
// Retry-After, in whole seconds and never zero.
func TestRetryAfterIsNeverZero(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.becomes(duringRun(func() {
			left := w.store.record(t).LeaseEnd.Sub(w.clock.Now())
			w.clock.Advance(left - 300*time.Millisecond)
			if a := w.post(charge()); a.header["Retry-After"] != "1" {
				t.Errorf("Retry-After %q with 300 ms to go, want 1", a.header["Retry-After"])
			}
		}))
		w.post(charge())

		// The lease ends while the second request is processed.
		ticking := false
		w = newWorld(t, on, guard(func(o *idempotent.Options) {
			o.Now = func() time.Time {
				if ticking {
					w.clock.Advance(100 * time.Millisecond)
				}
				return w.clock.Now()
			}
		}))
		w.becomes(duringRun(func() {
			w.clock.Advance(w.store.record(t).LeaseEnd.Sub(w.clock.Now()) - 250*time.Millisecond)
			ticking = true
			a := w.post(charge())
			ticking = false
			if a.status != 409 || !strings.Contains(a.body, "in-progress") || a.header["Retry-After"] != "1" {
				t.Errorf("got %d %s, Retry-After %q at the end of the lease, want 1", a.status, a.body, a.header["Retry-After"])
			}
		}))
		w.post(charge())
	})
}
