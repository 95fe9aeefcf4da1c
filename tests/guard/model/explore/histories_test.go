// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/internal/kit"
)

var (
	histories   = flag.Int("histories", 0, "how many histories of evidence to run; default: 10,000, with -short 1,000")
	historySeed = flag.Uint64("history", 0, "the seed of the only history to run")
)

// Evidence about steps and outcomes, corrections, kills, late owners, retries,
// reconcilers and Forget, in random orders: each piece of evidence is true, and
// comes once or twice, early or late. No effect happens twice, and no outcome
// changes until an operator discards it. In the end each key is settled by evidence
// that is given once.
func TestEvidenceHistories(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	n := cmp.Or(*histories, kit.Short(10_000, 1_000))
	first, last := uint64(1), uint64(n)
	if *historySeed != 0 {
		first, last = *historySeed, *historySeed
	}
	for seed := first; seed <= last; seed++ {
		h := newHistory(seed)
		h.run()
		if h.broken != "" {
			t.Errorf("go test ./tests/guard/model/explore -run TestEvidenceHistories -history %d: %s\n%s", seed, h.broken, strings.Join(h.story, "\n"))
			return
		}
		for what, n := range h.seen {
			seen[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[what], what)
	}
	if *historySeed != 0 {
		return
	}
	for _, what := range []string{
		"resolved step", "resolved step, early", "resolved step, twice", "corrected step", "resolved", "not executed", "stale", "too early", "settled",
		"killed", "late owner", "lost reply", "lost request", "forgotten", "reconciled", "unknown: interrupted", "unknown: unknown", "unknown: lease_ended",
		"ended by steps", "ended by the outcome", "ended by not executed", "ended by itself", "replayed", "taken over", "panicked",
	} {
		if seen[what] < n/200 {
			t.Errorf("%d times %q", seen[what], what)
		}
	}
}

// history is one key, its provider, and the parties that meet there.
type history struct {
	rng    *rand.Rand
	now    time.Time
	store  *memstore.Store
	fibers fibers
	story  []string
	seen   map[string]int
	broken string

	recovery idempotent.Recovery
	modes    map[string]bool // the steps: whether they run at most once
	faults   bool

	parties []*party // that have not ended
	count   int
	tokens  []string // of attempts that were proven not executed

	// Of the work since the last Forget.
	ledger  map[string]string // what the provider has done, by step, with its result
	outcome string            // that a caller got, or that is stored
	last    *driver.Record
}

// party is a request, a reconciler, an operator or a source of evidence.
type party struct {
	h       *history
	name    string
	job     *fiber
	ends    time.Time // of the lease, of a request
	inside  bool      // in its handler, or not known to have left it
	dead    bool
	request bool
	last    bool // it is alone, at the end: nothing may refuse it
	by      invariant.Writer
	owner   driver.Owner // of its claim
	about   string       // the attempt that its evidence names
}

var historySteps = []string{"charge", "ship", "mail"}

func newHistory(seed uint64) *history {
	h := &history{
		rng: rand.New(rand.NewPCG(seed, 30)), now: began, store: memstore.New(), seen: map[string]int{}, modes: map[string]bool{}, faults: true,
		ledger: map[string]string{},
	}
	h.recovery = []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume, idempotent.Resume, idempotent.Rerun}[h.rng.IntN(4)]
	for _, s := range historySteps {
		h.modes[s] = h.rng.IntN(3) > 0
	}
	return h
}

func (h *history) run() {
	defer h.fibers.end()
	h.say("recovery %s, steps at most once: %v", h.recovery, h.modes)
	h.begin(h.request())
	for range 40 + h.rng.IntN(60) {
		h.act()
		if h.broken != "" {
			break
		}
	}
	if h.broken == "" {
		h.end()
	}
	for _, p := range slices.Clone(h.parties) { // after a violation
		h.kill(p)
	}
}

// act lets something happen.
func (h *history) act() {
	switch n := h.rng.IntN(100); {
	case n < 68 && len(h.parties) > 0:
		h.resume(h.parties[h.rng.IntN(len(h.parties))])
	case n < 70 && len(h.parties) > 0:
		if p := h.parties[h.rng.IntN(len(h.parties))]; p.request {
			h.note("killed")
			h.say("%s is killed", p.name)
			h.kill(p)
		}
	case n < 76 && len(h.parties) < 3:
		h.begin(h.request())
	case n < 81:
		d := []time.Duration{time.Second, 5 * time.Second, WholeLease, time.Minute}[h.rng.IntN(4)]
		h.now = h.now.Add(d)
		h.say("the clock advances by %s", d)
	case n < 92:
		if p := h.evidence(); p != nil {
			h.begin(p)
		}
	case n < 96:
		h.begin(h.reconciler())
	default:
		for len(h.parties) > 0 && h.broken == "" {
			h.resume(h.parties[0])
		}
		if p := h.forgetter(); p != nil {
			h.begin(p)
		}
	}
}

