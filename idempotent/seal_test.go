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
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// private is the text that must not reach a store, a log or an error.
const private = "4242 4242 4242 4242"

// loggedStore has a chunked store that keeps a copy of all bytes it was ever given.
type loggedStore struct {
	driver.Store
	reading error // of GetChunks
	mu      sync.Mutex
	given   bytes.Buffer
}

func newLoggedStore(s *memstore.Store) *loggedStore {
	l := &loggedStore{}
	l.Store = idempotenttest.Intercept(&chunked{Store: s, chunks: map[string][]byte{}}, func(ctx context.Context, c *idempotenttest.StoreCall) {
		l.mu.Lock()
		fmt.Fprintf(&l.given, "%s %s %+v", c.Record.Result, c.Data, c.Record)
		for _, s := range c.Record.Steps {
			l.given.Write(s.Result)
		}
		l.mu.Unlock()
		if c.Err = l.reading; c.Op != driver.OpGetChunks || c.Err == nil {
			c.Do(ctx)
		}
	})
	return l
}

// wantPrivate fails the test if the store was given the private text.
func (d *loggedStore) wantPrivate(t *testing.T, name string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes.Contains(d.given.Bytes(), []byte(private)) {
		t.Errorf("%s: the store was given the result in clear", name)
	}
}

// wordy has long results: compressed, and beside the record.
func wordy() string {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "%x %s ", i*i*i, private)
	}
	return b.String()
}

// How an operation can end with a result: by its handler, its transaction, or
// evidence.
var endings = map[string]struct {
	optFns   []func(*idempotent.Options)
	handler  func(ctx context.Context, d *loggedStore) (string, error)
	evidence idempotent.Resolution // after a handler without an answer
	encoding string
	value    string
	final    string
}{
	"a result":        {handler: answers(private), encoding: "json+sealed", value: private},
	"a large result":  {handler: answers(wordy()), encoding: "json+br+sealed", value: wordy()},
	"of another kind": {optFns: []func(*idempotent.Options){func(o *idempotent.Options) { o.Codec = raw{} }}, handler: answers(private), encoding: "raw+sealed", value: private},
	"Final": {handler: func(context.Context, *loggedStore) (string, error) {
		return "", idempotent.Final("declined", private)
	}, encoding: "final+sealed", final: "declined: " + private},
	"a transaction": {handler: func(ctx context.Context, d *loggedStore) (string, error) {
		return private, commit(ctx, private, d.Replace)
	}, encoding: "json+sealed", value: private},
	"a large result of a transaction": {handler: func(ctx context.Context, d *loggedStore) (string, error) {
		return wordy(), commit(ctx, wordy(), d.Replace)
	}, encoding: "json+br+sealed", value: wordy()},
	"evidence":                   {evidence: idempotent.Resolved(private), encoding: "json+sealed", value: private},
	"evidence with a codec":      {optFns: []func(*idempotent.Options){func(o *idempotent.Options) { o.Codec = raw{} }}, evidence: idempotent.ResolvedWith(raw{}, private), encoding: "raw+sealed", value: private},
	"a large result as evidence": {evidence: idempotent.Resolved(wordy()), encoding: "json+br+sealed", value: wordy()},
	"Final as evidence":          {evidence: idempotent.ResolvedFinal("declined", private), encoding: "final+sealed", final: "declined: " + private},
}

func answers(value string) func(context.Context, *loggedStore) (string, error) {
	return func(context.Context, *loggedStore) (string, error) { return value, nil }
}

// G14: a guard with a Sealer gives its store no result in clear, and replays all of
// them. A guard without it gets neither the result nor the sealed bytes.
func TestSealedResults(t *testing.T) {
	t.Parallel()
	for name, row := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, key, sealer := newLoggedStore(memstore.New()), newKey(), kit.NewSealer()
			g, _ := newGuardOver(t, d.Store, append(row.optFns, sealer.Option)...)
			handler := row.handler
			if handler == nil {
				handler = func(context.Context, *loggedStore) (string, error) { return "", errDown }
			}
			out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) { return handler(ctx, d) })
			if row.handler != nil && (out.Value != row.value || !out.Stored || fmt.Sprint(err) != orNil(row.final)) {
				t.Errorf("the first caller got %+v, %v", brief(out.Value), err)
			}
			if row.handler == nil {
				if err := g.Resolve(t.Context(), key.RecordID(), row.evidence); err != nil {
					t.Fatal(err)
				}
			}
			d.wantPrivate(t, name)
			if r := record(t, d, key); r.Encoding != row.encoding {
				t.Errorf("stored as %q, want %q", r.Encoding, row.encoding)
			}

			out, err = idempotent.DoOutcome(t.Context(), g, key, forbidden(t))
			if out.Value != row.value || !out.Replayed || fmt.Sprint(err) != orNil(row.final) {
				t.Errorf("a replay is %+v, %v", brief(out.Value), err)
			}
			encoding, data, err := g.StoredOutcome(t.Context(), *record(t, d, key))
			if want, _, _ := strings.Cut(row.encoding, "+"); err != nil || encoding != want || !bytes.Contains(data, []byte(private)) {
				t.Errorf("StoredOutcome returned %q, %q, %v", encoding, brief(string(data)), err)
			}

			without, _ := newGuardOver(t, d.Store, row.optFns...)
			_, err = idempotent.Do(t.Context(), without, key, forbidden(t))
			wantUnavailable(t, err, "it is sealed, and this guard has no Options.Seal to open it with")
			encoding, data, err = without.StoredOutcome(t.Context(), *record(t, d, key))
			wantUnavailable(t, err, "it is sealed, and this guard has no Options.Seal to open it with")
			if encoding != "" || data != nil {
				t.Errorf("a guard without the Sealer got %q, %q", encoding, brief(string(data)))
			}
		})
	}
}

