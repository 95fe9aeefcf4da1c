// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"
	"github.com/go-chi/httprate"
	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/zstd"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// newCompressor returns the compressor of the page.
func newCompressor() *middleware.Compressor {
	compressor := middleware.NewCompressor(5)
	compressor.SetEncoder("br", func(w io.Writer, level int) io.Writer { return brotli.NewWriterLevel(w, level) })
	compressor.SetEncoder("zstd", func(w io.Writer, _ int) io.Writer {
		e, _ := zstd.NewWriter(w)
		return e
	})
	return compressor
}

var origins = cors.Options{
	AllowedOrigins: []string{"https://app.example.com", "https://admin.example.com"},
	AllowedMethods: []string{"GET", "POST", "PATCH"},
	AllowedHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key"},
	ExposedHeaders: []string{"Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires", "Retry-After", "Location", "Link"},
}

// chiChain is the chain of the page. The limit is in requests per minute.
func chiChain(guarded func(http.Handler) http.Handler, charge http.Handler, limit int, lines *log.Logger) http.Handler {
	logged := middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: lines, NoColor: true})
	compressor := newCompressor()

	r := chi.NewRouter()
	r.Use(
		logged,                // replays and refusals too
		middleware.Recoverer,  // the guard has settled the record before
		cors.Handler(origins), // answers OPTIONS itself
		compressor.Handler,    // in a coding that this request accepts
		middleware.RequestSize(1<<20),
		middleware.Timeout(20*time.Second), // the guard gets the deadline
		authenticated,                      // a 401 is not stored; the scope reads the caller
		httprate.LimitBy(limit, time.Minute, byCaller), // a 429 is not stored
	)
	r.With(guarded).Method("POST", "/customers/{id}/charges", charge)
	return r
}

// byCaller limits the rate of each caller.
func byCaller(r *http.Request) (string, error) {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name, nil
}

// chain returns the chain around the fixture's handler.
func (w *fixture) chain(limit int, optFns ...func(*lambdahttp.Options)) http.Handler {
	guarded := lambdahttp.Middleware(w.guard, append([]func(*lambdahttp.Options){caller}, optFns...)...)
	return chiChain(guarded, w.charge(), limit, discard)
}

// read decodes a body.
func read(t *testing.T, a *http.Response) string {
	t.Helper()
	var decoded io.Reader
	var err error
	switch coding := a.Header.Get("Content-Encoding"); coding {
	case "":
		decoded = a.Body
	case "gzip":
		decoded, err = gzip.NewReader(a.Body)
	case "br":
		decoded = brotli.NewReader(a.Body)
	case "zstd":
		decoded, err = zstd.NewReader(a.Body)
	default:
		t.Fatalf("unknown coding %q", coding)
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// want compares a response with one of the handler's, in a coding.
func (w *fixture) want(a *http.Response, coding, replayed string) {
	w.t.Helper()
	h := a.Header
	if a.StatusCode != 201 || h.Get("Content-Encoding") != coding || h.Get("Idempotent-Replayed") != replayed ||
		h.Get("Content-Type") != "application/json" || h.Get("Location") != "/charges/ch_1" {
		w.t.Errorf("got %d %v; want 201, coded %q, replayed %q", a.StatusCode, h, coding, replayed)
	}
	if coding != "" && !slices.Contains(h.Values("Vary"), "Accept-Encoding") {
		w.t.Errorf("a response coded %q varies by %q", coding, h.Values("Vary"))
	}
	if got := read(w.t, a); got != charged {
		w.t.Errorf("coded %q, replayed %q: read %.40q, want %.40q", coding, replayed, got, charged)
	}
	if runs := w.runs.Load(); runs != 1 {
		w.t.Errorf("the handler ran %d times", runs)
	}
}

// A compressor around the guard compresses a replay for the request that it
// answers.
func TestCompressorAround(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"gzip", "br", "zstd", ""} {
		w := newFixture(t)
		h := w.chain(100)
		w.want(serve(h, post(with("Accept-Encoding", coding))), coding, "")
		for _, other := range []string{coding, "gzip", "br", "zstd", ""} {
			w.want(serve(h, post(with("Accept-Encoding", other))), other, "true")
		}
		if stored := w.stored(); string(stored.Body) != charged || stored.Header.Get("Content-Encoding") != "" {
			t.Errorf("stored %v %.80q", stored.Header, stored.Body)
		}
	}
}

// A compressor inside the guard codes the stored response: a replay can be read
// by the client that sent the first request, and has that coding for any other.
func TestCompressorInside(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"gzip", "br", "zstd"} {
		w := newFixture(t)
		guarded := lambdahttp.Middleware(w.guard, caller)
		h := authenticated(guarded(newCompressor().Handler(w.charge())))
		h = newCompressor().Handler(h) // does not compress what is compressed
		first := serve(h, post(with("Accept-Encoding", coding)))
		sent := text(t, first)
		for _, other := range []string{coding, ""} {
			replay := serve(h, post(with("Accept-Encoding", other)))
			again := text(t, replay)
			if again != sent {
				t.Errorf("%s: the replay has other bytes", coding)
			}
			replay.Body = io.NopCloser(strings.NewReader(again))
			w.want(replay, coding, "true")
		}
	}
}

