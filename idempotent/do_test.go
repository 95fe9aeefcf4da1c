// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// F31, F32, F33, F38, F39, G03: the record after a handler's error, by recovery,
// and whether the key runs again.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	for _, row := range []struct {
		name     string
		recovery idempotent.Recovery
		err      error
		state    driver.State
		reason   driver.Reason
		next     string // what a retry gets
	}{
		{"result", idempotent.Reconcile, nil, driver.StateCompleted, driver.ReasonResult, "replay"},
		{"plain", idempotent.Reconcile, plain, driver.StateUnknown, driver.ReasonHandlerError, "unresolved"},
		{"plain", idempotent.Rerun, plain, driver.StateRetryable, driver.ReasonHandlerError, "run"},
		{"NotExecuted", idempotent.Reconcile, idempotent.NotExecuted(plain), driver.StateRetryable, driver.ReasonNotExecuted, "run"},
		{"NotExecuted", idempotent.Rerun, idempotent.NotExecuted(plain), driver.StateRetryable, driver.ReasonNotExecuted, "run"},
		{"NotExecuted without a cause", idempotent.Reconcile, idempotent.NotExecuted(nil), driver.StateRetryable, driver.ReasonNotExecuted, "run"},
		{"Unknown", idempotent.Reconcile, idempotent.Unknown(plain), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
		{"Unknown", idempotent.Rerun, idempotent.Unknown(plain), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
		{"Final", idempotent.Reconcile, idempotent.Final("declined", "no funds"), driver.StateCompleted, driver.ReasonFinal, "replay"},
		{"Final", idempotent.Rerun, idempotent.Final("declined", "no funds"), driver.StateCompleted, driver.ReasonFinal, "replay"},
		// A helper deep inside cannot prove for the whole operation that nothing
		// happened, but it can declare that the outcome is unknown.
		{"wrapped NotExecuted", idempotent.Reconcile, fmt.Errorf("w: %w", idempotent.NotExecuted(plain)), driver.StateUnknown, driver.ReasonHandlerError, "unresolved"},
		{"joined NotExecuted", idempotent.Reconcile, errors.Join(idempotent.NotExecuted(plain), plain), driver.StateUnknown, driver.ReasonHandlerError, "unresolved"},
		{"NotExecuted around Unknown", idempotent.Reconcile, idempotent.NotExecuted(idempotent.Unknown(plain)), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
		{"wrapped Final", idempotent.Reconcile, fmt.Errorf("w: %w", idempotent.Final("c", "m")), driver.StateCompleted, driver.ReasonFinal, "replay"},
		{"joined Final", idempotent.Reconcile, errors.Join(idempotent.Final("c", "m"), plain), driver.StateUnknown, driver.ReasonHandlerError, "unresolved"},
		{"wrapped Unknown", idempotent.Rerun, fmt.Errorf("w: %w", idempotent.Unknown(plain)), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
		{"joined Unknown", idempotent.Rerun, errors.Join(plain, idempotent.Unknown(plain)), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
		{"Unknown around Final", idempotent.Rerun, idempotent.Unknown(idempotent.Final("c", "m")), driver.StateUnknown, driver.ReasonUnknown, "unresolved"},
	} {
		t.Run(row.name+"_"+row.recovery.String(), func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Recovery = row.recovery })
			key := newKey()
			out, err := idempotent.DoOutcome(t.Context(), g, key, func(context.Context) (string, error) { return "ch_1", row.err })
			if err != row.err {
				t.Fatalf("got error %v, want the handler's own %v", err, row.err)
			}
			if out.Replayed || out.Stored != (row.state == driver.StateCompleted) || out.RecordID != key.RecordID() {
				t.Errorf("got %+v", out)
			}
			r, err := s.Get(t.Context(), key.RecordID())
			if err != nil || r.State != row.state || r.Reason != row.reason || r.Recovery != row.recovery {
				t.Errorf("the record is %+v (%v), want %s for %s", r, err, row.state, row.reason)
			}
			ran := false
			out, err = idempotent.DoOutcome(t.Context(), g, key, func(context.Context) (string, error) {
				ran = true
				return "ch_2", nil
			})
			switch row.next {
			case "run":
				if !ran || err != nil || out.Value != "ch_2" {
					t.Errorf("the retry got %+v and error %v, want it to run", out, err)
				}
			case "unresolved":
				if ran || !errors.As(err, new(*idempotent.UnresolvedError)) {
					t.Errorf("the retry got %+v and error %v, want UnresolvedError", out, err)
				}
			case "replay":
				if ran || !out.Replayed || !out.Stored {
					t.Errorf("the retry got %+v and error %v, want a replay", out, err)
				}
				var want, final *idempotent.FinalError
				if errors.As(row.err, &want) && (!errors.As(err, &final) || *final != *want) {
					t.Errorf("the retry got error %v, want an equal Final error", err)
				}
			}
		})
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, row := range []struct {
		err  error
		want string
	}{
		{idempotent.NotExecuted(cause), "cause"},
		{idempotent.NotExecuted(nil), "idempotent: not executed"},
		{idempotent.Unknown(cause), "cause"},
		{idempotent.Unknown(nil), "idempotent: outcome unknown"},
		{idempotent.Final("declined", "no funds"), "declined: no funds"},
		{&idempotent.SettledError{RecordID: "charge#AAAAAAAAAAAAAAAA", State: driver.StateCompleted}, "idempotent: charge#AAAAAAAAAAAA: the record is already completed with another outcome"},
		{&idempotent.UnresolvedError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the outcome of an earlier request is unknown; the key does not run again until evidence settles the outcome"},
		{&idempotent.LeaseLostError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: this run no longer owns the record: it was taken over, settled by another party, or removed; this result is not stored"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is gone"}, "idempotent: charge#AAAA: the request is completed, but its result cannot be replayed: it is gone"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is old", Uncompared: true}, "idempotent: charge#AAAA: the key was used before, and its record cannot be compared with this request: it is old"},
		{&idempotent.SettledError{RecordID: "charge#AAAA", Step: "pay"}, `idempotent: charge#AAAA: step "pay" already has another recorded result; use CorrectedStep if that result is wrong`},
		{&idempotent.InvalidKeyError{Field: "Scope", Problem: "is empty"}, "idempotent: invalid Scope: is empty"},
		{&idempotent.InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: cause}, "idempotent: invalid Fingerprint: cannot be computed: cause"},
		{&idempotent.NoTimeError{Remaining: -time.Second, Err: context.Canceled}, "idempotent: the handler was not executed: -1s left before the deadline (context canceled); a retry is safe"},
		{&idempotent.MismatchError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the key was used for a different request; send a new key, or repeat the first request unchanged"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpInsert, Err: cause}, "idempotent: charge#AAAA: store: insert failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpOpen, Err: cause}, "idempotent: charge#AAAA: Options.Seal: open failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpSeal, Err: cause, Entered: true}, "idempotent: charge#AAAA: Options.Seal: seal failed: cause; the handler was entered, and its outcome may not be stored"},
		{&idempotent.StoreError{Op: driver.OpListDue, Err: cause}, "idempotent: store: list_due failed: cause"},
		{&idempotent.StepError{Step: "ship", Problem: "it was not declared"}, `idempotent: step "ship": it was not declared`},
		{&idempotent.StepError{Step: "ship", Problem: "the result cannot be recorded", Err: cause}, `idempotent: step "ship": the result cannot be recorded: cause`},
		{&idempotent.InProgressError{RecordID: "x", RetryAfter: 1_500_400 * time.Microsecond, Until: time.Date(2040, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))},
			"idempotent: #: another request with this key is in progress; retry after 1.5s; its lease ends at 2040-01-02T02:04:05Z"},
	} {
		if got := row.err.Error(); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
	for _, err := range []error{idempotent.NotExecuted(cause), idempotent.Unknown(cause), &idempotent.StoreError{Err: cause}, &idempotent.LeaseLostError{Err: cause}, &idempotent.NoTimeError{Err: cause}, &idempotent.InvalidKeyError{Err: cause}} {
		if !errors.Is(err, cause) {
			t.Errorf("%T does not unwrap to its cause", err)
		}
	}
}

// F44: the handler's context ends before the deadline, and its downstream key
// differs for every record.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	key := newKey()
	_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (int, error) {
		if d, _ := ctx.Deadline(); !d.Equal(deadline.Add(-500 * time.Millisecond)) {
			t.Errorf("the handler's context ends at %v, want half a second before %v", d, deadline)
		}
		e, ok := idempotent.FromContext(ctx)
		if !ok || e.RecordID() != key.RecordID() || e.Attempt() != 1 {
			t.Errorf("got execution %+v, %v", e, ok)
		}
		if got := idempotent.DownstreamKey(ctx); got != key.RecordID().DownstreamKey() || !strings.HasPrefix(got, "once-") || len(got) != 48 {
			t.Errorf("got downstream key %q", got)
		}
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if one, two := idempotent.DownstreamKey(ctx), idempotent.DownstreamKey(ctx); one == two || one == "" {
		t.Error("outside an execution two downstream keys are equal")
	}
	if key.RecordID().DownstreamKey() == newKey().RecordID().DownstreamKey() {
		t.Error("two records share a downstream key")
	}
}

// A request that is canceled while its handler runs is settled all the same.
func TestCancelledRequestIsSettled(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	ctx, cancel := context.WithCancel(t.Context())
	key := newKey()
	out, err := idempotent.DoOutcome(ctx, g, key, func(context.Context) (string, error) {
		cancel()
		return "ch_1", nil
	})
	if err != nil || !out.Stored {
		t.Fatalf("got %+v and error %v, want a stored result", out, err)
	}
}

// If the context ends while the key is being claimed, the handler is not entered.
func TestCancelledWhileClaiming(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := idempotenttest.Intercept(memstore.New(), func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Op == driver.OpInsert {
			cancel()
		}
	})
	g, _ := newGuardOver(t, s)
	key := newKey()
	_, err := idempotent.Do(ctx, g, key, func(context.Context) (int, error) {
		t.Error("the handler was entered")
		return 0, nil
	})
	if !errors.As(err, new(*idempotent.NoTimeError)) || !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want NoTimeError for the canceled context", err)
	}
	if r, err := s.Get(t.Context(), key.RecordID()); err != nil || r.State != driver.StateRetryable || r.Reason != driver.ReasonNoTime {
		t.Errorf("the record is %+v (%v), want it retryable", r, err)
	}
}

func TestSetRef(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s)
	key := newKey()
	var leaked *idempotent.Execution
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		leaked, _ = idempotent.FromContext(ctx)
		if err := leaked.SetRef(strings.Repeat("x", 1025)); err == nil {
			t.Error("a reference of 1,025 bytes was accepted")
		}
		if err := leaked.SetRef("\xff"); err == nil {
			t.Error("a reference that is not UTF-8 was accepted")
		}
		longest := strings.Repeat("x", 1024)
		err := leaked.SetRef(longest)
		if _, stepErr := idempotent.Step(ctx, "s", charged); stepErr != nil || record(t, s, key).Ref != longest {
			t.Errorf("after a step: %v, the reference is %q", stepErr, record(t, s, key).Ref)
		}
		return 0, errors.Join(err, leaked.SetRef("orders/7"), errors.New("no reply"))
	})
	if err == nil {
		t.Fatal("got no error")
	}
	// FM64's rule holds for every method of an execution: a goroutine that the
	// handler left behind changes nothing.
	if err := leaked.SetRef("orders/8"); !errors.Is(err, idempotent.ErrExecutionEnded) {
		t.Errorf("after the outcome: got error %v, want ErrExecutionEnded", err)
	}
	_, err = idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 0, nil })
	var unresolved *idempotent.UnresolvedError
	if !errors.As(err, &unresolved) || unresolved.Ref != "orders/7" || unresolved.RetryAfter <= 59*time.Second || unresolved.RetryAfter > time.Minute {
		t.Errorf("got error %#v, want the reference and a minute to wait", err)
	}
}

