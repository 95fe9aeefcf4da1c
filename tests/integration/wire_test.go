package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// wired sends one key through two guards: one over a faulty wire, with the real
// SDK between the store and the faults, and one over a good wire.
type wired struct {
	t     *testing.T
	db    database
	key   idempotent.Key
	wire  *idempotenttest.Faults
	runs  int
	clock *idempotenttest.Clock
}

func newWired(t *testing.T, db database, plan idempotenttest.Plan) *wired {
	return &wired{t: t, db: db, key: newKey(), wire: &idempotenttest.Faults{Plan: plan}, clock: &idempotenttest.Clock{}}
}

// sent counts the requests that the SDK sent over the faulty wire.
func (w *wired) sent() int { return w.wire.Calls("") }

func (w *wired) guard(s driver.Store) *idempotent.Guard {
	w.t.Helper()
	g, err := idempotent.New(s, func(o *idempotent.Options) { o.Now = w.clock.Now })
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *wired) do(ctx context.Context, s driver.Store) (idempotent.Outcome[string], error) {
	return idempotent.DoOutcome(ctx, w.guard(s), w.key, func(context.Context) (string, error) {
		w.runs++
		return "ch_1", nil
	})
}

// faulty sends a request over the faulty wire with the given time.
func (w *wired) faulty(timeout time.Duration) (idempotent.Outcome[string], error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), timeout)
	defer cancel()
	return w.do(ctx, w.db.over(w.t, w.wire))
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
		w := newWired(t, db, idempotenttest.On("", idempotenttest.LostReply, 1))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored && !out.Replayed, "A got %+v and error %v, want its own stored result", out, err)
		w.want(w.sent() == 3, "%d requests, want 3: the insert twice, the completion", w.sent())
		out, err = w.retry()
		w.want(err == nil && out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want the replay", out, err, w.runs)
	})
}

func TestFM02_EveryReplyLostOnTheWire(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, idempotenttest.On("", idempotenttest.LostReply))
		_, err := w.faulty(2 * time.Second)
		w.want(errors.As(err, new(*idempotent.StoreError)) && w.runs == 0, "A got error %v after %d runs, want StoreError and no run", err, w.runs)
		// The release was applied, although its reply was lost as well.
		out, err := w.retry()
		w.want(err == nil && !out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want it to run", out, err, w.runs)
	})
}

func TestFM08_CompletionReplyLostOnTheWire(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, idempotenttest.On("", idempotenttest.LostReply, 2))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored, "A got %+v and error %v, want its stored result", out, err)
		out, err = w.retry()
		w.want(err == nil && out.Replayed && w.runs == 1, "B got %+v and error %v after %d runs, want the replay", out, err, w.runs)
	})
}

func TestFM09_CompletionThrottled(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, func(c idempotenttest.Call) idempotenttest.Fault {
			if c.N == 1 {
				return idempotenttest.NoFault
			}
			return idempotenttest.ThroughputExceeded
		})
		out, err := w.faulty(2 * time.Second)
		w.want(err == nil && out.Value == "ch_1" && !out.Stored, "A got %+v and error %v, want its result, not stored", out, err)
		w.want(w.sent() >= 3, "%d requests: the completion was not retried", w.sent())
		_, err = w.retry()
		w.want(errors.As(err, new(*idempotent.InProgressError)), "B got error %v, want InProgressError", err)
		w.clock.Advance(time.Minute)
		_, err = w.retry()
		w.want(errors.As(err, new(*idempotent.UnresolvedError)) && w.runs == 1, "B got error %v after %d runs, want UnresolvedError", err, w.runs)
	})
}

func TestFM22_TransactionConflictOnTheWire(t *testing.T) {
	conflict(t, idempotenttest.TransactionConflict)
}

func TestFM23_ReplicatedWriteConflictOnTheWire(t *testing.T) {
	conflict(t, idempotenttest.ReplicatedWriteConflict)
}

// conflict makes the insert and the completion get conflicts, which the SDK
// retries only once.
func conflict(t *testing.T, exception idempotenttest.Fault) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, idempotenttest.On("", exception, 1, 2, 4))
		out, err := w.faulty(10 * time.Second)
		w.want(err == nil && out.Stored && w.runs == 1, "A got %+v and error %v after %d runs, want its stored result", out, err, w.runs)
		w.want(w.sent() == 5, "%d requests, want 5: three for the insert, two for the completion", w.sent())
	})
}

func TestFM24_ThrottledForLongerThanTheTime(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w := newWired(t, db, idempotenttest.On("", idempotenttest.Throttled))
		const timeout = 1500 * time.Millisecond
		start := time.Now()
		_, err := w.faulty(timeout)
		took := time.Since(start)
		w.want(errors.As(err, new(*idempotent.StoreError)) && w.runs == 0, "A got error %v after %d runs, want StoreError and no run", err, w.runs)
		w.want(w.sent() > 1, "the insert was not retried")
		w.want(took < timeout+500*time.Millisecond, "it took %s of %s", took, timeout)
		out, err := w.retry()
		w.want(err == nil && !out.Replayed, "B got %+v and error %v, want it to run", out, err)
	})
}