// end is the end of a history: without faults, the parties come to their end, the
// lease passes and one sweep runs. Then there is evidence, each piece once, and a
// request runs or is answered.
func (h *history) end() {
	h.faults = false
	for len(h.parties) > 0 && h.broken == "" {
		p := h.parties[0]
		if p.request && h.rng.IntN(2) == 0 {
			h.kill(p)
		} else {
			h.resume(p)
		}
	}
	h.now = h.now.Add(WholeLease)
	h.alone(h.reconciler())
	how := "ended by itself"
	if r := h.record(); r != nil && r.State == driver.StateUnknown && h.broken == "" {
		if h.now = h.now.Add(WholeLease); r.Due.IsZero() && !r.Exhausted {
			h.fail("the unknown record is on no list")
		}
		pending := slices.DeleteFunc(slices.Clone(historySteps), func(name string) bool {
			s, _ := r.Step(name)
			return s.Finished || h.ledger[name] == ""
		})
		h.rng.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
		for _, name := range pending {
			h.alone(h.stepEvidence(name))
			how = "ended by steps"
		}
		if r = h.record(); h.broken == "" && r.State == driver.StateUnknown {
			switch {
			case h.recovery != idempotent.Reconcile && r.Reason != driver.ReasonUnknown && !h.opens(r):
				h.fail("the record is unknown (%s), and all its steps are finished by evidence", r.Reason)
			case len(h.ledger) == len(historySteps):
				h.alone(h.outcomeEvidence())
				how = "ended by the outcome"
			default:
				h.alone(h.notExecuted(r.Token()))
				how = "ended by not executed"
			}
		}
	}
	h.note(how)
	if h.broken != "" {
		return
	}
	h.alone(h.request())
	if r := h.record(); h.broken == "" && (r == nil || r.State != driver.StateCompleted || len(h.ledger) != len(historySteps)) {
		h.fail("in the end the record is %s, and the provider has done %v", stateOf(r), h.ledger)
	}
}

// opens reports whether a step of the record is open.
func (h *history) opens(r *driver.Record) bool {
	return slices.ContainsFunc(r.Steps, func(s driver.StepRecord) bool { return !s.Finished })
}

// alone runs a party from its beginning to its end.
func (h *history) alone(p *party) {
	p.last = true
	for h.begin(p); p.job.job != nil && h.broken == ""; {
		h.resume(p)
	}
}

func (h *history) begin(p *party) {
	h.count++
	p.name = fmt.Sprintf("%s %d", p.name, h.count)
	h.say("%s begins", p.name)
	h.parties = append(h.parties, p)
	h.resume(p)
}

func (h *history) resume(p *party) {
	if p.request && p.inside && !h.now.Before(p.ends) {
		h.note("late owner")
	}
	if p.job.resume(); p.job.job == nil {
		h.parties = slices.DeleteFunc(h.parties, func(other *party) bool { return other == p })
		h.fibers.free(p.job)
	}
}

// kill ends a party at once: what it still does while it unwinds has no effect.
func (h *history) kill(p *party) {
	for p.dead = true; p.job.job != nil; {
		p.job.resume()
	}
	h.parties = slices.DeleteFunc(h.parties, func(other *party) bool { return other == p })
	h.fibers.free(p.job)
}

// pause lets other parties act, and reports whether the party is still alive.
func (p *party) pause() bool {
	if !p.dead {
		p.job.rest()
	}
	return !p.dead
}

func (h *history) party(name string, job func(*party)) *party {
	p := &party{h: h, name: name}
	p.job = h.fibers.take(func() { job(p) })
	return p
}

func (h *history) guard(p *party) *idempotent.Guard {
	g, err := idempotent.New(idempotenttest.Intercept(h.store, p.storeCall), func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.LeaseMargin = h.recovery, historySteps, margin
		o.Logger, o.Now = discard, func() time.Time { return h.now }
	})
	if err != nil {
		panic(err)
	}
	return g
}

// request is a request whose handler takes the three steps.
func (h *history) request() *party {
	p := h.party("request", func(p *party) {
		ctx := invocation{context.Background(), h.now.Add(timeout)}
		p.ends = ctx.deadline.Add(margin)
		defer func() {
			if recover() != nil {
				p.inside = false
				h.note("panicked")
			}
		}()
		out, err := idempotent.DoOutcome(ctx, h.guard(p), key, func(ctx context.Context) (string, error) {
			p.inside = true
			return p.handler(ctx)
		})
		if p.inside = false; !p.dead {
			p.answered(out, err)
		}
	})
	p.request = true
	return p
}