func orNil(s string) string {
	if s == "" {
		return "<nil>"
	}
	return s
}

func brief(s string) string { return s[:min(len(s), 40)] }

func wantUnavailable(t *testing.T, err error, reason string) {
	t.Helper()
	var unavailable *idempotent.ReplayUnavailableError
	if !errors.As(err, &unavailable) || !strings.HasPrefix(unavailable.Reason, reason) || strings.Contains(err.Error(), private) {
		t.Errorf("got error %v, want ReplayUnavailableError: %s", err, reason)
	}
}

// Results of steps are sealed, and each belongs to its step.
func TestSealedSteps(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	resume := func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.Now = idempotent.Resume, []string{"run", "big", "booked", "webhook"}, w.clock.Now
	}
	d := newLoggedStore(w.Store)
	g, _ := newGuardOver(t, d.Store, resume, sealer.Option)
	run := func(name, value string) func(context.Context) string {
		return func(ctx context.Context) string {
			v, err := idempotent.Step(ctx, name, func(context.Context) (string, error) { return value, nil })
			if err != nil {
				t.Error(err)
			}
			return v
		}
	}
	all := func(ctx context.Context) (got []string) {
		got = append(got, run("run", private)(ctx), run("big", strings.Repeat(private, 100))(ctx))
		v, err := idempotent.CommitStep(ctx, "booked", private, d.Replace)
		if err != nil {
			t.Error(err)
		}
		return append(got, v)
	}
	want := []string{private, strings.Repeat(private, 100), private}
	if _, err := w.do(t, g, func(ctx context.Context) (string, error) {
		if got := all(ctx); !slices.Equal(got, want) {
			t.Errorf("the first run got %q", got)
		}
		return "", errDown
	}); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("webhook", private)); err != nil {
		t.Fatal(err)
	}
	d.wantPrivate(t, "steps")
	for _, s := range w.record(t).Steps {
		if packed := s.Name == "big"; s.Encoding != map[bool]string{false: "json+sealed", true: "json+br+sealed"}[packed] {
			t.Errorf("step %s is stored as %q", s.Name, s.Encoding)
		}
	}
	var seen string
	if finished, err := g.Pending(*w.record(t)).Step(t.Context(), "webhook", &seen); !finished || err != nil || seen != private {
		t.Errorf("a resolver sees %t, %q, %v", finished, seen, err)
	}

	// The next run gets all of them, compressed or not.
	if _, err := w.do(t, g, func(ctx context.Context) (string, error) {
		for i, name := range []string{"run", "big", "booked", "webhook"} {
			if v, err := idempotent.Step(ctx, name, forbidden(t)); err != nil || v != append(want, private)[i] {
				t.Errorf("step %s is replayed as %q, %v", name, brief(v), err)
			}
		}
		return "", errDown
	}); !errors.Is(err, errDown) {
		t.Fatal(err)
	}

	// A guard without the Sealer: no result, no ciphertext, and the step does not run.
	without, _ := newGuardOver(t, w.Store, resume)
	if _, err := w.do(t, without, func(ctx context.Context) (string, error) {
		v, err := idempotent.Step(ctx, "run", forbidden(t))
		wantStepError(t, err, "run", "it is sealed, and this guard has no Options.Seal to open it with")
		if v != "" {
			t.Errorf("the step returned %q", v)
		}
		return "", err
	}); err == nil {
		t.Error("no error without the Sealer")
	}
	if finished, err := without.Pending(*w.record(t)).Step(t.Context(), "run", &seen); !finished {
		t.Error("a resolver without the Sealer does not see that the step is finished")
	} else {
		wantStepError(t, err, "run", "it is sealed")
	}

	// Bytes that are moved to another step do not open.
	change(t, w.Store, w.key, func(r *driver.Record) {
		r.Steps[1].Result, r.Steps[2].Result = r.Steps[2].Result, r.Steps[1].Result
	})
	if _, err := w.do(t, g, func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "run", forbidden(t))
		wantStepError(t, err, "run", "it is sealed and cannot be opened")
		return "", err
	}); err == nil {
		t.Error("no error for moved bytes")
	}
}

