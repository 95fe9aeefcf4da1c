// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
)

// private is the text that must not reach a store, a log or an error.
const private = "4242 4242 4242 4242"

// wordy is a long result: compressed, and beside the record.
var wordy = sync.OnceValue(func() string {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "%x %s ", i*i*i, private)
	}
	return b.String()
})

func brief(s string) string { return s[:min(len(s), 40)] }

// sealed is a fixture whose guard has a Sealer, and whose store keeps a copy of all bytes
// that it was ever given.
type sealed struct {
	*fixture
	sealer *kit.Sealer
	store  driver.Store

	mu    sync.Mutex
	given bytes.Buffer
}

func newSealed(t *testing.T, optFns ...func(*idempotent.Options)) *sealed {
	t.Helper()
	s := &sealed{fixture: newFixture(t), sealer: kit.NewSealer()}
	s.store = idempotenttest.Intercept(newChunked(s.Store), func(ctx context.Context, c *idempotenttest.StoreCall) {
		s.mu.Lock()
		fmt.Fprintf(&s.given, "%s %s %+v", c.Record.Result, c.Data, c.Record)
		for _, step := range c.Record.Steps {
			s.given.Write(step.Result)
		}
		s.mu.Unlock()
		c.Do(ctx)
	})
	s.fixture = s.over(s.store, append(optFns, s.sealer.Option)...)
	return s
}

// opening sets what opening returns before it opens; nil: it opens.
func (s *sealed) opening(err error) {
	s.sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return err }
}

// wantPrivate fails the test if the store was given the private text.
func (s *sealed) wantPrivate(name string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(s.given.Bytes(), []byte(private)) {
		s.t.Errorf("%s: the store was given the result in clear", name)
	}
}

func withCodec(c idempotent.Codec) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Codec = c }
}

// How an operation can end with a result: by its handler, its transaction, or
// evidence about a handler without an answer.
var endings = map[string]struct {
	codec    idempotent.Codec // nil: JSON
	result   string
	err      error
	commits  bool
	evidence *idempotent.Resolution
	encoding string
}{
	"a result":                        {result: private, encoding: "json+sealed"},
	"a large result":                  {result: wordy(), encoding: "json+br+sealed"},
	"of another kind":                 {codec: raw{}, result: private, encoding: "raw+sealed"},
	"Final":                           {err: idempotent.Final("declined", private), encoding: "final+sealed"},
	"a transaction":                   {result: private, commits: true, encoding: "json+sealed"},
	"a large result of a transaction": {result: wordy(), commits: true, encoding: "json+br+sealed"},
	"evidence":                        {result: private, evidence: evidence(idempotent.Resolved(private)), encoding: "json+sealed"},
	"evidence with a codec":           {codec: raw{}, result: private, evidence: evidence(idempotent.ResolvedWith(raw{}, private)), encoding: "raw+sealed"},
	"a large result as evidence":      {result: wordy(), evidence: evidence(idempotent.Resolved(wordy())), encoding: "json+br+sealed"},
	"Final as evidence":               {err: idempotent.Final("declined", private), evidence: evidence(idempotent.ResolvedFinal("declined", private)), encoding: "final+sealed"},
}

func evidence(r idempotent.Resolution) *idempotent.Resolution { return &r }

// eachEnding runs f for each of them, with a fixture of its codec and its handler.
func eachEnding(t *testing.T, f func(t *testing.T, name string, s *sealed, h handlerFunc)) {
	for name, row := range endings {
		var optFns []func(*idempotent.Options)
		if row.codec != nil {
			optFns = append(optFns, withCodec(row.codec))
		}
		synctest.Test(t, func(t *testing.T) {
			s := newSealed(t, optFns...)
			f(t, name, s, func(ctx context.Context) (string, error) {
				switch {
				case row.evidence != nil:
					return "", errDown
				case row.commits:
					return row.result, commit(ctx, row.result, s.store.Replace)
				}
				return row.result, row.err
			})
		})
	}
}