// An adapter gets the expiry and the reference of a stored outcome, and neither
// for any other outcome.
func TestOutcomeSaysHowLongItStands(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s)
	for _, err := range []error{nil, idempotent.Final("declined", ""), idempotent.NotExecuted(nil)} {
		key := newKey()
		for _, replayed := range []bool{false, true} {
			out, _ := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (int, error) {
				e, _ := idempotent.FromContext(ctx)
				return 1, cmp.Or(e.SetRef("orders/7"), err)
			})
			want, ref := time.Time{}, ""
			if _, lost := err.(*idempotent.NotExecutedError); !lost {
				r, getErr := s.Get(t.Context(), key.RecordID())
				if getErr != nil {
					t.Fatal(getErr)
				}
				want, ref = r.Expires, "orders/7"
				if out.Replayed != replayed || want.IsZero() {
					t.Errorf("%v: replayed %t until %s", err, out.Replayed, want)
				}
			}
			if !out.Expires.Equal(want) || out.Ref != ref {
				t.Errorf("%v: the outcome expires %s and has the reference %q, want %s and %q", err, out.Expires, out.Ref, want, ref)
			}
		}
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	incompressible := make([]byte, 100_000)
	rand.New(rand.NewSource(1)).Read(incompressible)
	for name, row := range map[string]struct {
		value    []byte
		encoding string
		maxBytes int
	}{
		"small":          {[]byte("ch_1"), "json", 10},
		"at the limit":   {bytes.Repeat([]byte{0}, 765), "json", 1024},
		"compressible":   {bytes.Repeat([]byte{0}, 100_000), "json+br", 1000},
		"incompressible": {incompressible, "json+br", 110_000}, // base64 in JSON still compresses
	} {
		s := memstore.New()
		g, _ := newGuardOver(t, s)
		key := newKey()
		for range 2 {
			got, err := idempotent.Do(t.Context(), g, key, func(context.Context) ([]byte, error) { return row.value, nil })
			if err != nil || !bytes.Equal(got, row.value) {
				t.Errorf("%s: got %d bytes and error %v", name, len(got), err)
			}
		}
		if r, _ := s.Get(t.Context(), key.RecordID()); r.Encoding != row.encoding || len(r.Result) > row.maxBytes {
			t.Errorf("%s: stored as %s in %d bytes, want %s in at most %d", name, r.Encoding, len(r.Result), row.encoding, row.maxBytes)
		}
	}
}