func wantStepError(t *testing.T, err error, step, problem string) {
	t.Helper()
	var wrong *idempotent.StepError
	if !errors.As(err, &wrong) || wrong.Step != step || !strings.Contains(wrong.Problem, problem) || strings.Contains(err.Error(), private) {
		t.Errorf("got error %v, want StepError about %s: %s", err, step, problem)
	}
}

// change writes the record of key as another party would.
func change(t *testing.T, s driver.Store, key idempotent.Key, f func(*driver.Record)) {
	t.Helper()
	r := record(t, s, key)
	was := r.Version
	r.Version[0]++
	f(r)
	if met, err := s.Replace(t.Context(), *r, was); met != nil || err != nil {
		t.Fatal(met, err)
	}
}

// Sealed bytes open only where they were stored.
func TestSealedBytesBelongToTheirRecord(t *testing.T) {
	t.Parallel()
	sealer := kit.NewSealer()
	for name, row := range map[string]struct {
		end  error
		move func(from, to *driver.Record)
	}{
		"of another record":           {nil, func(from, to *driver.Record) { to.Encoding, to.Result = from.Encoding, from.Result }},
		"a result as a Final error":   {nil, func(_, to *driver.Record) { to.Encoding = "final+sealed" }},
		"a Final error as a result":   {idempotent.Final("declined", private), func(_, to *driver.Record) { to.Encoding = "json+sealed" }},
		"without its compression":     {nil, func(_, to *driver.Record) { to.Encoding = "json+br+sealed" }},
		"with another codec":          {nil, func(_, to *driver.Record) { to.Encoding = "xml+sealed" }},
		"an altered byte":             {nil, func(_, to *driver.Record) { to.Result[len(to.Result)/2] ^= 1 }},
		"cut off":                     {nil, func(_, to *driver.Record) { to.Result = to.Result[:5] }},
		"nothing":                     {nil, func(_, to *driver.Record) { to.Result = nil }},
		"sealed, but not said to be":  {nil, func(_, to *driver.Record) { to.Encoding = "json" }},
		"Final, but not said to be":   {idempotent.Final("declined", private), func(_, to *driver.Record) { to.Encoding = "final" }},
		"in clear, but said to be so": {nil, func(_, to *driver.Record) { to.Result = []byte(`"x"`) }},
	} {
		s, from, to := memstore.New(), newKey(), newKey()
		g, _ := newGuardOver(t, s, sealer.Option)
		for _, key := range []idempotent.Key{from, to} {
			if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return private, row.end }); !errors.Is(err, row.end) {
				t.Fatal(err)
			}
		}
		change(t, s, to, func(r *driver.Record) { row.move(record(t, s, from), r) })
		got, err := idempotent.Do(t.Context(), g, to, forbidden(t))
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
	sealer, w := kit.NewSealer(), newOldFixture()
	w.key = idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: w.key.Fingerprint}
	var bound []string
	note := func(_ context.Context, _, b []byte) error {
		bound = append(bound, string(b))
		return nil
	}
	sealer.BeforeSeal, sealer.BeforeOpen = note, note
	g := w.guard(t, sealer.Option)
	for range 2 {
		if _, err := w.do(t, g, func(ctx context.Context) (string, error) {
			v, err := idempotent.Step(ctx, "pay/1", func(context.Context) (string, error) { return "ch_1", nil })
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
	w := newOldFixture()
	rerun := func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"pay"} }
	w.dies(t, rerun, func(ctx context.Context) {
		if _, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return "ch_1", nil }); err != nil {
			t.Error(err)
		}
	})
	w.clock.Advance(time.Hour)
	sealer := kit.NewSealer()
	sealed, plain := w.guard(t, rerun, sealer.Option), w.guard(t, rerun)
	out, err := w.do(t, sealed, func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "pay", forbidden(t)) })
	if err != nil || out.Value != "ch_1" || w.record(t).Encoding != "json+sealed" {
		t.Errorf("the step from before is %q (%v), and the result is stored as %q", out.Value, err, w.record(t).Encoding)
	}

	w.key = newKey()
	if _, err := w.do(t, plain, func(context.Context) (string, error) { return "ch_2", nil }); err != nil {
		t.Fatal(err)
	}
	opened := sealer.Opened()
	out, err = w.do(t, sealed, forbidden(t))
	if err != nil || out.Value != "ch_2" || !out.Replayed || sealer.Opened() != opened {
		t.Errorf("a result from before is replayed as %+v, %v", out, err)
	}
	if err := sealed.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved("ch_2")); err != nil {
		t.Errorf("the same result as evidence: %v", err)
	}
}

