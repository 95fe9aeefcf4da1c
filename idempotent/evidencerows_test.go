package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// alias is the codec raw under another name.
type alias struct {
	raw
	name string
}

func (n alias) Name() string { return n.name }

// Evidence is encoded with the codec that the operation declared, or with one
// that the guard's own options declare.
func TestEvidenceCodecs(t *testing.T) {
	t.Parallel()
	codec := func(c idempotent.Codec) func(*idempotent.Options) {
		return func(o *idempotent.Options) {
			if c != nil {
				o.Codec = c
			}
		}
	}
	a, b, c, likeJSON := alias{name: "a"}, alias{name: "b"}, alias{name: "c"}, alias{name: "json"}
	for name, row := range map[string]struct {
		operation, guard idempotent.Codec // nil: JSON
		evidence         idempotent.Resolution
		stored           string // encoding of the result; empty: refused
		declared         string // the record's codec afterwards
	}{
		"JSON":                             {nil, nil, idempotent.Resolved("x"), "json", ""},
		"the operation's, by the guard":    {a, a, idempotent.Resolved("x"), "a", "a"},
		"the operation's, by the evidence": {a, nil, idempotent.ResolvedWith(a, "x"), "a", "a"},
		"another one of the guard":         {a, b, idempotent.Resolved("x"), "b", "b"},
		"another one, named by both":       {a, b, idempotent.ResolvedWith(b, "x"), "b", "b"},
		"one of the guard, for JSON":       {nil, b, idempotent.ResolvedWith(b, "x"), "b", "b"},
		"one named json":                   {a, likeJSON, idempotent.Resolved("x"), "json", ""},
		"JSON for another":                 {a, nil, idempotent.Resolved("x"), "", "a"},
		"one named json for another":       {a, nil, idempotent.ResolvedWith(likeJSON, "x"), "", "a"},
		"neither's":                        {a, b, idempotent.ResolvedWith(c, "x"), "", "a"},
		"not JSON":                         {nil, nil, idempotent.ResolvedWith(c, "x"), "", ""},
		"without a result":                 {a, nil, idempotent.ResolvedWithoutResult(), driver.EncodingOmitted, "a"},
	} {
		w := newWorkshop()
		if _, err := w.do(t, w.guard(t, codec(row.operation)), noAnswer); err == nil {
			t.Fatal("the error was swallowed")
		}
		err := w.guard(t, codec(row.guard)).Resolve(t.Context(), w.key.RecordID(), row.evidence)
		r := w.record(t)
		if (err == nil) != (row.stored != "") || r.Encoding != row.stored || r.Codec != row.declared {
			t.Errorf("%s: error %v, the result is stored as %q by an operation of codec %q; want %q and %q", name, err, r.Encoding, r.Codec, row.stored, row.declared)
		}
	}
}