// raw is a codec that stores text unchanged.
type raw struct{}

func (raw) Name() string                 { return "raw" }
func (raw) Encode(v any) ([]byte, error) { return []byte(v.(string)), nil }
func (raw) Decode(b []byte, v any) error { *v.(*string) = string(b); return nil }

// Compression that does not save space is not used.
func TestIncompressibleResult(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Codec = raw{} })
	noise := make([]byte, 5000)
	rand.New(rand.NewSource(1)).Read(noise)
	key := newKey()
	for range 2 {
		if got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return string(noise), nil }); err != nil || got != string(noise) {
			t.Fatalf("got %d bytes and error %v", len(got), err)
		}
	}
	if r, _ := s.Get(t.Context(), key.RecordID()); r.Encoding != "raw" || !bytes.Equal(r.Result, noise) {
		t.Errorf("stored as %s in %d bytes, want the bytes themselves", r.Encoding, len(r.Result))
	}
}

type panics struct{ raw }

func (panics) Encode(any) ([]byte, error) { panic("encode") }

// G09: a result that cannot be stored does not fail the caller, and its replay
// returns ReplayUnavailableError instead of running again.
func TestResultOmitted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		store  driver.Store
		option func(*idempotent.Options)
		value  any
	}{
		"not encodable":   {memstore.New(), func(*idempotent.Options) {}, math.NaN()},
		"codec panics":    {memstore.New(), func(o *idempotent.Options) { o.Codec = panics{} }, "x"},
		"store too small": {small(memstore.New(), 100), func(*idempotent.Options) {}, strings.Repeat("x", 101)},
	} {
		g, events := newGuardOver(t, row.store, row.option)
		key := newKey()
		runs := 0
		do := func() (idempotent.Outcome[any], error) {
			return idempotent.DoOutcome(t.Context(), g, key, func(context.Context) (any, error) { runs++; return row.value, nil })
		}
		out, err := do()
		if err != nil || fmt.Sprint(out.Value) != fmt.Sprint(row.value) {
			t.Errorf("%s: the caller got %+v and error %v, want its value", name, out, err)
		}
		var unavailable *idempotent.ReplayUnavailableError
		if _, err = do(); !errors.As(err, &unavailable) || !errors.As(err, new(*idempotent.ReplayUnavailableError)) || runs != 1 {
			t.Errorf("%s: the retry got error %v after %d runs, want ReplayUnavailableError", name, err, runs)
		}
		r, err := row.store.Get(t.Context(), key.RecordID())
		if err != nil || r.State != driver.StateCompleted || r.Encoding != driver.EncodingOmitted || r.Reason != driver.ReasonOmitted || r.Result != nil {
			t.Errorf("%s: the record is %+v (%v)", name, r, err)
		}
		if events.Count(event.CompletionFailed) != 1 || events.Count(event.ReplayFailed) != 1 {
			t.Errorf("%s: got events %v", name, events.Kinds())
		}
	}
}