// The route is known behind chi's router, and each exchange is logged.
func TestChiRouteAndLog(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var lines bytes.Buffer
	h := chiChain(lambdahttp.Middleware(w.guard, caller), w.charge(), 100, log.New(&lines, "", 0))
	w.want(serve(h, post()), "", "")
	w.want(serve(h, post()), "", "true")
	if got := w.record().ID.Operation(); got != "POST /customers/{id}/charges" {
		t.Errorf("the operation is %q", got)
	}
	if n := strings.Count(lines.String(), " - 201 "); n != 2 || strings.Contains(lines.String(), strings.Trim(key, `"`)) {
		t.Errorf("logged %d exchanges:\n%s", n, &lines)
	}
}

// The guard of a sub-router knows the whole route too.
func TestChiSubRouter(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	r := chi.NewRouter()
	r.Route("/customers", func(r chi.Router) {
		r.With(lambdahttp.Middleware(w.guard, caller)).Method("POST", "/{id}/charges", w.charge())
	})
	w.want(serve(authenticated(r), post()), "", "")
	if got := w.record().ID.Operation(); got != "POST /customers/{id}/charges" {
		t.Errorf("the operation is %q", got)
	}
}

// A refusal of a layer around the guard is not stored, and does not use the key.
func TestRefusedAround(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  int
		refuse func(*http.Request)
		status int
	}{
		"no token":   {100, func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"too large":  {100, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20+1))) }, 413},
		"too many":   {1, func(*http.Request) {}, 429},
		"wrong path": {100, func(r *http.Request) { r.URL.Path = "/" }, 404},
	} {
		w := newFixture(t)
		h := w.chain(c.limit)
		if name == "too many" { // the caller has used its one request
			serve(h, post(func(r *http.Request) { r.URL.Path = "/" }))
		}
		if a := serve(h, post(c.refuse)); a.StatusCode != c.status || w.runs.Load() != 0 || w.store.claims.Load() != 0 {
			t.Errorf("%s: got %d after %d runs and %d claims, want %d", name, a.StatusCode, w.runs.Load(), w.store.claims.Load(), c.status)
		}
		if name == "too many" { // another caller is not limited
			w.want(serve(h, post(with("Authorization", "Bearer merchant-2"))), "", "")
			continue
		}
		w.want(serve(h, post()), "", "")
	}
}

// Inside the guard, the refusal of a rate limiter is the outcome.
func TestLimiterInside(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	limited := httprate.LimitBy(1, 24*time.Hour, byCaller)
	h := authenticated(lambdahttp.Middleware(w.guard, caller)(limited(w.charge())))
	serve(h, post(with("Idempotency-Key", `"another-key-of-the-test"`)))
	for _, replayed := range []string{"", "true"} {
		if a := serve(h, post()); a.StatusCode != 429 || a.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %d %v, want 429, replayed %q", a.StatusCode, a.Header, replayed)
		}
	}
}