// A record declares that its operation seals. A guard without the Sealer then
// stores no evidence in clear; evidence without a result needs no key.
func TestEvidenceAboutASealingOperation(t *testing.T) {
	t.Parallel()
	sealer := kit.NewSealer()
	seals := func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Reconcile, []string{"pay"} }
	for name, row := range map[string]struct {
		codec    idempotent.Codec
		evidence func(r *driver.Record) idempotent.Resolution
		refused  bool
	}{
		"a result":            {nil, func(*driver.Record) idempotent.Resolution { return idempotent.Resolved(private) }, true},
		"a result of a codec": {raw{}, func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedWith(raw{}, private) }, true},
		"Final":               {nil, func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedFinal("declined", private) }, true},
		"a step":              {nil, func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedStep("pay", private) }, true},
		"a corrected step":    {nil, func(*driver.Record) idempotent.Resolution { return idempotent.CorrectedStep("pay", private) }, true},
		"no result":           {nil, func(*driver.Record) idempotent.Resolution { return idempotent.ResolvedWithoutResult() }, false},
		"nothing happened":    {nil, func(r *driver.Record) idempotent.Resolution { return idempotent.ProvenNotExecuted(r.Token()) }, false},
	} {
		w := newOldFixture()
		codec := func(o *idempotent.Options) { o.Codec = row.codec }
		if _, err := w.do(t, w.guard(t, seals, codec, sealer.Option), noAnswer); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		w.clock.Advance(time.Hour)
		before := w.record(t)
		if want := map[bool]string{true: "raw+sealed", false: "json+sealed"}[row.codec != nil]; before.Codec != want {
			t.Errorf("%s: the operation declared %q, want %q", name, before.Codec, want)
		}
		err := w.guard(t).Resolve(t.Context(), before.ID, row.evidence(before))
		after := w.record(t)
		switch {
		case row.refused && (err == nil || !strings.Contains(err.Error(), "Options.Seal") || strings.Contains(err.Error(), private) || after.Version != before.Version):
			t.Errorf("%s: got error %v, and the record is %s", name, err, after.State)
		case !row.refused && (err != nil || after.Version == before.Version):
			t.Errorf("%s: %v", name, err)
		case after.Codec != before.Codec:
			t.Errorf("%s: the record now declares %q", name, after.Codec)
		}
	}

	// A guard with the Sealer also seals evidence about an operation that did not.
	w := newOldFixture()
	d := newLoggedStore(w.Store)
	if _, err := w.do(t, w.guard(t), noAnswer); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	g, _ := newGuardOver(t, d.Store, func(o *idempotent.Options) { o.Now = w.clock.Now }, sealer.Option)
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved(private)); err != nil {
		t.Fatal(err)
	}
	d.wantPrivate(t, "evidence about an operation that does not seal")
	if r := w.record(t); r.Codec != "json+sealed" || r.Encoding != "json+sealed" {
		t.Errorf("the record declares %q and holds %q", r.Codec, r.Encoding)
	}
}

// broken are ways in which a Sealer fails.
var brokenSeals = map[string]func(ctx context.Context, plain, bound []byte) error{
	"an error": func(context.Context, []byte, []byte) error { return errDown },
	"a panic":  func(_ context.Context, plain, _ []byte) error { panic(string(plain)) },
	"no reply": func(ctx context.Context, _, _ []byte) error {
		<-ctx.Done()
		return ctx.Err()
	},
}

// G14: if sealing fails, the effect has happened. Its caller gets the outcome, which is
// stored without the result, and nothing is stored or logged in clear.
func TestSealingFails(t *testing.T) {
	t.Parallel()
	for name, fail := range brokenSeals {
		for ending, row := range endings {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				d, key, sealer := newLoggedStore(memstore.New()), newKey(), kit.NewSealer()
				sealer.BeforeSeal = fail
				g, events := newGuardOver(t, d.Store, append(row.optFns, sealer.Option)...)
				g, err := g.With(func(o *idempotent.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&log, nil))
					o.Observer = event.Observers(events, event.LogObserver(o.Logger))
				})
				if err != nil {
					t.Fatal(err)
				}
				handler := row.handler
				if handler == nil {
					handler = func(context.Context, *loggedStore) (string, error) { return "", errDown }
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				out, err := idempotent.DoOutcome(ctx, g, key, func(ctx context.Context) (string, error) { return handler(ctx, d) })
				r := record(t, d, key)
				switch {
				case row.handler == nil:
					err := g.Resolve(ctx, key.RecordID(), row.evidence)
					var failed *idempotent.StoreError
					if !errors.As(err, &failed) || failed.Op != driver.OpSeal || failed.Entered || record(t, d, key).Version != r.Version {
						t.Errorf("%s, %s: got error %v", name, ending, err)
					}
				case strings.Contains(ending, "transaction"):
					if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "Options.Seal: seal failed") ||
						!strings.Contains(err.Error(), "the handler was entered") || r.State != driver.StateUnknown {
						t.Errorf("%s, %s: got error %v, and the record is %s", name, ending, err, r.State)
					}
				default:
					if out.Value != row.value || out.Stored || fmt.Sprint(err) != orNil(row.final) || r.Encoding != driver.EncodingOmitted || r.State != driver.StateCompleted {
						t.Errorf("%s, %s: got %+v, %v, and the record is %s, %q", name, ending, brief(out.Value), err, r.State, r.Encoding)
					}
					if events.Count(event.CompletionFailed) != 1 || events.Count(event.Completed) != 1 {
						t.Errorf("%s, %s: events %v", name, ending, events.Kinds())
					}
					_, err := idempotent.Do(ctx, g, key, forbidden(t))
					wantUnavailable(t, err, "the result could not be stored")
				}
				d.wantPrivate(t, name+", "+ending)
				if strings.Contains(log.String(), private) {
					t.Errorf("%s, %s: the log contains the result", name, ending)
				}
			})
		}
	}
}

