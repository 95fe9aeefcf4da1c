// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"
	"github.com/go-chi/httprate"
	"github.com/klauspost/compress/gzhttp"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// netHTTPChain is the chain of the page, for http.ServeMux.
func netHTTPChain(guarded func(http.Handler) http.Handler, charge http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /customers/{id}/charges", guarded(charge))

	h := httprate.LimitBy(100, time.Minute, byCaller)(mux) // each line is put around those above
	h = authenticated(h)
	h = http.TimeoutHandler(h, 20*time.Second, "")
	h = http.MaxBytesHandler(h, 1<<20)
	h = gzhttp.GzipHandler(h)
	h = cors.Handler(origins)(h)
	h = middleware.Recoverer(h)
	return h
}

// The chain of net/http behaves as that of chi.
func TestNetHTTP(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := netHTTPChain(lambdahttp.Middleware(w.guard, caller), w.charge())
	gzipped, origin := with("Accept-Encoding", "gzip"), with("Origin", origins.AllowedOrigins[0])
	if a := serve(h, post(func(r *http.Request) { r.Header.Del("Authorization") })); a.StatusCode != 401 || w.store.claims.Load() != 0 {
		t.Errorf("got %d after %d claims, want 401", a.StatusCode, w.store.claims.Load())
	}
	w.want(serve(h, post(gzipped, origin)), "gzip", "")
	w.want(serve(h, post(gzipped)), "gzip", "true")
	a := serve(h, post(origin))
	w.want(a, "", "true")
	if got := a.Header.Get("Access-Control-Allow-Origin"); got != origins.AllowedOrigins[0] {
		t.Errorf("the origin is %q", got)
	}
	if got := w.record().ID.Operation(); got != "POST /customers/{id}/charges" {
		t.Errorf("the operation is %q", got)
	}
}

// slow is a handler that ignores its context and ends when end is closed. It
// counts how many of its runs are at work.
type slow struct {
	end     chan struct{}
	running atomic.Int32
}

func (s *slow) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.running.Add(1)
	<-s.end
	s.running.Add(-1)
	w.WriteHeader(http.StatusCreated)
}

// Around the guard, a time-out answers the client and leaves the record to the
// handler. Inside it, the answer settles the record while the handler works, and
// a retry runs beside it.
func TestTimeoutHandler(t *testing.T) {
	t.Parallel()
	rerun := func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }
	for name, c := range map[string]struct {
		chain    func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler
		retry    int
		atOnce   int32
		replayed string // the mark of a request after the handler has ended
	}{
		"around": {func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return http.TimeoutHandler(guarded(h), 5*time.Second, "")
		}, 409, 1, "true"},
		"inside": {func(guarded func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return guarded(http.TimeoutHandler(h, 5*time.Second, ""))
		}, 503, 2, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			work := slow{end: make(chan struct{})}
			h := authenticated(c.chain(lambdahttp.Middleware(newFixture(t, rerun).guard, caller), &work))
			if a := serve(h, post()); a.StatusCode != 503 {
				t.Errorf("%s: got %d", name, a.StatusCode)
			}
			if a := serve(h, post()); a.StatusCode != c.retry {
				t.Errorf("%s: the retry got %d, want %d", name, a.StatusCode, c.retry)
			}
			if n := work.running.Load(); n != c.atOnce {
				t.Errorf("%s: %d runs at once, want %d", name, n, c.atOnce)
			}
			close(work.end)
			synctest.Wait()
			if n := work.running.Load(); n != 0 {
				t.Errorf("%s: %d runs have not ended", name, n)
			}
			if a := serve(h, post()); a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != c.replayed {
				t.Errorf("%s: at last got %d %v, want 201, replayed %q", name, a.StatusCode, a.Header, c.replayed)
			}
		})
	}
}