// A preflight is answered around the guard, and a request with the key is
// allowed. Each exchange has the origin of its own request.
func TestPreflight(t *testing.T) {
	t.Parallel()
	for name, profile := range map[string]lambdahttp.Profile{"IETF": lambdahttp.IETF, "Stripe": lambdahttp.Stripe, "UUID": lambdahttp.UUID} {
		w := newFixture(t)
		h := w.chain(100, func(o *lambdahttp.Options) {
			o.Profile = profile
			o.Profile.Syntax = lambdahttp.QuotedKey // the same key in each profile
		})
		for _, origin := range origins.AllowedOrigins {
			preflight := post(with("Origin", origin), with("Access-Control-Request-Method", "POST"),
				with("Access-Control-Request-Headers", "authorization,content-type,idempotency-key"))
			preflight.Method = "OPTIONS"
			preflight.Header.Del("Authorization")
			a := serve(h, preflight)
			allowed := strings.ToLower(a.Header.Get("Access-Control-Allow-Headers"))
			if a.StatusCode != 200 || !strings.Contains(allowed, "idempotency-key") || !strings.Contains(allowed, "content-type") ||
				a.Header.Get("Access-Control-Allow-Origin") != origin || a.Header.Get("Access-Control-Allow-Methods") != "POST" {
				t.Errorf("%s: the preflight got %d %v", name, a.StatusCode, a.Header)
			}
			if origin == origins.AllowedOrigins[0] && w.store.claims.Load() != 0 {
				t.Errorf("%s: the preflight claimed a key", name)
			}
			a = serve(h, post(with("Origin", origin)))
			if got := a.Header.Get("Access-Control-Allow-Origin"); a.StatusCode != 201 || got != origin {
				t.Errorf("%s: got %d for the origin %q, want %q", name, a.StatusCode, got, origin)
			}
			for _, header := range origins.ExposedHeaders {
				if !strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), header) {
					t.Errorf("%s: exposed %q, without %s", name, a.Header.Get("Access-Control-Expose-Headers"), header)
				}
			}
		}
		if h := w.stored().Header; w.runs.Load() != 1 || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d runs, stored %v", name, w.runs.Load(), h)
		}
		// Without a layer for CORS the handler gets a preflight with a key unguarded.
		bare := lambdahttp.Middleware(w.guard, func(o *lambdahttp.Options) { o.Profile = profile }, caller)(w.charge())
		preflight := post()
		preflight.Method = "OPTIONS"
		claims := w.store.claims.Load()
		if a := serve(bare, preflight); a.StatusCode != 201 || w.store.claims.Load() != claims {
			t.Errorf("%s: OPTIONS with a key got %d after %d claims", name, a.StatusCode, w.store.claims.Load()-claims)
		}
	}
}

// A panic passes the guard, which settles the record, before the recoverer
// answers. A recoverer inside makes it an answer like any other.
func TestRecoverer(t *testing.T) {
	t.Parallel()
	stripe := func(o *lambdahttp.Options) {
		o.Profile = lambdahttp.Stripe
		o.Profile.Syntax = lambdahttp.QuotedKey
	}
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })
	quiet := middleware.RequestLogger(silent{}) // Recoverer logs to it
	for name, c := range map[string]struct {
		chain func(guarded func(http.Handler) http.Handler) http.Handler
		state driver.State
		retry int
	}{
		"around": {func(guarded func(http.Handler) http.Handler) http.Handler {
			return middleware.Recoverer(guarded(broken))
		}, driver.StateUnknown, 409},
		"inside": {func(guarded func(http.Handler) http.Handler) http.Handler {
			return guarded(middleware.Recoverer(broken))
		}, driver.StateCompleted, 500},
	} {
		w := newFixture(t)
		h := quiet(authenticated(c.chain(lambdahttp.Middleware(w.guard, caller, stripe))))
		if a := serve(h, post()); a.StatusCode != 500 {
			t.Errorf("%s: got %d", name, a.StatusCode)
		}
		if got := w.record().State; got != c.state {
			t.Errorf("%s: the record is %s, want %s", name, got, c.state)
		}
		if a := serve(h, post()); a.StatusCode != c.retry {
			t.Errorf("%s: the retry got %d, want %d", name, a.StatusCode, c.retry)
		}
	}
}

// silent logs nothing.
type silent struct{}

func (silent) NewLogEntry(*http.Request) middleware.LogEntry         { return silent{} }
func (silent) Write(_, _ int, _ http.Header, _ time.Duration, _ any) {}
func (silent) Panic(any, []byte)                                     {}

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