// A Sealer that does not answer gets half of the time left. The rest is for the
// store.
func TestSealingTakesHalfOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var given time.Duration
		sealer := kit.NewSealer()
		sealer.BeforeSeal = func(ctx context.Context, _, _ []byte) error {
			deadline, _ := ctx.Deadline()
			given = time.Until(deadline)
			return nil
		}
		g, _ := newGuardOver(t, memstore.New(), sealer.Option)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := idempotent.Do(ctx, g, newKey(), charged); err != nil || given != 5*time.Second {
			t.Errorf("the Sealer had %s, %v", given, err)
		}
	})
}

// A step whose result cannot be sealed is not recorded as finished, and its
// handler gets an error. A transaction is not sent.
func TestSealingAStepFails(t *testing.T) {
	t.Parallel()
	for name, fail := range brokenSeals {
		synctest.Test(t, func(t *testing.T) {
			d, key, sealer := newLoggedStore(memstore.New()), newKey(), kit.NewSealer()
			sealer.BeforeSeal = fail
			g, events := newGuardOver(t, d.Store, sealer.Option)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (string, error) {
				v, err := idempotent.CommitStep(ctx, "book", private, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
					t.Error("the transaction was sent")
					return nil, nil
				})
				wantStepError(t, err, "book", "the result cannot be recorded: ")
				if v != private {
					t.Errorf("%s: the transaction's step returned %q", name, v)
				}
				v, err = idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return private, nil })
				wantStepError(t, err, "pay", "the result cannot be recorded: ")
				if v != private {
					t.Errorf("%s: the step returned %q", name, v)
				}
				return "", err
			})
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			r := record(t, d, key)
			if s, found := r.Step("pay"); !found || s.Finished || r.State != driver.StateUnknown || len(r.Steps) != 1 {
				t.Errorf("%s: the record is %s with the steps %+v", name, r.State, r.Steps)
			}
			if err := g.Resolve(ctx, key.RecordID(), idempotent.ResolvedStep("pay", private)); !errors.As(err, new(*idempotent.StoreError)) || events.Count(event.StoreError) != 1 {
				t.Errorf("%s: evidence got %v, events %v", name, err, events.Kinds())
			}
			d.wantPrivate(t, name)
		})
	}
}

// Sealed bytes count against the limit of a step's result.
func TestSealedStepLimit(t *testing.T) {
	t.Parallel()
	for size, fits := range map[sealedSize]bool{64 << 10: true, 64<<10 + 1: false} {
		g, _ := newGuard(t, func(o *idempotent.Options) { o.Seal = size })
		if _, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
			_, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return "ch_1", nil })
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

// If a result cannot be opened now, the caller is asked to try again, and nothing
// runs. If it can never be opened, the caller learns that.
func TestOpeningFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fail  func(ctx context.Context, sealed, bound []byte) error
		never bool
	}{
		"throttled": {func(context.Context, []byte, []byte) error { return errDown }, false},
		"a panic":   {func(context.Context, []byte, []byte) error { panic("nil pointer") }, false},
		"broken": {func(context.Context, []byte, []byte) error {
			return fmt.Errorf("%w: key deleted", idempotent.ErrSealBroken)
		}, true},
	} {
		for ending, end := range endings {
			d, key, sealer := newLoggedStore(memstore.New()), newKey(), kit.NewSealer()
			g, _ := newGuardOver(t, d.Store, append(end.optFns, sealer.Option)...)
			if end.handler == nil {
				continue
			}
			if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) { return end.handler(ctx, d) }); fmt.Sprint(err) != orNil(end.final) {
				t.Fatal(err)
			}
			sealer.BeforeOpen = row.fail
			got, err := idempotent.Do(t.Context(), g, key, forbidden(t))
			_, data, shown := g.StoredOutcome(t.Context(), *record(t, d, key))
			if got != "" || data != nil {
				t.Errorf("%s, %s: got %q and %q", name, ending, got, data)
			}
			for _, err := range []error{err, shown} {
				var later *idempotent.StoreError
				switch {
				case row.never:
					wantUnavailable(t, err, "it is sealed and cannot be opened: ")
				case !errors.As(err, &later) || later.Op != driver.OpOpen || later.Entered || later.RecordID != key.RecordID():
					t.Errorf("%s, %s: got error %#v, want StoreError", name, ending, err)
				}
			}
			sealer.BeforeOpen = nil
			if got, err := idempotent.Do(t.Context(), g, key, forbidden(t)); got != end.value || fmt.Sprint(err) != orNil(end.final) {
				t.Errorf("%s, %s: afterwards got %q, %v", name, ending, brief(got), err)
			}
		}
	}
}