// G14: a guard with a Sealer gives its store no unsealed result, and replays all of
// them. A guard without it gets neither the result nor the sealed bytes.
func TestSealedResults(t *testing.T) {
	t.Parallel()
	const noSealer = "it is sealed, and this guard has no Operation.Seal to open it with"
	eachEnding(t, func(t *testing.T, name string, s *sealed, h handlerFunc) {
		row := endings[name]
		out, err := s.outcome(h)
		if row.evidence != nil {
			s.mustResolve(*row.evidence)
		} else if out.Value != row.result || !out.Stored || fmt.Sprint(err) != fmt.Sprint(row.err) {
			t.Errorf("%s: the first caller got %s, %v", name, brief(out.Value), err)
		}
		s.wantPrivate(name)
		if got := s.record().Encoding; got != row.encoding {
			t.Errorf("%s: stored as %q, want %q", name, got, row.encoding)
		}
		out, err = s.outcome(forbidden(t))
		if out.Value != row.result || !out.Replayed || fmt.Sprint(err) != fmt.Sprint(row.err) {
			t.Errorf("%s: a replay is %s, %v", name, brief(out.Value), err)
		}
		encoding, data, err := s.guard.StoredOutcome(t.Context(), *s.record())
		if want, _, _ := strings.Cut(row.encoding, "+"); err != nil || encoding != want || !bytes.Contains(data, []byte(private)) {
			t.Errorf("%s: StoredOutcome returned %q, %q, %v", name, encoding, brief(string(data)), err)
		}

		without := s.over(s.store, withCodec(row.codec))
		_, err = without.do(forbidden(t))
		encoding, data, shown := without.guard.StoredOutcome(t.Context(), *s.record())
		wantUnavailable(t, err, noSealer)
		wantUnavailable(t, shown, noSealer)
		if encoding != "" || data != nil {
			t.Errorf("%s: a guard without the Sealer got %q, %q", name, encoding, brief(string(data)))
		}
	})
}

func wantUnavailable(t *testing.T, err error, reason string) {
	t.Helper()
	var unavailable *idempotent.ReplayUnavailableError
	if !errors.As(err, &unavailable) || !strings.HasPrefix(unavailable.Reason, reason) || strings.Contains(err.Error(), private) {
		t.Errorf("got error %v, want ReplayUnavailableError: %s", err, reason)
	}
}

func wantStepError(t *testing.T, err error, step, problem string) {
	t.Helper()
	var wrong *idempotent.StepError
	if !errors.As(err, &wrong) || wrong.Step != step || !strings.Contains(wrong.Problem, problem) || strings.Contains(err.Error(), private) {
		t.Errorf("got error %v, want StepError about %s: %s", err, step, problem)
	}
}

// Results of steps are sealed, and each belongs to its step.
func TestSealedSteps(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(private, 100)
	names, want := []string{"run", "big", "booked", "webhook"}, []string{private, long, private, private}
	s := newSealed(t, resume(names...))
	_, _ = s.do(func(ctx context.Context) (string, error) {
		small, err1 := idempotent.Step(ctx, "run", value(private))
		big, err2 := idempotent.Step(ctx, "big", value(long))
		booked, err3 := idempotent.CommitStep(ctx, "booked", private, s.store.Replace)
		if got := []string{small, big, booked}; !slices.Equal(got, want[:3]) || errors.Join(err1, err2, err3) != nil {
			t.Errorf("the first run got %.40q, %v", got, errors.Join(err1, err2, err3))
		}
		return "", errDown
	})
	s.clock.Advance(time.Hour)
	s.mustResolve(idempotent.ResolvedStep("webhook", private))
	s.wantPrivate("steps")
	for _, step := range s.record().Steps {
		if packed := step.Name == "big"; step.Encoding != map[bool]string{false: "json+sealed", true: "json+br+sealed"}[packed] {
			t.Errorf("step %s is stored as %q", step.Name, step.Encoding)
		}
	}
	var seen string
	if finished, err := s.guard.Pending(*s.record()).Step(t.Context(), "webhook", &seen); !finished || err != nil || seen != private {
		t.Errorf("a resolver sees %t, %q, %v", finished, seen, err)
	}

	// The next run gets all of them, compressed or not.
	_, _ = s.do(func(ctx context.Context) (string, error) {
		for i, name := range names {
			if v, err := idempotent.Step(ctx, name, forbidden(t)); err != nil || v != want[i] {
				t.Errorf("step %s is replayed as %q, %v", name, brief(v), err)
			}
		}
		return "", errDown
	})

	// A guard without the Sealer: no result, no ciphertext, and the step does not run.
	runs := func(f *fixture, problem string) {
		if _, err := f.do(func(ctx context.Context) (string, error) {
			v, err := idempotent.Step(ctx, "run", forbidden(t))
			if wantStepError(t, err, "run", problem); v != "" {
				t.Errorf("the step returned %q", v)
			}
			return "", err
		}); err == nil {
			t.Errorf("no error, want %s", problem)
		}
	}
	without := s.over(s.store, resume(names...))
	runs(without, "it is sealed, and this guard has no Operation.Seal to open it with")
	finished, err := without.guard.Pending(*s.record()).Step(t.Context(), "run", &seen)
	if wantStepError(t, err, "run", "it is sealed"); !finished {
		t.Error("a resolver without the Sealer does not see that the step is finished")
	}

	// Bytes that are moved to another step do not open.
	s.change(func(r *driver.Record) {
		r.Steps[1].Result, r.Steps[2].Result = r.Steps[2].Result, r.Steps[1].Result
	})
	runs(s.fixture, "it is sealed and cannot be opened")
}

