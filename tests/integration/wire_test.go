package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// wire is a transport for the real SDK. For each request the script says what
// goes wrong; a nil fault passes it through.
type wire struct {
	mu     sync.Mutex
	script func(n int) fault // n counts the requests from 1
	sent   int
}

// fault changes what the SDK sees of a request.
type fault func(req *http.Request, forward func() (*http.Response, error)) (*http.Response, error)

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent++
	f := w.script(w.sent)
	w.mu.Unlock()
	forward := func() (*http.Response, error) { return http.DefaultTransport.RoundTrip(req) }
	if f == nil {
		return forward()
	}
	return f(req, forward)
}

var errReset = errors.New("connection reset by peer")

// cut lets the server apply the request and drops its reply.
func cut(_ *http.Request, forward func() (*http.Response, error)) (*http.Response, error) {
	resp, err := forward()
	if err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		err = errReset
	}
	return nil, err
}

// refuse answers with an exception of the service without asking it.
func refuse(exception string) fault {
	return func(req *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		if req.Body != nil {
			io.Copy(io.Discard, req.Body)
			req.Body.Close()
		}
		body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + exception + `","message":"injected"}`
		return &http.Response{
			StatusCode: http.StatusBadRequest, Status: "400 Bad Request",
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body:          io.NopCloser(strings.NewReader(body)),
			ContentLength: int64(len(body)), Request: req,
		}, nil
	}
}

// only applies f to the requests that are named, counted from 1.
func only(f fault, requests ...int) func(int) fault {
	return func(n int) fault {
		for _, r := range requests {
			if n == r {
				return f
			}
		}
		return nil
	}
}

// request sends key through a guard over the faulty wire and one over a good
// one, and returns what the first said.
type wired struct {
	t     *testing.T
	db    database
	key   idempotent.Key
	wire  *wire
	runs  int
	clock *idempotenttest.Clock
}

func newWired(t *testing.T, db database, script func(int) fault) *wired {
	return &wired{t: t, db: db, key: newKey(), wire: &wire{script: script}, clock: &idempotenttest.Clock{}}
}

func (w *wired) guard(s idempotent.Store) *idempotent.Guard {
	w.t.Helper()
	g, err := idempotent.New(s, func(o *idempotent.Options) { o.Now = w.clock.Now })
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *wired) do(ctx context.Context, s idempotent.Store) (idempotent.Outcome[string], error) {
	return idempotent.DoOutcome(ctx, w.guard(s), w.key, func(context.Context) (string, error) {
		w.runs++
		return "ch_1", nil
	})
}

// faulty sends a request over the faulty wire with the given time.
func (w *wired) faulty(timeout time.Duration) (idempotent.Outcome[string], error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
	defer cancel()
	return w.do(ctx, w.db.storeOver(w.t, w.db.over(w.wire)))
}

// retry sends a request over a good wire.
func (w *wired) retry() (idempotent.Outcome[string], error) {
	return w.do(w.t.Context(), w.db.store(w.t))
}

func (w *wired) want(ok bool, format string, args ...any) {
	w.t.Helper()
	if !ok {
		w.t.Errorf(format, args...)
	}
}

func onBoth(t *testing.T, f func(t *testing.T, db database)) {
	for _, db := range []database{local, cloud} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			f(t, db)
		})
	}
}

func TestFM01_InsertReplyLostOnTheWire(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, only(cut, 1))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored && !out.Replayed, "A got %+v and error %v, want its own stored result", out, err)
		w.want(w.wire.sent == 3, "%d requests, want 3: the insert twice, the completion", w.wire.sent)
		out, err = w.retry()
		w.want(err == nil && out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want the replay", out, err, w.runs)
	})
}

func TestFM02_EveryReplyLostOnTheWire(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, func(int) fault { return cut })
		_, err := w.faulty(2 * time.Second)
		w.want(errors.Is(err, idempotent.ErrStore) && w.runs == 0, "A got error %v after %d runs, want ErrStore and none", err, w.runs)
		// The release was applied, though its reply was lost as well.
		out, err := w.retry()
		w.want(err == nil && !out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want it to run", out, err, w.runs)
	})
}

func TestFM08_CompletionReplyLostOnTheWire(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, only(cut, 2))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored, "A got %+v and error %v, want its stored result", out, err)
		out, err = w.retry()
		w.want(err == nil && out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want the replay", out, err, w.runs)
	})
}

func TestFM09_CompletionThrottled(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, func(n int) fault {
			if n == 1 {
				return nil
			}
			return refuse("ProvisionedThroughputExceededException")
		})
		out, err := w.faulty(2 * time.Second)
		w.want(err == nil && out.Value == "ch_1" && !out.Stored, "A got %+v and error %v, want its result, not stored", out, err)
		w.want(w.wire.sent >= 3, "%d requests: the completion was not tried again", w.wire.sent)
		_, err = w.retry()
		w.want(errors.Is(err, idempotent.ErrInProgress), "B got error %v, want ErrInProgress", err)
		w.clock.Advance(time.Minute)
		_, err = w.retry()
		w.want(errors.Is(err, idempotent.ErrUnresolved) && w.runs == 1, "B got error %v after %d runs, want ErrUnresolved", err, w.runs)
	})
}

func TestFM22_TransactionConflictOnTheWire(t *testing.T) { conflict(t, "TransactionConflictException") }
func TestFM23_ReplicatedWriteConflictOnTheWire(t *testing.T) {
	conflict(t, "ReplicatedWriteConflictException")
}

// conflict lets the insert and the completion meet conflicts, which the SDK
// tries once only.
func conflict(t *testing.T, exception string) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, only(refuse(exception), 1, 2, 4))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored && w.runs == 1, "A got %+v and error %v after %d runs, want its stored result", out, err, w.runs)
		w.want(w.wire.sent == 5, "%d requests, want 5: three for the insert, two for the completion", w.wire.sent)
	})
}

func TestFM24_ThrottledForLongerThanTheTime(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, func(int) fault { return refuse("ThrottlingException") })
		const timeout = 1500 * time.Millisecond
		start := time.Now()
		_, err := w.faulty(timeout)
		took := time.Since(start)
		w.want(errors.Is(err, idempotent.ErrStore) && w.runs == 0, "A got error %v after %d runs, want ErrStore and none", err, w.runs)
		w.want(w.wire.sent > 1, "the insert was not tried again")
		w.want(took < timeout+500*time.Millisecond, "it took %s of %s", took, timeout)
		out, err := w.retry()
		w.want(err == nil && !out.Replayed, "B got %+v and error %v, want it to run", out, err)
	})
}

// The test's own tool: a reply that is cut was applied before.
func TestCutIsApplied(t *testing.T) {
	t.Parallel()
	w := newWired(t, local, only(cut, 1))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, *local.cfg.BaseEndpoint, bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.wire.RoundTrip(req); !errors.Is(err, errReset) {
		t.Errorf("got error %v, want a reset connection", err)
	}
}