// A step that cannot be opened does not run, and its handler gets the reason.
func TestOpeningAStepFails(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	resume := func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"pay", "book"} }
	g := w.guard(t, resume, sealer.Option)
	w.dies(t, func(o *idempotent.Options) { resume(o); sealer.Option(o) }, func(ctx context.Context) {
		_, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return private, nil })
		_, booked := idempotent.CommitStep(ctx, "book", private, w.Replace)
		if err != nil || booked != nil {
			t.Error(err, booked)
		}
	})
	w.clock.Advance(time.Hour)
	sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
	_, err := w.do(t, g, func(ctx context.Context) (string, error) {
		v, err := idempotent.Step(ctx, "pay", forbidden(t))
		b, booked := idempotent.CommitStep(ctx, "book", "", w.Replace)
		for _, err := range []error{err, booked} {
			var later *idempotent.StoreError
			if v != "" || b != "" || !errors.As(err, &later) || later.Op != driver.OpOpen || !later.Entered {
				t.Errorf("got %q, %q and error %#v, want StoreError", v, b, err)
			}
		}
		return "", err
	})
	if !errors.Is(err, errDown) || w.record(t).State != driver.StateRetryable {
		t.Errorf("got error %v, and the record is %s", err, w.record(t).State)
	}
	if finished, err := g.Pending(*w.record(t)).Step(t.Context(), "pay", new(string)); !finished || !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("a resolver got %t, %v", finished, err)
	}
	sealer.BeforeOpen = nil
	out, err := w.do(t, g, func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "pay", forbidden(t)) })
	if err != nil || out.Value != private {
		t.Errorf("afterwards got %+v, %v", out, err)
	}
}

// A handler whose outcome meets another one gets that one. If it cannot be opened,
// the error says that the handler was entered.
func TestStandingOutcomeCannotBeOpened(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	g := w.guard(t, sealer.Option)
	_, err := w.do(t, g, func(ctx context.Context) (string, error) {
		w.clock.Advance(time.Hour)
		if err := g.Resolve(ctx, w.key.RecordID(), idempotent.Resolved(private)); err != nil {
			t.Error(err)
		}
		sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
		return private, nil
	})
	var later *idempotent.StoreError
	if !errors.As(err, &later) || later.Op != driver.OpOpen || !later.Entered {
		t.Errorf("got error %v, want a StoreError of an entered handler", err)
	}
}

// Evidence is compared with the sealed outcome in clear: equal results are stored
// as different bytes.
func TestEvidenceMeetsASealedOutcome(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		first, second idempotent.Resolution
		agreed        bool
	}{
		"the same":              {idempotent.Resolved(private), idempotent.Resolved(private), true},
		"the same, large":       {idempotent.Resolved(wordy()), idempotent.Resolved(wordy()), true},
		"the same Final":        {idempotent.ResolvedFinal("a", private), idempotent.ResolvedFinal("a", private), true},
		"no result twice":       {idempotent.ResolvedWithoutResult(), idempotent.ResolvedWithoutResult(), true},
		"another":               {idempotent.Resolved(private), idempotent.Resolved("other"), false},
		"another, large":        {idempotent.Resolved(wordy()), idempotent.Resolved(wordy() + "."), false},
		"another Final":         {idempotent.ResolvedFinal("a", private), idempotent.ResolvedFinal("b", private), false},
		"Final and a result":    {idempotent.ResolvedFinal("a", private), idempotent.Resolved(private), false},
		"a result and Final":    {idempotent.Resolved(private), idempotent.ResolvedFinal("a", private), false},
		"a result and then not": {idempotent.Resolved(private), idempotent.ResolvedWithoutResult(), false},
	} {
		w, sealer := newOldFixture(), kit.NewSealer()
		d := newLoggedStore(w.Store)
		g, events := newGuardOver(t, d.Store, func(o *idempotent.Options) { o.Now = w.clock.Now }, sealer.Option)
		if _, err := w.do(t, g, noAnswer); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		id := w.key.RecordID()
		if err := g.Resolve(t.Context(), id, row.first); err != nil {
			t.Fatal(err)
		}
		before := w.record(t).Version
		err := g.Resolve(t.Context(), id, row.second)
		if row.agreed != (err == nil) || !row.agreed && !errors.As(err, new(*idempotent.SettledError)) || w.record(t).Version != before {
			t.Errorf("%s: got error %v", name, err)
		}
		if events.Count(event.Resolved) != 1 || (events.Count(event.Contradicted) == 0) != row.agreed {
			t.Errorf("%s: events %v", name, events.Kinds())
		}
		if isNone := strings.Contains(name, "no result") || strings.Contains(name, "then not"); isNone {
			continue
		}
		// What cannot be compared now is compared later.
		sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
		var later *idempotent.StoreError
		if err := g.Resolve(t.Context(), id, row.second); !errors.As(err, &later) || later.Op != driver.OpOpen || w.record(t).Version != before {
			t.Errorf("%s: got error %v, want StoreError", name, err)
		}
		// What can never be compared is another outcome.
		sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return idempotent.ErrSealBroken }
		if err := g.Resolve(t.Context(), id, row.second); !errors.As(err, new(*idempotent.SettledError)) || w.record(t).Version != before {
			t.Errorf("%s: got error %v, want SettledError", name, err)
		}
	}
}