// Sealed bytes open only where they were stored.
func TestSealedBytesBelongToTheirRecord(t *testing.T) {
	t.Parallel()
	final := idempotent.Final("declined", private)
	for name, row := range map[string]struct {
		end  error
		move func(from, to *driver.Record)
	}{
		"of another record":           {nil, func(from, to *driver.Record) { to.Encoding, to.Result = from.Encoding, from.Result }},
		"a result as a Final error":   {nil, func(_, to *driver.Record) { to.Encoding = "final+sealed" }},
		"a Final error as a result":   {final, func(_, to *driver.Record) { to.Encoding = "json+sealed" }},
		"without its compression":     {nil, func(_, to *driver.Record) { to.Encoding = "json+br+sealed" }},
		"with another codec":          {nil, func(_, to *driver.Record) { to.Encoding = "xml+sealed" }},
		"an altered byte":             {nil, func(_, to *driver.Record) { to.Result[len(to.Result)/2] ^= 1 }},
		"cut off":                     {nil, func(_, to *driver.Record) { to.Result = to.Result[:5] }},
		"nothing":                     {nil, func(_, to *driver.Record) { to.Result = nil }},
		"sealed, but not said to be":  {nil, func(_, to *driver.Record) { to.Encoding = "json" }},
		"Final, but not said to be":   {final, func(_, to *driver.Record) { to.Encoding = "final" }},
		"in clear, but said to be so": {nil, func(_, to *driver.Record) { to.Result = []byte(`"x"`) }},
	} {
		s := newSealed(t)
		from := s.key
		for _, s.key = range []idempotent.Key{from, newKey()} {
			_, _ = s.do(func(context.Context) (string, error) { return private, row.end })
		}
		s.change(func(r *driver.Record) { row.move(record(t, s, from), r) })
		got, err := s.do(forbidden(t))
		if got != "" {
			t.Errorf("%s: got %q", name, got)
		}
		wantUnavailable(t, err, "")
	}
}

// The authenticated data is part of the stored format: a change makes all sealed
// results unreadable. It is the record id, the step and the encoding, each with
// its length before it.
func TestBoundData(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	s.key = idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: s.key.Fingerprint}
	var bound []string
	note := func(_ context.Context, _, b []byte) error {
		bound = append(bound, string(b))
		return nil
	}
	s.sealer.BeforeSeal, s.sealer.BeforeOpen = note, note
	for range 2 {
		if _, err := s.do(func(ctx context.Context) (string, error) {
			v, err := idempotent.Step(ctx, "pay/1", charged)
			return strings.Repeat(v, 1000), err
		}); err != nil {
			t.Fatal(err)
		}
	}
	const id = "\x32charge#JGDNNv3sOeBRksNd1gDRKcv8m_G22S_tvgq-0HTU_pc"
	want := []string{id + "\x05pay/1\x04json", id + "\x00\x07json+br", id + "\x00\x07json+br"}
	if !slices.Equal(bound, want) {
		t.Errorf("got  %q\nwant %q", bound, want)
	}
}

// Records and steps from before the Sealer was set are still replayed.
func TestUnsealedRecordsStayReadable(t *testing.T) {
	t.Parallel()
	s := newSealed(t, resume("pay"))
	plain := s.over(s.store, resume("pay"))
	plain.dies(func(ctx context.Context) { _ = step("pay", charged)(ctx) })
	s.clock.Advance(time.Hour)
	if v, err := s.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "pay", forbidden(t)) }); err != nil ||
		v != "ch_1" || s.record().Encoding != "json+sealed" {
		t.Errorf("the step from before is %q (%v), and the result is stored as %q", v, err, s.record().Encoding)
	}
	plain.key = newKey()
	_, _ = plain.do(charged)
	s.key = plain.key
	if out, err := s.outcome(forbidden(t)); err != nil || out.Value != "ch_1" || !out.Replayed || s.sealer.Opened() != 0 {
		t.Errorf("a result from before is replayed as %+v, %v", out, err)
	}
	s.mustResolve(idempotent.Resolved("ch_1")) // the same result as evidence
}