// A result that was omitted is not reported as stored.
func TestOmittedIsNotStored(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	out, err := idempotent.DoOutcome(t.Context(), g, newKey(), func(context.Context) (float64, error) { return math.Inf(1), nil })
	if err != nil || out.Stored {
		t.Errorf("got %+v and error %v, want a value that is not stored", out, err)
	}
}

// A Final error that the store does not take is not reported as stored.
func TestFinalIsNotStored(t *testing.T) {
	t.Parallel()
	declined := idempotent.Final("declined", "")
	g, events := newGuardOver(t, failing(memstore.New(), driver.OpReplace, errDown))
	key := newKey()
	out, err := idempotent.DoOutcome(t.Context(), g, key, func(context.Context) (string, error) { return "", declined })
	if err != declined || out != (idempotent.Outcome[string]{RecordID: key.RecordID()}) || events.Count(event.CompletionFailed) != 1 {
		t.Errorf("got %+v and error %v, events %s", out, err, events.Kinds())
	}
}

// A stored result that does not fit is refused, never replayed as zero values.
func TestReplayUnavailable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Record){
		"other codec":   func(r *driver.Record) { r.Encoding = "xml" },
		"altered JSON":  func(r *driver.Record) { r.Result = []byte(`{"ID":`) },
		"trailing data": func(r *driver.Record) { r.Result = append(r.Result, "{}"...) },
		"other type":    func(r *driver.Record) { r.Result = []byte(`[1]`) },
		"not packed":    func(r *driver.Record) { r.Encoding = "json+br" },
		"truncated":     func(r *driver.Record) { r.Encoding, r.Result = "json+br", []byte("\x00\x00\x00\x00\x8b") },
		"damaged Final": func(r *driver.Record) { r.Encoding, r.Result = "final", []byte(`{`) },
		"no encoding":   func(r *driver.Record) { r.Encoding = "" },
		"later version": func(r *driver.Record) { r.Fingerprint[0]++ },
	} {
		s := memstore.New()
		g, events := newGuardOver(t, s)
		key := newKey()
		do := func() (chargeResponse, error) {
			return idempotent.Do(t.Context(), g, key, func(context.Context) (chargeResponse, error) { return chargeResponse{ID: "ch_1"}, nil })
		}
		if _, err := do(); err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		if met, err := s.Replace(t.Context(), *r, r.Version); met != nil || err != nil {
			t.Fatal(met, err)
		}
		got, err := do()
		if !errors.As(err, new(*idempotent.ReplayUnavailableError)) || got.ID != "" {
			t.Errorf("%s: got %+v and error %v, want ReplayUnavailableError and no value", name, got, err)
		}
		if events.Count(event.ReplayFailed) != 1 {
			t.Errorf("%s: got events %v", name, events.Kinds())
		}
	}
}