func (p *party) handler(ctx context.Context) (string, error) {
	h := p.h
	if h.faults && h.rng.IntN(12) == 0 && p.pause() {
		return "", idempotent.NotExecuted(errFailed)
	}
	var results []string
	for _, name := range historySteps {
		v, err := idempotent.Step(ctx, name, func(ctx context.Context) (string, error) {
			return p.call(name, idempotent.DownstreamKey(ctx))
		}, func(o *idempotent.StepOptions) { o.AtMostOnce = h.modes[name] })
		if err != nil {
			return "", err
		}
		results = append(results, v)
		if h.faults && h.rng.IntN(4) == 0 {
			p.pause()
		}
	}
	if h.faults && h.rng.IntN(10) == 0 {
		return "", errFailed
	}
	return strings.Join(results, " "), nil
}

// call calls the provider. It honours the keys of the steps that may run again.
func (p *party) call(step, _ string) (string, error) {
	h := p.h
	n := 99
	if h.faults {
		p.pause()
		n = h.rng.IntN(24)
	}
	if p.dead {
		return "", errCrashed
	}
	if n == 0 {
		return "", idempotent.NotExecuted(errFailed)
	}
	if n == 1 {
		return "", errFailed // nothing happened, but the worker cannot know that
	}
	switch done := h.ledger[step]; {
	case done == "":
		h.ledger[step] = step + " 1"
	case h.modes[step]:
		h.fail("%s makes the effect of %s a second time", p.name, step)
	}
	h.say("%s: the provider does %s", p.name, step)
	if h.faults && !p.pause() {
		return "", errCrashed
	}
	switch n {
	case 2, 3, 4:
		return "", errFailed
	case 5:
		return "", idempotent.Unknown(errFailed)
	case 6:
		panic("no reply")
	}
	return h.ledger[step], nil
}

// answered checks what a caller got.
func (p *party) answered(out idempotent.Outcome[string], err error) {
	h := p.h
	h.say("%s got %q, %v", p.name, out.Value, err)
	if err != nil {
		return
	}
	if out.Replayed {
		h.note("replayed")
	}
	if len(h.ledger) != len(historySteps) {
		h.fail("%s succeeded, but the provider has only done %v", p.name, h.ledger)
	}
	if out.Stored && h.outcome != "" && h.outcome != out.Value {
		h.fail("%s got %q after %q was stored", p.name, out.Value, h.outcome)
	}
}

// evidence returns a source of a true statement; nil if there is nothing to state.
func (h *history) evidence() *party {
	var all []func() *party
	add := func(f func() *party) { all = append(all, f) }
	for _, name := range historySteps {
		if h.ledger[name] == "" {
			continue
		}
		add(func() *party { return h.stepEvidence(name) })
		add(func() *party { return h.stepEvidence(name) })
		if h.rng.IntN(4) == 0 {
			add(func() *party { return h.correction(name) })
		}
	}
	if len(h.ledger) == len(historySteps) {
		add(h.outcomeEvidence)
	}
	if r := h.record(); r != nil && h.provenNotExecuted(r) {
		h.tokens = append(h.tokens, r.Token())
		add(func() *party { return h.notExecuted(r.Token()) })
	}
	if len(h.tokens) > 0 && h.rng.IntN(2) == 0 {
		add(func() *party { return h.notExecuted(h.tokens[0]) }) // however late
	}
	if len(all) == 0 {
		return nil
	}
	return all[h.rng.IntN(len(all))]()
}

// provenNotExecuted reports whether no step of the record that is not finished had
// an effect, or can still have one.
func (h *history) provenNotExecuted(r *driver.Record) bool {
	if slices.ContainsFunc(h.parties, func(p *party) bool { return p.request }) {
		return false
	}
	return !slices.ContainsFunc(historySteps, func(name string) bool {
		s, _ := r.Step(name)
		return !s.Finished && h.ledger[name] != ""
	})
}

func (h *history) resolves(what string, by invariant.Writer, r idempotent.Resolution) *party {
	p := h.party(what, func(p *party) {
		times := 1
		if h.faults && h.rng.IntN(3) == 0 {
			times = 2
		}
		for range times {
			before := h.record()
			err := h.guard(p).Resolve(context.Background(), keyID, r)
			if p.dead {
				return
			}
			h.say("%s: %v", p.name, err)
			switch {
			case err == nil:
				h.note(what)
				if before != nil && before.State == driver.StateInProgress && h.now.Before(before.LeaseEnd) {
					h.note(what + ", early")
				}
				if times == 2 {
					h.note(what + ", twice")
				}
			case errors.As(err, new(*idempotent.StaleEvidenceError)):
				h.note("stale")
			case errors.As(err, new(*idempotent.InProgressError)):
				h.note("too early")
			case errors.As(err, new(*idempotent.SettledError)):
				h.note("settled")
			case p.last:
				h.fail("%s: %v", p.name, err)
			}
		}
	})
	p.by = by
	return p
}