// A record declares that its operation seals. A guard without the Sealer then
// stores no unsealed evidence; evidence without a result needs no key. A guard with the
// Sealer also seals evidence about an operation that did not.
func TestEvidenceAboutASealingOperation(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		codec    idempotent.Codec
		evidence idempotent.Resolution
		refused  bool
	}{
		"a result":            {nil, idempotent.Resolved(private), true},
		"a result of a codec": {raw{}, idempotent.ResolvedWith(raw{}, private), true},
		"Final":               {nil, idempotent.ResolvedFinal("declined", private), true},
		"a step":              {nil, idempotent.ResolvedStep("pay", private), true},
		"a corrected step":    {nil, idempotent.CorrectedStep("pay", private), true},
		"no result":           {nil, idempotent.ResolvedWithoutResult(), false},
		"nothing happened":    {nil, notExecuted, false},
	} {
		s := newSealed(t, withCodec(row.codec))
		_, _ = s.do(noAnswer)
		s.clock.Advance(time.Hour)
		before := s.record()
		if want := map[bool]string{true: "raw+sealed", false: "json+sealed"}[row.codec != nil]; before.Codec != want {
			t.Errorf("%s: the operation declared %q, want %q", name, before.Codec, want)
		}
		if name == "nothing happened" {
			row.evidence = s.notExecuted()
		}
		err := s.over(s.store).resolve(row.evidence)
		after := s.record()
		if (err != nil) != row.refused || (after.Version == before.Version) != row.refused || after.Codec != before.Codec {
			t.Errorf("%s: got error %v, and the record is %s and declares %q", name, err, after.State, after.Codec)
		}
		if row.refused && (!strings.Contains(err.Error(), "Operation.Seal") || strings.Contains(err.Error(), private)) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	s := newSealed(t)
	_, _ = s.over(s.store).do(noAnswer)
	s.clock.Advance(time.Hour)
	s.mustResolve(idempotent.Resolved(private))
	s.wantPrivate("evidence about an operation that does not seal")
	if r := s.record(); r.Codec != "json+sealed" || r.Encoding != "json+sealed" {
		t.Errorf("the record declares %q and holds %q", r.Codec, r.Encoding)
	}
}

// brokenSeals are ways in which a Sealer fails.
var brokenSeals = map[string]func(ctx context.Context, plain, bound []byte) error{
	"an error": func(context.Context, []byte, []byte) error { return errDown },
	"a panic":  func(_ context.Context, plain, _ []byte) error { panic(string(plain)) },
	"no reply": func(ctx context.Context, _, _ []byte) error {
		<-ctx.Done()
		return ctx.Err()
	},
}

// inTenSeconds returns s with a guard whose clock is that of the bubble, and a context that
// ends in ten seconds.
func (s *sealed) inTenSeconds(optFns ...func(*idempotent.Options)) (context.Context, context.CancelFunc) {
	g, err := s.guard.With(append(optFns, func(o *idempotent.Options) { o.Now = time.Now })...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.guard = g
	return context.WithTimeout(s.t.Context(), 10*time.Second)
}

// G14: if sealing fails, the effect has happened. Its caller gets the outcome, which is
// stored without the result, and nothing is stored unsealed or logged. A transaction is
// not sent, and evidence is not stored.
func TestSealingFails(t *testing.T) {
	t.Parallel()
	for name, broken := range brokenSeals {
		eachEnding(t, func(t *testing.T, ending string, s *sealed, h handlerFunc) {
			name, row := name+", "+ending, endings[ending]
			var log bytes.Buffer
			s.sealer.BeforeSeal = broken
			ctx, cancel := s.inTenSeconds(func(o *idempotent.Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				o.Observer = event.Observers(o.Observer, event.LogObserver(o.Logger))
			})
			defer cancel()
			out, err := idempotent.DoOutcome(ctx, s.guard, s.key, h)
			r, kinds := s.record(), s.kinds()
			switch {
			case row.evidence != nil:
				err := s.guard.Resolve(ctx, s.key.RecordID(), *row.evidence)
				var failed *idempotent.StoreError
				if !errors.As(err, &failed) || failed.Op != driver.OpSeal || failed.Entered || s.record().Version != r.Version {
					t.Errorf("%s: got error %v", name, err)
				}
			case row.commits:
				if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "Operation.Seal: seal failed") ||
					!strings.Contains(err.Error(), "the handler was entered") || r.State != driver.StateUnknown {
					t.Errorf("%s: got error %v, and the record is %s", name, err, r.State)
				}
			default:
				if out.Value != row.result || out.Stored || fmt.Sprint(err) != fmt.Sprint(row.err) ||
					r.Encoding != driver.EncodingOmitted || kinds != "reserved completion_failed completed" {
					t.Errorf("%s: got %s, %v, and the record is %s, %q; events %s", name, brief(out.Value), err, r.State, r.Encoding, kinds)
				}
				_, err := idempotent.Do(ctx, s.guard, s.key, forbidden(t))
				wantUnavailable(t, err, "the result could not be stored")
			}
			if s.wantPrivate(name); strings.Contains(log.String(), private) {
				t.Errorf("%s: the log contains the result", name)
			}
		})
	}
}