// Fail closed: a record in a state that this code does not know does not run.
func TestUnreadableState(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s)
	key := newKey()
	r := driver.Record{ID: key.RecordID(), State: 9, Fingerprint: idempotenttest.StoredFingerprint(key)}
	if _, err := s.Insert(t.Context(), r, time.Now()); err != nil {
		t.Fatal(err)
	}
	_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) {
		t.Error("the handler was entered")
		return 0, nil
	})
	if !errors.As(err, new(*idempotent.StoreError)) || !strings.Contains(err.Error(), "State(9)") {
		t.Errorf("got error %v, want StoreError about State(9)", err)
	}
}

// The claim gives up on a record that changes at every attempt: the handler does
// not run, and the claim ends.
func TestContention(t *testing.T) {
	t.Parallel()
	key := newKey()
	for name, row := range map[string]struct {
		standing driver.Record
		writes   int // in eight rounds
	}{
		"always retryable": {driver.Record{State: driver.StateRetryable}, 1 + 8},
		"always expired":   {driver.Record{State: driver.StateCompleted, Expires: time.Unix(1, 0)}, 8},
		"always ended":     {driver.Record{State: driver.StateInProgress}, 1 + 8},
	} {
		row.standing.ID, row.standing.Fingerprint = key.RecordID(), idempotenttest.StoredFingerprint(key)
		writes := 0
		g, events := newGuardOver(t, idempotenttest.Intercept(memstore.New(), func(_ context.Context, c *idempotenttest.StoreCall) {
			c.Current = row.standing.Clone()
			if c.Op != driver.OpGet {
				writes++
			}
		}))
		_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) {
			t.Error("the handler was entered")
			return 0, nil
		})
		if !errors.As(err, new(*idempotent.StoreError)) || writes != row.writes || events.Count(event.StoreError) != 1 {
			t.Errorf("%s: got error %v after %d writes, want StoreError after %d; events %v", name, err, writes, row.writes, events.Kinds())
		}
	}
}

// The guard gives up writing an outcome whose record changes at every attempt;
// the caller gets its value.
func TestOutcomeContention(t *testing.T) {
	t.Parallel()
	s, standing := memstore.New(), (*driver.Record)(nil)
	g, events := newGuardOver(t, idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if standing == nil {
			c.Do(ctx)
			return
		}
		c.Current = standing.Clone()
	}))
	key := newKey()
	out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
		r, err := s.Get(ctx, key.RecordID())
		if err != nil {
			return "", err
		}
		r.State, r.Version = driver.StateUnknown, driver.Version{1}
		standing = r
		return "ch_1", nil
	})
	if err != nil || out.Value != "ch_1" || out.Stored {
		t.Errorf("got %+v and error %v, want the value, not stored", out, err)
	}
	if events.Count(event.CompletionFailed) != 1 {
		t.Errorf("got events %v", events.Kinds())
	}
}

// F80: every store failure before the handler fails closed.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	down := errors.New("store down")
	ended := driver.Record{State: driver.StateInProgress, LeaseEnd: time.Unix(1, 0)}
	retryable := driver.Record{State: driver.StateRetryable}
	for name, row := range map[string]struct {
		op       driver.Op
		err      error
		existing *driver.Record
	}{
		"insert":           {driver.OpInsert, down, nil},
		"insert too large": {driver.OpInsert, driver.ErrTooLarge, nil},
		"takeover":         {driver.OpReplace, down, &retryable},
		"mark unknown":     {driver.OpReplace, down, &ended},
	} {
		s, key, calls := memstore.New(), newKey(), 0
		if row.existing != nil {
			r := *row.existing
			r.ID, r.Fingerprint = key.RecordID(), idempotenttest.StoredFingerprint(key)
			if _, err := s.Insert(t.Context(), r, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		g, events := newGuardOver(t, idempotenttest.Intercept(failing(s, row.op, row.err), func(ctx context.Context, c *idempotenttest.StoreCall) {
			calls++
			c.Do(ctx)
		}))
		_, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) {
			t.Errorf("%s: the handler was entered", name)
			return 0, nil
		})
		var failed *idempotent.StoreError
		if row.err == driver.ErrTooLarge && calls != 1 {
			t.Errorf("%s: %d calls, want no release because nothing was written", name, calls)
		}
		if !errors.As(err, &failed) || !errors.Is(err, row.err) || failed.Op != row.op || failed.Entered || !errors.As(err, new(*idempotent.StoreError)) || events.Count(event.StoreError) == 0 {
			t.Errorf("%s: got error %v, events %v", name, err, events.Kinds())
		}
	}
}