// Evidence about a step is compared with its sealed result in clear.
func TestEvidenceMeetsASealedStep(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	g := w.guard(t, sealer.Option)
	w.dies(t, sealer.Option, func(ctx context.Context) {
		if _, err := idempotent.Step(ctx, "pay", func(context.Context) (string, error) { return private, nil }); err != nil {
			t.Error(err)
		}
	})
	w.clock.Advance(time.Hour)
	id := w.key.RecordID()
	for name, row := range map[string]struct {
		open     error
		evidence idempotent.Resolution
		want     error
	}{
		"the same":                          {nil, idempotent.ResolvedStep("pay", private), nil},
		"the same as a correction":          {nil, idempotent.CorrectedStep("pay", private), nil},
		"another":                           {nil, idempotent.ResolvedStep("pay", "other"), new(idempotent.SettledError)},
		"the same, later":                   {errDown, idempotent.ResolvedStep("pay", private), new(idempotent.StoreError)},
		"a correction, later":               {errDown, idempotent.CorrectedStep("pay", private), new(idempotent.StoreError)},
		"the same as what cannot be opened": {idempotent.ErrSealBroken, idempotent.ResolvedStep("pay", private), new(idempotent.SettledError)},
	} {
		before := w.record(t).Version
		sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return row.open }
		err := g.Resolve(t.Context(), id, row.evidence)
		if fmt.Sprintf("%T", err) != fmt.Sprintf("%T", row.want) || w.record(t).Version != before {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	// A correction replaces another result, and one that can no longer be opened.
	for _, open := range []error{nil, idempotent.ErrSealBroken} {
		before := w.record(t).Version
		sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return open }
		if err := g.Resolve(t.Context(), id, idempotent.CorrectedStep("pay", "corrected")); err != nil || w.record(t).Version == before {
			t.Errorf("a correction, opening returns %v: %v", open, err)
		}
	}
	sealer.BeforeOpen = nil
	var got string
	if _, err := g.Pending(*w.record(t)).Step(t.Context(), "pay", &got); err != nil || got != "corrected" {
		t.Errorf("the step's result is %q, %v", got, err)
	}
}

// Results that are not sealed, and evidence without a result, are compared without
// reading or opening anything. If a large sealed result cannot be read now, it is
// compared later.
func TestEvidenceReadsNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		seals         bool
		first, second idempotent.Resolution
		want          error
	}{
		"not sealed":            {false, idempotent.Resolved(wordy()), idempotent.Resolved(wordy()), nil},
		"without a result":      {true, idempotent.Resolved(wordy()), idempotent.ResolvedWithoutResult(), new(idempotent.SettledError)},
		"without a result, too": {true, idempotent.ResolvedWithoutResult(), idempotent.ResolvedWithoutResult(), nil},
		"sealed":                {true, idempotent.Resolved(wordy()), idempotent.Resolved(wordy()), new(idempotent.StoreError)},
	} {
		w, sealer := newOldFixture(), kit.NewSealer()
		d := newLoggedStore(w.Store)
		g, _ := newGuardOver(t, d.Store, func(o *idempotent.Options) {
			if o.Now = w.clock.Now; row.seals {
				o.Seal = sealer
			}
		})
		if _, err := w.do(t, g, noAnswer); !errors.Is(err, errDown) {
			t.Fatal(err)
		}
		if err := g.Resolve(t.Context(), w.key.RecordID(), row.first); err != nil {
			t.Fatal(err)
		}
		d.reading = errDown
		if err := g.Resolve(t.Context(), w.key.RecordID(), row.second); fmt.Sprintf("%T", err) != fmt.Sprintf("%T", row.want) || sealer.Opened() != 0 {
			t.Errorf("%s: got error %v, and %d results were opened", name, err, sealer.Opened())
		}
	}
}

// An outcome whose first write meets another one is sealed once.
func TestSealedOnce(t *testing.T) {
	t.Parallel()
	s, key, sealer := watch(), newKey(), kit.NewSealer()
	g, _ := newGuardOver(t, s, sealer.Option)
	ids := s.interrupted(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
	if _, err := idempotent.Do(t.Context(), g, key, charged); err != nil || len(*ids) != 2 || sealer.Seals() != 1 {
		t.Errorf("%v after %d writes and %d seals", err, len(*ids), sealer.Seals())
	}
	s.replace = nil
	if got, err := idempotent.Do(t.Context(), g, key, forbidden(t)); err != nil || got != "ch_1" {
		t.Errorf("a replay is %q, %v", got, err)
	}
}

// A Sealer gets a live context, also if the caller's has no deadline.
func TestSealingWithoutADeadline(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	sealer.BeforeSeal = func(ctx context.Context, _, _ []byte) error { return ctx.Err() }
	g := w.guard(t, sealer.Option)
	if _, err := w.do(t, g, noAnswer); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	if err := g.Resolve(context.Background(), w.key.RecordID(), idempotent.Resolved(private)); err != nil {
		t.Error(err)
	}
}

// An owner that finishes late and agrees with evidence contradicts nothing.
func TestLateOutcomeMeetsSealedEvidence(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		result       string
		contradicted int
	}{"the same": {private, 0}, "another": {"other", 1}} {
		w, sealer := newOldFixture(), kit.NewSealer()
		g, events := newGuardOver(t, w.Store, func(o *idempotent.Options) { o.Now = w.clock.Now }, sealer.Option)
		out, err := w.do(t, g, func(ctx context.Context) (string, error) {
			w.clock.Advance(time.Hour)
			if err := g.Resolve(ctx, w.key.RecordID(), idempotent.Resolved(private)); err != nil {
				t.Error(err)
			}
			return row.result, nil
		})
		if err != nil || out.Value != private || events.Count(event.Contradicted) != row.contradicted {
			t.Errorf("%s: got %+v, %v, events %v", name, out, err, events.Kinds())
		}
	}
}