// A Sealer that does not answer gets half of the time left. The rest is for the
// store. Its context is live also if the caller's has no deadline.
func TestSealingTakesHalfOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSealed(t)
		var given time.Duration
		s.sealer.BeforeSeal = func(ctx context.Context, _, _ []byte) error {
			deadline, _ := ctx.Deadline()
			given = time.Until(deadline)
			return ctx.Err()
		}
		ctx, cancel := s.inTenSeconds()
		defer cancel()
		if _, err := idempotent.Do(ctx, s.guard, s.key, charged); err != nil || given != 4950*ms {
			t.Errorf("the Sealer had %s, %v", given, err)
		}
		s.key = newKey()
		s.holds(driver.Record{State: driver.StateUnknown})
		if err := s.guard.Resolve(context.Background(), s.key.RecordID(), idempotent.Resolved(private)); err != nil {
			t.Error(err)
		}
	})
}

// A step whose result cannot be sealed is not recorded as finished, and its
// handler gets an error. A transaction is not sent.
func TestSealingAStepFails(t *testing.T) {
	t.Parallel()
	for name, broken := range brokenSeals {
		synctest.Test(t, func(t *testing.T) {
			s := newSealed(t)
			s.sealer.BeforeSeal = broken
			ctx, cancel := s.inTenSeconds()
			defer cancel()
			_, err := idempotent.Do(ctx, s.guard, s.key, func(ctx context.Context) (string, error) {
				booked, bookErr := idempotent.CommitStep(ctx, "book", private, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
					t.Error("the transaction was sent")
					return nil, nil
				})
				paid, err := idempotent.Step(ctx, "pay", value(private))
				wantStepError(t, bookErr, "book", "the result cannot be recorded: ")
				wantStepError(t, err, "pay", "the result cannot be recorded: ")
				if booked != private || paid != private {
					t.Errorf("%s: the steps returned %q and %q", name, booked, paid)
				}
				return "", err
			})
			r := s.record()
			if step, found := r.Step("pay"); err == nil || !found || step.Finished || r.State != driver.StateUnknown || len(r.Steps) != 1 {
				t.Errorf("%s: %v; the record is %s with the steps %+v", name, err, r.State, r.Steps)
			}
			s.kinds()
			if err := s.guard.Resolve(ctx, s.key.RecordID(), idempotent.ResolvedStep("pay", private)); !errors.As(err, new(*idempotent.StoreError)) ||
				s.kinds() != "store_error" {
				t.Errorf("%s: evidence got %v", name, err)
			}
			s.wantPrivate(name)
		})
	}
}

// Sealed bytes count against the limit of a step's result.
func TestSealedStepLimit(t *testing.T) {
	t.Parallel()
	for size, fits := range map[sealedSize]bool{64 << 10: true, 64<<10 + 1: false} {
		f := newFixture(t, func(o *idempotent.Options) { o.Seal = size })
		if _, err := f.do(func(ctx context.Context) (string, error) {
			err := step("pay", charged)(ctx)
			if !fits {
				wantStepError(t, err, "pay", "the result has 65537 bytes; the limit is 65536")
				err = nil
			}
			return "", err
		}); err != nil {
			t.Errorf("%d sealed bytes: %v", size, err)
		}
	}
}

