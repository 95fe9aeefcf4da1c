// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
)

// instead corrects the outcome of the attempt with this token, on the guard of f.
func (f *fixture) instead(r idempotent.Resolution, token string) error {
	return f.guard.Resolve(context.Background(), f.key.RecordID(), r.InsteadOf(wrong(token)))
}

// Every kind of outcome replaces every other one, large ones too. The record keeps its
// reference and its attempt, and is retained from the correction on.
func TestInsteadOf(t *testing.T) {
	t.Parallel()
	large := letters(20_000)
	for name, row := range map[string]struct {
		right idempotent.Resolution
		want  string // of a retry: the value or the error
	}{
		"a value":        {idempotent.Resolved("right"), "right"},
		"a large value":  {idempotent.Resolved(large), large},
		"a Final":        {idempotent.ResolvedFinal("no", "right"), "no: right"},
		"without result": {idempotent.ResolvedWithoutResult(), "cannot be replayed"},
	} {
		for _, first := range []string{"wrong", letters(30_000)} {
			f := newFixture(t)
			f = f.over(newChunked(f.Store), func(o *idempotent.Options) { o.CacheEntries = 10 })
			f.complete(first)
			_, _ = f.outcome(never[string]) // the cache has it
			f.kinds()
			before := f.record()
			if err := f.instead(row.right, before.Token()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r := f.record()
			if r.State != driver.StateCompleted || r.Reason != driver.ReasonResolved || r.Ref != "orders/1" || r.Attempt != 1 || r.Token() == before.Token() ||
				!r.Since.Equal(f.clock.Now()) || !r.Expires.Equal(f.clock.Now().Add(24*time.Hour)) || r.Fingerprint != before.Fingerprint {
				t.Errorf("%s: the record is %+v", name, r)
			}
			events := f.events.Events()
			if len(events) != 1 || events[0].Kind != event.Resolved || events[0].Actor != wrong("").Actor || events[0].Note != wrong("").Reason {
				t.Errorf("%s: events %+v", name, events)
			}
			out, err := f.outcome(never[string])
			if got := out.Value; err != nil && !strings.Contains(err.Error(), row.want) || err == nil && got != row.want {
				t.Errorf("%s: a retry gets %.50q, %v; want %.50q", name, got, err, row.want)
			}
			if err := f.instead(row.right, "any"); err != nil {
				t.Errorf("%s: the same again: %v", name, err)
			}
			if err := f.instead(idempotent.Resolved("third"), before.Token()); !errors.As(err, new(*idempotent.StaleEvidenceError)) {
				t.Errorf("%s: a second correction with the token: got error %v", name, err)
			}
		}
	}
}

// What cannot be corrected is refused, with what to do, and nothing is written.
func TestInsteadOfIsRefused(t *testing.T) {
	t.Parallel()
	correct := func(f *fixture, r idempotent.Resolution, change func(*idempotent.Correction)) error {
		c := wrong(f.record().Token())
		change(&c)
		return f.guard.Resolve(t.Context(), f.key.RecordID(), r.InsteadOf(c))
	}
	right, as := idempotent.Resolved("right"), func(*idempotent.Correction) {}
	completed := func(f *fixture) { f.complete("wrong") }
	for name, row := range map[string]struct {
		before func(*fixture)
		right  idempotent.Resolution
		change func(*idempotent.Correction)
		want   string
	}{
		"a step":          {completed, idempotent.ResolvedStep("a", 1), as, "use CorrectedStep"},
		"a correction":    {completed, idempotent.CorrectedStep("a", 1), as, "use CorrectedStep"},
		"not executed":    {completed, idempotent.ProvenNotExecuted("x"), as, "InsteadOf corrects an outcome"},
		"no evidence":     {completed, idempotent.Later(0), as, "InsteadOf corrects an outcome"},
		"no actor":        {completed, right, func(c *idempotent.Correction) { c.Actor = "" }, "InsteadOf: missing Actor"},
		"no reason":       {completed, right, func(c *idempotent.Correction) { c.Reason = "" }, "InsteadOf: missing Reason"},
		"another token":   {completed, right, func(c *idempotent.Correction) { c.Token = "x" }, "not about the current attempt (1)"},
		"unknown":         {func(f *fixture) { _, _ = f.do(returns(errDown)) }, right, as, "has no stored outcome; use the same evidence without InsteadOf"},
		"released":        {func(f *fixture) { _, _ = f.do(returns(idempotent.NotExecuted(errDown))) }, right, as, "has no stored outcome"},
		"the lease lives": {func(f *fixture) { _, _ = f.do(value("wrong")) }, right, as, "may still be running"},
		"expired":         {func(f *fixture) { f.complete("wrong"); f.clock.Advance(24 * time.Hour) }, right, as, "has expired"},
	} {
		f := newFixture(t)
		row.before(f)
		before := f.record()
		if err := correct(f, row.right, row.change); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %q", name, err, row.want)
		}
		if f.record().Version != before.Version {
			t.Errorf("%s: the record was written", name)
		}
	}
	for _, op := range []driver.Op{driver.OpReplace, driver.OpGetChunks} {
		f := newFixture(t)
		f = f.over(newChunked(f.Store), kit.NewSealer().Option) // so that outcomes are compared unsealed
		f.complete(letters(20_000))
		before := f.record()
		f.on(op, fail(errDown))
		if err := f.instead(idempotent.Resolved(letters(30_000)), before.Token()); !errors.As(err, new(*idempotent.StoreError)) || f.record().Version != before.Version {
			t.Errorf("%s fails: got error %v", op, err)
		}
	}
}