// A record that is physically deleted between the read and the takeover, or
// before it is marked unknown, is inserted again.
func TestRecordDeletedWhileClaiming(t *testing.T) {
	t.Parallel()
	for _, existing := range []driver.Record{
		{State: driver.StateRetryable},
		{State: driver.StateInProgress, LeaseEnd: time.Unix(1, 0)},
	} {
		key := newKey()
		existing.ID, existing.Fingerprint = key.RecordID(), idempotenttest.StoredFingerprint(key)
		seen := &existing
		g, _ := newGuardOver(t, answering(memstore.New(), driver.OpInsert, func(driver.Record) (met *driver.Record, err error) {
			met, seen = seen, nil
			return met, nil
		}))
		if got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
			t.Errorf("%s: got %d and error %v, want it to run", existing.State, got, err)
		}
	}
}

func TestHintIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{idempotent.NotExecuted(errors.New("x")), idempotent.Unknown(errors.New("x")), errors.New("secret"), errors.New("secret")} {
		idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) { return 0, err })
		if logged := log.Len() > 0; logged != (i >= 2) {
			t.Errorf("after error %d: got log %q", i, log.String())
		}
	}
	text := log.String()
	if strings.Count(text, "NotExecuted") != 1 || !strings.Contains(text, "operation=charge") || !strings.Contains(text, "*errors.errorString") {
		t.Errorf("got log %q, want the hint once", text)
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the log contains the error's text: %q", text)
	}
}

func TestObserverPanicIsCaught(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	g, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer = event.ObserverFunc(func(context.Context, event.Event) { panic("observer") })
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got, err := idempotent.Do(t.Context(), g, newKey(), func(context.Context) (int, error) { return 7, nil }); got != 7 || err != nil {
		t.Errorf("got %d and error %v", got, err)
	}
	if n := strings.Count(log.String(), "the observer panicked"); n != 3 {
		t.Errorf("%d lines in the log, want one per event: %s", n, &log)
	}
}

func TestEventsCarryFacts(t *testing.T) {
	t.Parallel()
	type requestID struct{}
	g, events := newGuard(t, func(o *idempotent.Options) {
		o.Recovery = idempotent.Rerun
		o.RequestID = func(ctx context.Context) string { return ctx.Value(requestID{}).(string) }
	})
	s := context.WithValue(t.Context(), requestID{}, "req-1")
	key := newKey()
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, idempotent.NotExecuted(errors.New("busy")) }); err == nil {
		t.Fatal("got no error")
	}
	if _, err := idempotent.Do(s, g, key, func(context.Context) (int, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	all := events.Events()
	if got := fmt.Sprint(events.Kinds()); got != "[reserved retryable taken_over completed]" {
		t.Fatalf("got events %s", got)
	}
	for i, e := range all {
		if e.Operation != "charge" || e.KeyHash != key.RecordID().KeyHash() || e.RequestID != "req-1" || e.Recovery != idempotent.Rerun || e.Time.IsZero() || e.Attempt != i/2+1 {
			t.Errorf("event %d has missing fields: %+v", i, e)
		}
	}
	if all[1].Reason != driver.ReasonNotExecuted || all[1].Err == nil {
		t.Errorf("the event has no reason: %+v", all[1])
	}
}

// A refused request is asked to wait as long as the running one has run, at least
// a second, and never longer than until its lease ends. A takeover is a run of
// its own: the time before it does not count.
func TestInProgressSaysHowLong(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		created, since, lease time.Duration // before, before and after the request
		want                  time.Duration
	}{
		"just begun":                  {0, 0, 15 * time.Minute, time.Second},
		"less than a second ago":      {999 * time.Millisecond, 0, 15 * time.Minute, time.Second},
		"a moment more than a second": {1001 * time.Millisecond, 0, 15 * time.Minute, 1001 * time.Millisecond},
		"two minutes ago":             {2 * time.Minute, 0, 15 * time.Minute, 2 * time.Minute},
		"near its end":                {14 * time.Minute, 0, time.Minute, time.Minute},
		"less than a second left":     {0, 0, 300 * time.Millisecond, 300 * time.Millisecond},
		"ahead of this clock":         {-time.Minute, 0, 15 * time.Minute, time.Second},
		"taken over":                  {time.Hour, 3 * time.Second, 15 * time.Minute, 3 * time.Second},
		"taken over just now":         {time.Hour, time.Millisecond, 15 * time.Minute, time.Second},
	} {
		s, key, at := watch(), newKey(), now()
		r := driver.Record{State: driver.StateInProgress, Created: at.Add(-row.created), LeaseEnd: at.Add(row.lease), Ref: "orders/7"}
		if row.since != 0 {
			r.Since = at.Add(-row.since)
		}
		s.holds(t, key, r)
		g, _ := newGuardOver(t, s, fixed(at))
		want := idempotent.InProgressError{RecordID: key.RecordID(), RetryAfter: row.want, Until: at.Add(row.lease), Ref: "orders/7"}
		_, err := idempotent.Do(t.Context(), g, key, forbidden(t))
		webhook := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved("ch_1"))
		for who, err := range map[string]error{"a request": err, "evidence": webhook} {
			var busy *idempotent.InProgressError
			if !errors.As(err, &busy) || *busy != want {
				t.Errorf("%s: %s got %#v, want %#v", name, who, err, want)
			}
		}
	}
}