// The same evidence again is not a contradiction; with another result version it
// is, if there is a result to decode.
func TestEvidenceAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		evidence, again idempotent.Resolution
		version         string // of the second guard
		agrees          bool
	}{
		"a result":                             {idempotent.Resolved("x"), idempotent.Resolved("x"), "1", true},
		"another result":                       {idempotent.Resolved("x"), idempotent.Resolved("y"), "1", false},
		"a result of another version":          {idempotent.Resolved("x"), idempotent.Resolved("x"), "2", false},
		"Final, from another version":          {idempotent.ResolvedFinal("a", "b"), idempotent.ResolvedFinal("a", "b"), "2", true},
		"without a result, by another version": {idempotent.ResolvedWithoutResult(), idempotent.ResolvedWithoutResult(), "2", true},
		"a result, then none":                  {idempotent.Resolved("x"), idempotent.ResolvedWithoutResult(), "1", false},
	} {
		w := newWorkshop()
		version := func(v string) func(*idempotent.Options) {
			return func(o *idempotent.Options) { o.ResultVersion = v }
		}
		g := w.guard(t, version("1"))
		if _, err := w.do(t, g, noAnswer); err == nil {
			t.Fatal("the error was swallowed")
		}
		if err := g.Resolve(t.Context(), w.key.RecordID(), row.evidence); err != nil {
			t.Fatal(name, err)
		}
		before := w.record(t).Version
		err := w.guard(t, version(row.version)).Resolve(t.Context(), w.key.RecordID(), row.again)
		if row.agrees != (err == nil) || !row.agrees && !errors.As(err, new(*idempotent.SettledError)) || w.record(t).Version != before {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// Evidence while the lease is live keeps the record for the lease, however short
// the retention is: a handler may still be at work.
func TestEvidenceKeepsTheRecordForTheLease(t *testing.T) {
	t.Parallel()
	w := newWorkshop()
	g := w.guard(t, func(o *idempotent.Options) { o.Retention = time.Second })
	if _, err := w.do(t, g, func(context.Context) (string, error) { return "", idempotent.Unknown(errDown) }); err == nil {
		t.Fatal("the error was swallowed")
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved("x")); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); r.State != driver.StateCompleted || r.Expires.Before(r.LeaseEnd) {
		t.Errorf("the record is %s and expires %s before its lease ends", r.State, r.LeaseEnd.Sub(r.Expires))
	}
}

// What evidence about a step writes: when, in which mode, and nothing else of the
// record. The same evidence again writes nothing.
func TestStepEvidenceIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorkshop()
	declare := func(o *idempotent.Options) { o.Steps = []string{"charge"} }
	w.dies(t, declare, func(ctx context.Context) {
		_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errDown }, atMostOnce)
	})
	w.clock.Advance(time.Hour)
	g, events := newGuardOver(t, w.Store, declare, func(o *idempotent.Options) { o.Now = w.clock.Now })
	if _, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Later(time.Minute))); err != nil {
		t.Fatal(err)
	}
	before := w.record(t)
	for range 2 {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
			t.Fatal(err)
		}
	}
	r := w.record(t)
	s, _ := r.Step("charge")
	if !s.Finished || s.Mode != driver.AtMostOnce || s.By != driver.StepByEvidence || s.At.Before(before.Settled) {
		t.Errorf("the step: %+v", s)
	}
	if r.State != driver.StateUnknown || r.ReconcileAttempts != 1 || !r.Settled.Equal(before.Settled) {
		t.Errorf("the record is %s after %d attempts of reconciliation, since %s; want unknown, 1, %s", r.State, r.ReconcileAttempts, r.Settled, before.Settled)
	}
	var steps []string
	for _, e := range events.Events() {
		if e.Kind == event.Resolved {
			steps = append(steps, e.Step)
		}
	}
	if !slices.Equal(steps, []string{"charge"}) {
		t.Errorf("events of evidence about the steps %q, want one about charge", steps)
	}
}

// Evidence that cannot be used is refused, and its error says only what is wrong.
func TestEvidenceErrors(t *testing.T) {
	t.Parallel()
	w := newWorkshop()
	g := w.guard(t)
	w.dies(t, func(*idempotent.Options) {}, func(ctx context.Context) {
		// The handler is at work.
		err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved("x"))
		if early, ok := err.(*idempotent.InProgressError); !ok || early.RetryAfter < 5*time.Second || early.RetryAfter > 15*time.Second {
			t.Errorf("while the handler runs: %T %v", err, err)
		}
	})
	before := w.record(t).Version
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("a b", "x")); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("a step whose name is invalid: %v", err)
	}
	if w.record(t).Version != before {
		t.Error("the record was written")
	}
	for i := range 4 {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep(fmt.Sprint("s", i), letters(80_000))); err != nil {
			t.Fatal(err)
		}
	}
	before = w.record(t).Version
	err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("s4", letters(80_000)))
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "all steps") || w.record(t).Version != before {
		t.Errorf("results of more than 256 KB together: %v", err)
	}
}