// sealedSize is a Sealer whose sealed bytes have that length.
type sealedSize int

func (n sealedSize) Seal(context.Context, []byte, []byte) ([]byte, error) {
	return make([]byte, n), nil
}
func (sealedSize) Open(context.Context, []byte, []byte) ([]byte, error) {
	return nil, idempotent.ErrSealBroken
}

// wantLater fails the test if err is not that of a result that cannot be opened now.
func (s *sealed) wantLater(name string, err error, entered bool) {
	s.t.Helper()
	var later *idempotent.StoreError
	if !errors.As(err, &later) || later.Op != driver.OpOpen || later.Entered != entered || later.RecordID != s.key.RecordID() {
		s.t.Errorf("%s: got error %#v, want StoreError, entered %t", name, err, entered)
	}
}

// If a result cannot be opened now, the caller is asked to try again, and nothing
// runs. If it can never be opened, the caller learns that.
func TestOpeningFails(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(ctx context.Context, sealed, bound []byte) error{
		"throttled": func(context.Context, []byte, []byte) error { return errDown },
		"a panic":   func(context.Context, []byte, []byte) error { panic("nil pointer") },
		"broken": func(context.Context, []byte, []byte) error {
			return fmt.Errorf("%w: key deleted", idempotent.ErrSealBroken)
		},
	} {
		eachEnding(t, func(t *testing.T, ending string, s *sealed, h handlerFunc) {
			name, row := name+", "+ending, endings[ending]
			if row.evidence != nil {
				return
			}
			_, _ = s.do(h)
			s.sealer.BeforeOpen = broken
			got, err := s.do(forbidden(t))
			_, data, shown := s.guard.StoredOutcome(t.Context(), *s.record())
			if got != "" || data != nil {
				t.Errorf("%s: got %q and %q", name, got, data)
			}
			for _, err := range []error{err, shown} {
				if strings.HasPrefix(name, "broken") {
					wantUnavailable(t, err, "it is sealed and cannot be opened: ")
				} else {
					s.wantLater(name, err, false)
				}
			}
			s.opening(nil)
			if got, err := s.do(forbidden(t)); got != row.result || fmt.Sprint(err) != fmt.Sprint(row.err) {
				t.Errorf("%s: afterwards got %q, %v", name, brief(got), err)
			}
		})
	}
}

// A step that cannot be opened does not run, and its handler gets the reason. Neither does
// a handler whose outcome meets another one that cannot be opened.
func TestOpeningFailsInAHandler(t *testing.T) {
	t.Parallel()
	s := newSealed(t, resume("pay", "book"))
	s.dies(func(ctx context.Context) {
		booked := func(ctx context.Context) error {
			_, err := idempotent.CommitStep(ctx, "book", private, s.store.Replace)
			return err
		}
		if err := errors.Join(step("pay", value(private))(ctx), booked(ctx)); err != nil {
			t.Error(err)
		}
	})
	s.clock.Advance(time.Hour)
	s.opening(errDown)
	_, err := s.do(func(ctx context.Context) (string, error) {
		v, err := idempotent.Step(ctx, "pay", forbidden(t))
		b, booked := idempotent.CommitStep(ctx, "book", "", s.store.Replace)
		s.wantLater("a step", err, true)
		s.wantLater("a transaction", booked, true)
		if v != "" || b != "" {
			t.Errorf("got %q, %q", v, b)
		}
		return "", err
	})
	if !errors.Is(err, errDown) || s.record().State != driver.StateRetryable {
		t.Errorf("got error %v, and the record is %s", err, s.record().State)
	}
	if finished, err := s.guard.Pending(*s.record()).Step(t.Context(), "pay", new(string)); !finished || !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("a resolver got %t, %v", finished, err)
	}
	s.opening(nil)
	if v, err := s.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "pay", forbidden(t)) }); err != nil || v != private {
		t.Errorf("afterwards got %q, %v", v, err)
	}

	s.key = newKey()
	_, err = s.do(func(context.Context) (string, error) {
		s.clock.Advance(time.Hour)
		s.mustResolve(idempotent.Resolved(private))
		s.opening(errDown)
		return private, nil
	})
	s.wantLater("a standing outcome", err, true)
}