// Random histories of a key, 10,000 of them: requests, two operators who correct with tokens that
// they have read before, late webhooks, and Forget. No work runs because of a correction;
// the first correction that is accepted for a token stands; every retry gets what is
// stored; and each change has one event with its actor.
func TestCorrectionHistories(t *testing.T) {
	t.Parallel()
	accepted, stale, agreed, forgotten := 0, 0, 0, 0
	seeds := kit.Short(10_000, 1_000)
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		f := newFixture(t, func(o *idempotent.Options) { o.CacheEntries = 10 })
		other := f.with() // another party, without a cache
		runs, allowed, changes := 0, 1, 0
		stands, of := "", map[string]string{} // the stored outcome, and the correction accepted for each token
		var tokens [2]string                  // what each operator has read
		request := func(by *fixture) {
			v, err := by.do(func(context.Context) (string, error) {
				runs++
				stands = fmt.Sprint("run ", runs)
				return stands, nil
			})
			if err != nil || v != stands || runs > allowed {
				t.Errorf("seed %d: a request got %q, %v after %d runs of %d; %q is stored", seed, v, err, runs, allowed, stands)
			}
		}
		request(f)
		f.clock.Advance(time.Minute) // the lease has ended
		for range 12 {
			before := f.record()
			who := r.IntN(2)
			switch r.IntN(7) {
			case 0:
				request(f)
			case 1:
				request(other)
			case 2:
				tokens[who] = before.Token()
			case 3, 4:
				right := fmt.Sprint("correction ", r.IntN(3))
				err := f.instead(idempotent.Resolved(right), tokens[who])
				after := f.record()
				switch {
				case after.Version != before.Version:
					if err != nil || tokens[who] != before.Token() || of[tokens[who]] != "" {
						t.Errorf("seed %d: the correction for %s replaced %q: %v", seed, tokens[who], of[tokens[who]], err)
					}
					stands, of[tokens[who]], changes = right, right, changes+1
					accepted++
				case err == nil && right == stands:
					agreed++
				case errors.As(err, new(*idempotent.StaleEvidenceError)):
					stale++
				case before.State == driver.StateRetryable && err != nil:
				default:
					t.Errorf("seed %d: got error %v for %q; %q is stored", seed, err, right, stands)
				}
			case 5: // a webhook of the first run, in vain unless it agrees
				err := f.guard.Resolve(t.Context(), before.ID, idempotent.Resolved("run 1"))
				if before.State == driver.StateRetryable {
					stands, allowed = "run 1", runs // evidence, in place of the run that Forget allowed
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				} else if (err == nil) != (stands == "run 1") {
					t.Errorf("seed %d: the webhook: %v; %q is stored", seed, err, stands)
				}
			case 6:
				if r.IntN(3) > 0 {
					continue
				}
				err := f.guard.Forget(t.Context(), before.ID, wrong(tokens[who]))
				if after := f.record(); after.Version != before.Version {
					allowed, changes = runs+1, changes+1
					forgotten++
				} else if err == nil && before.State == driver.StateCompleted {
					t.Errorf("seed %d: Forget wrote nothing", seed)
				}
			}
			f.clock.Advance(time.Duration(r.IntN(90)) * time.Second)
		}
		byPeople := 0
		for _, e := range f.events.Events() {
			if e.Actor != "" {
				byPeople++
			}
		}
		if byPeople != changes {
			t.Errorf("seed %d: %d changes by people, and %d events of them", seed, changes, byPeople)
		}
	}
	t.Logf("%d corrections were accepted, %d were stale, %d agreed; %d outcomes were forgotten", accepted, stale, agreed, forgotten)
	if want := seeds / 10; min(accepted, stale, agreed, forgotten) < want {
		t.Errorf("want each %d times", want)
	}
}