// The guard writes when a run begins: at the first claim as Created, at a takeover
// as Since.
func TestARunHasABeginning(t *testing.T) {
	t.Parallel()
	s, key, clock := watch(), newKey(), new(idempotenttest.Clock)
	g, _ := newGuardOver(t, s, func(o *idempotent.Options) { o.Now, o.Recovery = clock.Now, idempotent.Rerun })
	run := func(began time.Duration) {
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			clock.Advance(5 * time.Second)
			var busy *idempotent.InProgressError
			_, err := idempotent.Do(ctx, g, key, forbidden(t))
			if wait := 5 * time.Second; !errors.As(err, &busy) || busy.RetryAfter < wait || busy.RetryAfter > wait+time.Second {
				t.Errorf("5 s after a run began %s after the first one, a request got %#v", began, err)
			}
			return "", errors.New("down")
		})
		if err == nil {
			t.Error("no error")
		}
	}
	run(0)
	clock.Advance(time.Hour)
	run(time.Hour)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		f    func(*idempotent.Options)
		says string
	}{
		"retention":       {func(o *idempotent.Options) { o.Retention = -time.Hour }, "Options.Retention"},
		"below a ms":      {func(o *idempotent.Options) { o.LeaseMargin = time.Microsecond }, "at least 1ms"},
		"reserve":         {func(o *idempotent.Options) { o.DeadlineReserve = -1 }, "Options.DeadlineReserve"},
		"lease":           {func(o *idempotent.Options) { o.DefaultLease = time.Second }, "longer than Options.LeaseMargin"},
		"reconcile after": {func(o *idempotent.Options) { o.ReconcileAfter = -1 }, "Options.ReconcileAfter"},
		"cache age":       {func(o *idempotent.Options) { o.CacheAge = -1 }, "Options.CacheAge"},
		"cache entries":   {func(o *idempotent.Options) { o.CacheEntries = -1 }, "CacheEntries"},
		"cache bytes":     {func(o *idempotent.Options) { o.CacheBytes = -1 }, "CacheBytes"},
		"wait":            {func(o *idempotent.Options) { o.WaitFor = -1 }, "WaitFor"},
		"unresolved":      {func(o *idempotent.Options) { o.UnresolvedRetention = -1 }, "UnresolvedRetention"},
		"no steps":        {func(o *idempotent.Options) { o.Recovery = idempotent.Resume }, "Options.Steps is empty"},
		"step name":       {func(o *idempotent.Options) { o.Steps = []string{"a", "b c"} }, "Options.Steps: "},
		"lease of margin": {func(o *idempotent.Options) { o.DefaultLease, o.LeaseMargin = time.Second, time.Second }, "longer than Options.LeaseMargin"},
		"recovery":        {func(o *idempotent.Options) { o.Recovery = 7 }, "Reconcile, Resume or Rerun"},
		"codec name":      {func(o *idempotent.Options) { o.Codec = named("json+br") }, "without '+'"},
		"codec final":     {func(o *idempotent.Options) { o.Codec = named("final") }, `"final"`},
		"codec omitted":   {func(o *idempotent.Options) { o.Codec = named("omitted") }, `"omitted"`},
		"codec unnamed":   {func(o *idempotent.Options) { o.Codec = named("") }, "Options.Codec"},
		"version text":    {func(o *idempotent.Options) { o.ResultVersion = "2\xff" }, "Options.ResultVersion: want at most 1024 bytes of valid UTF-8"},
		"version length":  {func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1025) }, "Options.ResultVersion"},
	} {
		if _, err := idempotent.New(memstore.New(), row.f); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: New: got error %v, want one that contains %q", name, err, row.says)
		}
		if _, err := mustGuard(t).With(row.f); err == nil {
			t.Errorf("%s: With accepted it", name)
		}
		if _, err := idempotent.Do(t.Context(), mustGuard(t), newKey(), func(context.Context) (int, error) { return 0, nil }, row.f); err == nil {
			t.Errorf("%s: Do accepted it", name)
		}
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.LeaseMargin = time.Millisecond }); err != nil {
		t.Errorf("a margin of 1ms: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1024) }); err != nil {
		t.Errorf("a version of 1,024 bytes: %v", err)
	}
	if _, err := idempotent.New(nil); err == nil {
		t.Error("New accepted a nil store")
	}
	g, err := mustGuard(t).With(func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		runs := 0
		if _, err := idempotent.Do(t.Context(), g, idempotent.Key{}, func(context.Context) (int, error) { runs++; return 0, nil }); err != nil || runs != 1 {
			t.Errorf("With did not change the option: %v", err)
		}
	}
}

