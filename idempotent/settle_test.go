package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

func refer(t *testing.T, ctx context.Context, ref string) {
	t.Helper()
	e, _ := idempotent.FromContext(ctx)
	if err := e.SetRef(ref); err != nil {
		t.Error(err)
	}
}

// The reference that a run sets stays until another run sets one.
func TestReferenceOutlivesTheRun(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, _ := newGuardOver(t, s)
	for _, ref := range []string{"orders/1", "", "orders/2"} {
		idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			if ref != "" {
				refer(t, ctx, ref)
			}
			return "", idempotent.NotExecuted(errors.New("busy"))
		})
		want := ref
		if want == "" {
			want = "orders/1"
		}
		if got := s.record(t, key).Ref; got != want {
			t.Errorf("after a run that set %q the record has %q, want %q", ref, got, want)
		}
	}
	_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		refer(t, ctx, strings.Repeat("r", 1024)) // the maximum length
		return "", nil
	})
	if err != nil {
		t.Error(err)
	}
}

// FM62: an owner whose record was marked meanwhile writes its outcome over the
// current record. Other parties' changes stay, except for what this run must set.
func TestFM62_LateOutcomeKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", "orders/1"} {
		s, key, clock := watch(), newKey(), &idempotenttest.Clock{}
		g, events := newGuardOver(t, s, func(o *idempotent.Options) { o.Now = clock.Now })
		var late time.Time
		s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
			s.replace = nil
			clock.Advance(time.Minute)
			late = clock.Now()
			return s.change(t, key, func(r *driver.Record) {
				r.State, r.Ref, r.ReconcileAttempts, r.Extra = driver.StateUnknown, "orders/other", 3, "later"
			}), nil
		}
		out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
			if own != "" {
				refer(t, ctx, own)
			}
			return "ch_1", nil
		})
		if err != nil || !out.Stored || events.Count(event.LateCompletion) != 1 {
			t.Errorf("got %+v, error %v and events %v", out, err, events.Kinds())
		}
		want := own
		if want == "" {
			want = "orders/other"
		}
		r := s.record(t, key)
		if r.State != driver.StateCompleted || r.Ref != want || r.ReconcileAttempts != 0 || r.Extra != "later" {
			t.Errorf("the record is %+v, want it completed for %q, with what a later version wrote and nothing left to reconcile", r, want)
		}
		if r.Settled.Before(late.Truncate(time.Millisecond)) {
			t.Errorf("settled at %v, want the time of the write that succeeded, %v", r.Settled, late)
		}
	}
}

// A write id is reused only if it cannot have been applied and replaced before
// the reply came, which is true for completions.
func TestWriteIDsOfLaterRounds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		same bool
	}{
		"completed": {nil, true},
		"final":     {idempotent.Final("declined", ""), true},
		"retryable": {idempotent.NotExecuted(errors.New("busy")), false},
	} {
		s, key := watch(), newKey()
		ids := s.interrupted(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
		g, _ := newGuardOver(t, s)
		idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", row.err })
		if len(*ids) != 2 || ((*ids)[0] == (*ids)[1]) != row.same {
			t.Errorf("%s: the outcome was written under %x; want twice, and the same id: %v", name, *ids, row.same)
		}
	}
}

// An owner that finds the record as it would write it writes nothing.
func TestAgreedOutcomeIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, events := newGuardOver(t, s)
	var swept *driver.Record
	idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) {
		swept = s.change(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
		return "", errors.New("no reply")
	})
	if r := s.record(t, key); r.Version != swept.Version || events.Count(event.LateCompletion) != 0 || events.Count(event.CompletionFailed) != 0 {
		t.Errorf("the record is %+v, events %v; want what the sweeper wrote", r, events.Kinds())
	}
	wantCalls(t, s, "insert", "replace")
}

// If the store cannot hold the outcome even without its result, the guard does
// not try again.
func TestTooLargeWithoutItsResult(t *testing.T) {
	t.Parallel()
	s := watch()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		return nil, driver.ErrTooLarge
	}
	g, events := newGuardOver(t, s)
	out, err := idempotent.DoOutcome(t.Context(), g, newKey(), charged)
	if err != nil || out.Value != "ch_1" || out.Stored || events.Count(event.CompletionFailed) != 2 {
		t.Errorf("got %+v, error %v and events %v", out, err, events.Kinds())
	}
	wantCalls(t, s, "insert", "replace", "replace")
}

// The hint is for errors that leave a record unknown, not for those that let it
// run again.
func TestNoHintWhereNothingIsUnknown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, _ := newGuard(t, func(o *idempotent.Options) {
		o.Recovery, o.Logger = idempotent.Rerun, slog.New(slog.NewTextHandler(&log, nil))
	})
	idempotent.Do(t.Context(), g, newKey(), func(context.Context) (string, error) { return "", errors.New("x") })
	if log.Len() != 0 {
		t.Errorf("got log %q", &log)
	}
}