// Evidence is compared with what the sealed outcome contains: equal results are stored
// as different bytes. What cannot be compared now is compared later, and what can never be
// compared is another outcome. Evidence without a result is compared without reading or
// opening anything.
func TestEvidenceMeetsASealedOutcome(t *testing.T) {
	t.Parallel()
	x, long, none := idempotent.Resolved(private), idempotent.Resolved(wordy()), idempotent.ResolvedWithoutResult()
	final := func(code string) idempotent.Resolution { return idempotent.ResolvedFinal(code, private) }
	for name, row := range map[string]struct {
		first, second idempotent.Resolution
		agreed        bool
	}{
		"the same":              {x, x, true},
		"the same, large":       {long, long, true},
		"the same Final":        {final("a"), final("a"), true},
		"no result twice":       {none, none, true},
		"another":               {x, idempotent.Resolved("other"), false},
		"another, large":        {long, idempotent.Resolved(wordy() + "."), false},
		"another Final":         {final("a"), final("b"), false},
		"Final and a result":    {final(private), x, false},
		"a result and Final":    {x, final(private), false},
		"a result and then not": {long, none, false},
	} {
		s := newSealed(t)
		_, _ = s.do(noAnswer)
		s.mustResolve(row.first)
		before := s.record().Version
		again := func(what string, want error) {
			if err := s.resolve(row.second); !errtype.Matches(err, want) || s.record().Version != before {
				t.Errorf("%s%s: got error %v, want %T", name, what, err, want)
			}
		}
		settled := error(new(idempotent.SettledError))
		if row.agreed {
			settled = nil
		}
		again("", settled)
		if s.events.Count(event.Resolved) != 1 || (s.events.Count(event.Contradicted) == 0) != row.agreed {
			t.Errorf("%s: events %v", name, s.events.Kinds())
		}
		opened := s.sealer.Opened()
		s.on(driver.OpGetChunks, fail(errDown))
		switch {
		case strings.Contains(name, "no result"), strings.Contains(name, "then not"):
			if again(", unreadable", settled); opened != 0 {
				t.Errorf("%s: %d results were opened", name, opened)
			}
			continue
		case strings.Contains(name, "large"):
			again(", unreadable", new(idempotent.StoreError))
		}
		s.on(driver.OpGetChunks, nil)
		s.opening(errDown)
		again(", later", new(idempotent.StoreError))
		s.wantLater(name, s.resolve(row.second), false)
		s.opening(idempotent.ErrSealBroken)
		again(", never", new(idempotent.SettledError))
	}
	// A result that is not sealed is compared by its sum, without reading it.
	s := newSealed(t)
	plain := s.over(s.store)
	_, _ = plain.do(noAnswer)
	plain.mustResolve(long)
	plain.on(driver.OpGetChunks, fail(errDown))
	plain.mustResolve(long)
}

// Evidence about a step is compared with what its sealed result contains. A correction replaces
// another result, and one that can no longer be opened.
func TestEvidenceMeetsASealedStep(t *testing.T) {
	t.Parallel()
	s := newSealed(t, func(o *idempotent.Options) { o.Steps = []string{"pay"} })
	s.dies(func(ctx context.Context) {
		if err := step("pay", value(private))(ctx); err != nil {
			t.Error(err)
		}
	})
	s.clock.Advance(time.Hour)
	for _, row := range []struct {
		name     string
		open     error
		evidence idempotent.Resolution
		want     error
		writes   bool
	}{
		{"the same", nil, idempotent.ResolvedStep("pay", private), nil, false},
		{"the same as a correction", nil, idempotent.CorrectedStep("pay", private), nil, false},
		{"another", nil, idempotent.ResolvedStep("pay", "other"), new(idempotent.SettledError), false},
		{"the same, later", errDown, idempotent.ResolvedStep("pay", private), new(idempotent.StoreError), false},
		{"a correction, later", errDown, idempotent.CorrectedStep("pay", private), new(idempotent.StoreError), false},
		{"the same as what cannot be opened", idempotent.ErrSealBroken, idempotent.ResolvedStep("pay", private), new(idempotent.SettledError), false},
		{"a correction", nil, idempotent.CorrectedStep("pay", "corrected"), nil, true},
		{"a correction of what cannot be opened", idempotent.ErrSealBroken, idempotent.CorrectedStep("pay", "again"), nil, true},
	} {
		before := s.record().Version
		s.opening(row.open)
		if err := s.resolve(row.evidence); !errtype.Matches(err, row.want) || (s.record().Version != before) != row.writes {
			t.Errorf("%s: got error %v", row.name, err)
		}
	}
	s.opening(nil)
	var got string
	if _, err := s.guard.Pending(*s.record()).Step(t.Context(), "pay", &got); err != nil || got != "again" {
		t.Errorf("the step's result is %q, %v", got, err)
	}
}

