package lambdahttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// A handler continues after its client has disconnected: a finished effect is
// not unknown, and the retry gets its response.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	gone, done := make(chan struct{}), make(chan struct{})
	var client context.CancelFunc
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write([]byte("charged")); err != nil {
			t.Error(err)
		}
		client()
		<-gone // the server has noticed
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the connection: %v", err)
		}
	}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Goes") == "" {
				next.ServeHTTP(w, r)
				return
			}
			context.AfterFunc(r.Context(), func() { close(gone) })
			next.ServeHTTP(w, r)
			close(done)
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client = cancel
	r := s.request(ctx, strings.NewReader("{}"))
	r.Header.Set("X-Goes", "away")
	if a, err := s.client.Do(r); err == nil {
		a.Body.Close()
		t.Fatal("the client got a response")
	}
	<-done
	a, got := s.do("{}")
	if a.StatusCode != 200 || got != "charged" || a.Header.Get("Idempotent-Replayed") != "true" || s.runs != 1 {
		t.Errorf("the retry got %d %q %v after %d runs", a.StatusCode, got, a.Header, s.runs)
	}
}

// The context of a handler that streams ends when its client disconnects.
func TestClientGoesAwayFromAStream(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		done <- r.Context().Err()
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := s.client.Do(s.request(ctx, http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream's context ended with %v", err)
	}
}

// A request whose client disconnected before the claim does not run.
func TestClientIsGoneBeforeTheClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.runs++ }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := &plainWriter{header: http.Header{}}
	h.ServeHTTP(out, keyed(ctx))
	if out.status != 503 || w.runs != 0 || w.store.calls != 0 {
		t.Errorf("status %d after %d runs and %d calls of the store", out.status, w.runs, w.store.calls)
	}
}

// Without a deadline DefaultLease applies. A deadline of the request, for
// example under lambdaurl, is also that of the lease.
func TestMiddlewareDeadlines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	var left time.Duration
	h := lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, ok := r.Context().Deadline()
		if !ok {
			t.Error("the handler's context has no deadline")
		}
		left = time.Until(deadline)
	}))
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(t.Context()))
	if lease := w.store.record(t).LeaseEnd.Sub(w.clock.Now()); left < 14*time.Minute || left > 15*time.Minute-2*time.Second || lease < 14*time.Minute || lease > 15*time.Minute {
		t.Errorf("the handler has %s and the lease %s", left, lease)
	}

	w = newWorld(t, wires[0])
	h = lambdahttp.Middleware(w.guard, single)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, _ := r.Context().Deadline()
		left = time.Until(deadline)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h.ServeHTTP(&plainWriter{header: http.Header{}}, keyed(ctx))
	if lease := w.store.record(t).LeaseEnd.Sub(w.clock.Now()); left > 29500*time.Millisecond || left < 20*time.Second || lease > 32*time.Second || lease < 22*time.Second {
		t.Errorf("with a deadline in 30 s the handler has %s and the lease %s", left, lease)
	}
}

// A handler that returns after its deadline without writing anything has
// failed; it did not respond with an empty 200.
func TestSilenceAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write  bool
		state  driver.State
		status int
	}{
		"silent":   {false, driver.StateUnknown, 0},
		"answered": {true, driver.StateCompleted, 200},
	} {
		w := newWorld(t, wires[0])
		var told error
		h := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) {
			o.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { told = err }
		})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if c.write {
				_, _ = rw.Write([]byte("late"))
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		out := &plainWriter{header: http.Header{}}
		h.ServeHTTP(out, keyed(ctx))
		cancel()
		if got := w.store.record(t).State; got != c.state || out.status != c.status || errors.Is(told, context.DeadlineExceeded) == c.write {
			t.Errorf("%s: the record is %s, the status %d, the error %v", name, got, out.status, told)
		}
	}
}