type named string

func (n named) Name() string             { return string(n) }
func (named) Encode(any) ([]byte, error) { return nil, nil }
func (named) Decode([]byte, any) error   { return nil }

func TestNames(t *testing.T) {
	t.Parallel()
	for s, name := range map[driver.State]string{1: "in_progress", 2: "completed", 3: "retryable", 4: "unknown"} {
		parsed, err := driver.ParseState(s.Code())
		if s.String() != name || parsed != s || err != nil {
			t.Errorf("state %d: name %q, code %q parsed as %d (%v)", s, s, s.Code(), parsed, err)
		}
	}
	for _, s := range []driver.State{0, 5} {
		if _, err := driver.ParseState(s.Code()); err == nil || s.Code() != "?" {
			t.Errorf("the code %q of %s was parsed", s.Code(), s)
		}
		if got, want := s.String(), fmt.Sprintf("State(%d)", uint8(s)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, r := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
		if parsed, err := driver.ParseRecovery(r.String()); parsed != r || err != nil {
			t.Errorf("recovery %d parsed as %d (%v)", r, parsed, err)
		}
	}
	if _, err := driver.ParseRecovery("resume?"); err == nil {
		t.Error("an unknown recovery was parsed")
	}
	if got := idempotent.Recovery(9).String(); got != "Recovery(9)" {
		t.Errorf("got %q", got)
	}
}

// A takeover starts clean: while it runs, the record holds nothing of the last
// attempt's outcome, and its other fields are preserved.
func TestTakeoverStartsClean(t *testing.T) {
	t.Parallel()
	created := time.Now().UTC().Truncate(time.Millisecond).Add(-time.Hour)
	for name, change := range map[string]func(*driver.Record){
		"released": func(r *driver.Record) {
			r.State, r.Reason, r.Encoding, r.Result, r.ReconcileAttempts = driver.StateRetryable, driver.ReasonResolved, "json", []byte("1"), 3
		},
		"killed after it announced itself": func(r *driver.Record) { r.State, r.LeaseEnd, r.Announced = driver.StateInProgress, created, true },
	} {
		key := newKey()
		old := driver.Record{
			ID: key.RecordID(), Recovery: idempotent.Resume, Owner: driver.Owner{1}, Version: driver.Version{1}, Attempt: 4,
			Fingerprint: idempotenttest.StoredFingerprint(key), Created: created, Since: created, Ref: "orders/7",
			Expires: created.Add(24 * time.Hour), Due: created,
		}
		change(&old)
		s := holding(t, old)
		g, _ := newGuardOver(t, s)
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
			r, err := s.Get(ctx, key.RecordID())
			if err != nil {
				return 0, err
			}
			if r.State != driver.StateInProgress || r.Reason != driver.ReasonTakenOver || r.Recovery != idempotent.Reconcile ||
				r.Owner == old.Owner || r.Owner == (driver.Owner{}) || r.Version == old.Version || r.Version == (driver.Version{}) ||
				r.Attempt != 5 || !r.Since.After(old.Since) || r.Encoding != "" || r.Result != nil || r.ReconcileAttempts != 0 || r.Announced || !r.Expires.IsZero() {
				t.Errorf("%s: the record while the handler runs is %+v", name, r)
			}
			if !r.Created.Equal(created) || r.Ref != "orders/7" || !r.Due.Equal(r.LeaseEnd) {
				t.Errorf("%s: the record lost fields: %+v", name, r)
			}
			return 0, nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	kit.Part(t, "../docs/concepts.md", "decide", idempotent.DecisionTable(), *update)
}

var update = flag.Bool("update", false, "write the generated parts of the documents")