// An outcome whose first write meets another one is sealed once. An owner that finishes
// late and agrees with evidence contradicts nothing.
func TestLateOutcomeIsSealed(t *testing.T) {
	t.Parallel()
	s := newSealed(t)
	s.on(driver.OpReplace, first(after(swept)))
	if _, err := s.do(value(private)); err != nil || s.sealer.Seals() != 1 {
		t.Errorf("%v after %d seals", err, s.sealer.Seals())
	}
	for result, contradicted := range map[string]int{private: 0, "other": 1} {
		s := newSealed(t)
		if v, err := s.do(func(context.Context) (string, error) {
			s.clock.Advance(time.Hour)
			s.mustResolve(idempotent.Resolved(private))
			return result, nil
		}); err != nil || v != private || s.events.Count(event.Contradicted) != contradicted {
			t.Errorf("%s: got %s, %v, events %v", result, v, err, s.events.Kinds())
		}
	}
}

// A transaction without a reply is sealed anew when the handler tries it again.
// Whichever try was applied, every caller gets its result.
func TestSealedTransactionInDoubt(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{"small": private, "large": wordy()} {
		for _, cached := range []int{0, 10} {
			s := newSealed(t, func(o *idempotent.Options) { o.CacheEntries = cached })
			l := &ledger{fixture: s.fixture, plan: plan(replyLost)}
			v, err := l.do(func(ctx context.Context) (string, error) {
				try{name, errLost}.check(t, "Commit", commit(ctx, result, l.book))
				return result, commit(ctx, result, l.book)
			})
			if err != nil || v != result || l.booked != 1 || s.sealer.Seals() != 2 {
				t.Errorf("%s: got %q, %v after %d seals", name, brief(v), err, s.sealer.Seals())
			}
			for range 2 {
				if got, err := l.do(forbidden(t)); err != nil || got != result {
					t.Errorf("%s: a replay is %q, %v", name, brief(got), err)
				}
			}
			s.wantPrivate(name)
		}
	}
	// The same for a step.
	l := &ledger{fixture: newSealed(t).fixture, plan: plan(replyLost)}
	if v, err := l.do(func(ctx context.Context) (string, error) {
		_, err := idempotent.CommitStep(ctx, "book", private, l.book)
		try{"a step", errLost}.check(t, "CommitStep", err)
		return idempotent.CommitStep(ctx, "book", private, l.book)
	}); err != nil || v != private || l.sent != 2 {
		t.Errorf("got %q, %v after %d tries", v, err, l.sent)
	}
}

// A sealed record in the cache is opened for every replay, and refused like one
// from the store. Its untyped parts are the same for each caller, and those of a step.
func TestSealedCache(t *testing.T) {
	t.Parallel()
	s := newSealed(t, resume("pay", "book"), func(o *idempotent.Options) { o.CacheEntries = 10 })
	type card = map[string]any
	ask := func(h func(context.Context) (card, error)) (card, error) {
		return idempotent.Do(s.invocation(), s.guard, s.key, h)
	}
	for i := range 3 {
		got, err := ask(value(card{"n": 1.5, "card": private}))
		if err != nil || got["card"] != private || got["n"] != json.Number("1.5") || s.sealer.Opened() != i {
			t.Errorf("request %d got %v, %v, and %d results were opened", i, got, err, s.sealer.Opened())
		}
	}
	s.opening(errDown)
	if _, err := ask(never[card]); !errors.As(err, new(*idempotent.StoreError)) || !slices.Equal(s.calls, []string{"insert", "replace"}) {
		t.Errorf("got error %v after %v, want StoreError", err, s.calls)
	}
	s.opening(nil)
	s.key = newKey()
	for range 2 {
		_, _ = s.do(func(ctx context.Context) (string, error) {
			paid, err := idempotent.Step(ctx, "pay", value(card{"n": 1.5}))
			booked, err2 := idempotent.CommitStep(ctx, "book", card{"n": 2.5}, s.store.Replace)
			if err != nil || err2 != nil || paid["n"] != json.Number("1.5") || booked["n"] != json.Number("2.5") {
				t.Errorf("got %#v, %v and %#v, %v", paid, err, booked, err2)
			}
			return "", errDown
		})
	}
}