func (h *history) stepEvidence(name string) *party {
	return h.resolves("resolved step", invariant.StepEvidence, idempotent.ResolvedStep(name, h.ledger[name]))
}

// correction says that the provider's result is another one than it said before.
func (h *history) correction(name string) *party {
	h.ledger[name] += "'"
	return h.resolves("corrected step", invariant.Correction, idempotent.CorrectedStep(name, h.ledger[name]))
}

func (h *history) outcomeEvidence() *party {
	return h.resolves("resolved", invariant.Evidence, idempotent.Resolved("found"))
}

func (h *history) notExecuted(token string) *party {
	p := h.resolves("not executed", invariant.Evidence, idempotent.ProvenNotExecuted(token))
	p.about = token
	return p
}

func (h *history) reconciler() *party {
	return h.party("reconciler", func(p *party) {
		p.by = invariant.Reconciler
		_, err := kit.Reconcile(context.Background(), h.guard(p), nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.Concurrency = true, 1 })
		if err == nil && !p.dead {
			h.note("reconciled")
		}
	})
}

// forgetter undoes all effects and discards the outcome, if no worker is alive.
func (h *history) forgetter() *party {
	r := h.record()
	if r == nil || r.State != driver.StateCompleted || h.now.Before(r.LeaseEnd) {
		return nil
	}
	return h.party("operator", func(p *party) {
		faults := h.faults
		h.faults = false
		defer func() { h.faults = faults }()
		// Undone before: no other party acts until the outcome is discarded.
		h.ledger, h.outcome = map[string]string{}, ""
		p.by = invariant.Forgetter
		if err := h.guard(p).Forget(context.Background(), keyID, idempotent.Correction{Token: r.Token(), Actor: "operator", Reason: "undone"}); err != nil {
			h.fail("%s: %v", p.name, err)
		}
		h.note("forgotten")
	})
}

func (h *history) record() *driver.Record {
	r, err := h.store.Get(context.Background(), keyID)
	if err != nil {
		return nil
	}
	return r
}

// wrote checks a write of p.
func (h *history) wrote(p *party, c *idempotenttest.StoreCall) {
	before, r := h.last, h.record()
	if h.last = r; before != nil && before.Version == r.Version {
		return
	}
	h.say("%s writes: %s (%s), %d steps", p.name, r.State, r.Reason, len(r.Steps))
	if r.Reason == driver.ReasonTakenOver {
		h.note("taken over")
	}
	if r.State == driver.StateUnknown {
		h.note("unknown: " + string(r.Reason))
	}
	made := invariant.Write{
		Before: before, After: r, Insert: c.Op == driver.OpInsert, Was: c.Was, At: h.now, By: p.by, Owner: before != nil && p.owner == before.Owner,
	}
	for _, i := range invariant.Invariants {
		if why := i.Broken(made); why != "" {
			h.fail("%s: %s wrote: %s", i.Name, p.name, why)
		}
	}
	if made.Claims() {
		p.owner = r.Owner
	}
	if p.about != "" && before.Token() != p.about {
		h.fail("%s is about another attempt", p.name)
	}
	if r.State == driver.StateCompleted {
		value := outcome(r)
		if h.outcome != "" && h.outcome != value {
			h.fail("the outcome %q becomes %q", h.outcome, value)
		}
		h.outcome = value
	}
}

func (h *history) note(what string) { h.seen[what]++ }

func (h *history) say(format string, args ...any) {
	h.story = append(h.story, fmt.Sprintf("%s  ", h.now.Sub(began))+fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	if h.broken == "" {
		h.broken = fmt.Sprintf(format, args...)
	}
}

// storeCall is a call of a party to the store: another party can act before and after each
// write, and requests and replies are lost.
func (p *party) storeCall(ctx context.Context, c *idempotenttest.StoreCall) {
	h := p.h
	if c.Op != driver.OpInsert && c.Op != driver.OpReplace {
		c.Do(ctx)
		return
	}
	lost := 99
	if h.faults {
		if !p.pause() {
			c.Err = errCrashed
			return
		}
		lost = h.rng.IntN(30)
	}
	switch {
	case p.dead:
		c.Err = errCrashed
		return
	case lost == 0:
		h.note("lost request")
		c.Err = errLost
		return
	}
	c.Do(ctx)
	h.wrote(p, c)
	switch {
	case h.faults && !p.pause():
		c.Err = errCrashed
	case lost == 1:
		h.note("lost reply")
		c.Err = errLost
	}
}