// A transaction without a reply is sealed anew when the handler tries it again.
// Whichever try was applied, every caller gets its result.
func TestSealedTransactionInDoubt(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{"small": private, "large": wordy()} {
		for _, cached := range []int{0, 10} {
			s, key, sealer := newLoggedStore(memstore.New()), newKey(), kit.NewSealer()
			g, _ := newGuardOver(t, s.Store, sealer.Option, func(o *idempotent.Options) { o.CacheEntries = cached })
			tries := 0
			lossy := func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				met, err := s.Replace(ctx, next, was)
				if tries++; tries == 1 {
					return nil, errLost
				}
				return met, err
			}
			out, err := idempotent.DoOutcome(t.Context(), g, key, func(ctx context.Context) (string, error) {
				if err := commit(ctx, result, lossy); !errors.Is(err, errLost) {
					t.Errorf("%s: the first Commit returned %v", name, err)
				}
				return result, commit(ctx, result, lossy)
			})
			if err != nil || out.Value != result || !out.Stored || tries != 2 || sealer.Seals() != 2 {
				t.Errorf("%s: got %q, %v after %d tries and %d seals", name, brief(out.Value), err, tries, sealer.Seals())
			}
			for range 2 {
				if got, err := idempotent.Do(t.Context(), g, key, forbidden(t)); err != nil || got != result {
					t.Errorf("%s: a replay is %q, %v", name, brief(got), err)
				}
			}
			s.wantPrivate(t, name)
		}
	}
	// The same for a step.
	w, sealer := newOldFixture(), kit.NewSealer()
	tries := 0
	out, err := w.do(t, w.guard(t, sealer.Option), func(ctx context.Context) (string, error) {
		lossy := func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			met, err := w.Replace(ctx, next, was)
			if tries++; tries == 1 {
				return nil, errLost
			}
			return met, err
		}
		if _, err := idempotent.CommitStep(ctx, "book", private, lossy); !errors.Is(err, errLost) {
			t.Errorf("the first CommitStep returned %v", err)
		}
		return idempotent.CommitStep(ctx, "book", private, lossy)
	})
	if err != nil || out.Value != private || tries != 2 {
		t.Errorf("got %+v, %v after %d tries", out, err, tries)
	}
}

// A sealed record in the cache is opened for every replay, and refused like one
// from the store.
func TestSealedCache(t *testing.T) {
	t.Parallel()
	s, key, sealer := watch(), newKey(), kit.NewSealer()
	g, _ := newGuardOver(t, s, sealer.Option, func(o *idempotent.Options) { o.CacheEntries = 10 })
	for i := range 3 {
		out, err := idempotent.DoOutcome(t.Context(), g, key, func(context.Context) (map[string]any, error) {
			return map[string]any{"n": 1.5, "card": private}, nil
		})
		if err != nil || out.Value["card"] != private || out.Value["n"] != json.Number("1.5") || sealer.Opened() != i {
			t.Errorf("request %d got %v, %v, and %d results were opened", i, out.Value, err, sealer.Opened())
		}
	}
	sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
	if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (map[string]any, error) { return nil, nil }); !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("got error %v, want StoreError", err)
	}
	wantCalls(t, s, "insert", "replace")
}

// A result of a step with an untyped part is the same in the first run and in
// each replay.
func TestSealedUntypedStep(t *testing.T) {
	t.Parallel()
	w, sealer := newOldFixture(), kit.NewSealer()
	g := w.guard(t, sealer.Option, func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"pay", "book"} })
	for range 2 {
		_, _ = w.do(t, g, func(ctx context.Context) (string, error) {
			paid, err := idempotent.Step(ctx, "pay", func(context.Context) (map[string]any, error) { return map[string]any{"n": 1.5}, nil })
			booked, err2 := idempotent.CommitStep(ctx, "book", map[string]any{"n": 2.5}, w.Replace)
			if err != nil || err2 != nil || paid["n"] != json.Number("1.5") || booked["n"] != json.Number("2.5") {
				t.Errorf("got %#v, %v and %#v, %v", paid, err, booked, err2)
			}
			return "", errDown
		})
	}
}
