// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/invariant"
)

// history records what happened to the key of a lab: every write to its record,
// every call of a handler, every answer. judge checks it against the invariants
// of the design, independently of the scenario.
type history struct {
	mu      sync.Mutex
	writes  []*write
	runs    []*run
	answers []*answer
	seen    map[driver.Version]bool // returned by the store
	removed map[driver.Version]bool // deleted without the store
	said    map[string]bool         // results of handlers or evidence
	forgot  map[string]bool         // tokens whose outcome an operator discards
	broken  []error
}

// process is a process that sends requests, with its clock.
type process struct{ now func() time.Time }

// write is a record that was written, or that a guard tried to write.
type write struct {
	by     *process
	record driver.Record
	insert bool
	was    driver.Version // the version that it replaces, unless it inserts
	at     time.Time      // by the clock of the writer
	known  bool           // acknowledged
	open   bool           // neither acknowledged nor refused
}

// run is one attempt: a claim, and the call of the handler that may follow.
type run struct {
	by      *process
	claim   driver.Record // the last one tried
	held    bool          // the store acknowledged the claim to the guard
	entered bool
	left    bool
	end     ending // how the handler ended
	// downstream is the key for the provider that the handler got; empty if it
	// is not known.
	downstream string
}

// ending is what a handler returned, or that it panicked.
type ending struct {
	value string
	err   error
}

// errPanicked is the ending of a handler that panicked, or whose goroutine ended. A
// panic proves nothing and is not a business outcome, so the panic's value is another
// ending only if it is an Unknown error.
var errPanicked = errors.New("the handler did not return")

// answer is the answer that a request got.
type answer struct {
	by      *process
	key     idempotent.Key
	run     *run // nil: the handler was not called
	from    int  // number of writes before the request
	to      int  // number of writes before the answer
	outcome idempotent.Outcome[string]
	err     error
}

func newHistory() *history {
	return &history{seen: map[driver.Version]bool{}, removed: map[driver.Version]bool{}, said: map[string]bool{}, forgot: map[string]bool{}}
}

// breaks records a broken invariant.
func (h *history) breaks(format string, args ...any) {
	h.broken = append(h.broken, fmt.Errorf(format, args...))
}

// wrote records a write and its result.
func (h *history) wrote(w write, met *driver.Record, err error) {
	w.known = err == nil && (met == nil || met.Version == w.record.Version)
	w.open = err != nil
	h.saw(met)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, &w)
}

// saw records that the store returned r, which may be nil.
func (h *history) saw(r *driver.Record) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[r.Version] = true
}

// claims records that a guard tries to become the owner of the record. The
// returned function records that the store acknowledged the claim.
func (h *history) claims(by *process, claim driver.Record) (held func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.ownerOf(claim.Owner) // an insert that found a record becomes a takeover
	if r == nil {
		r = &run{by: by}
		h.runs = append(h.runs, r)
	}
	r.claim = claim
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.held = true
	}
}

// putsChunks records that a result is put beside its record. The result must
// expire with the record that is to refer to it, because that record may never
// be written.
func (h *history) putsChunks(expires time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if expires.IsZero() {
		h.breaks("a large result never expires, even if its record is never written")
	}
}

// ownerOf returns the run whose claim has that owner token, or nil.
func (h *history) ownerOf(owner driver.Owner) *run {
	for _, r := range h.runs {
		if r.claim.Owner == owner {
			return r
		}
	}
	return nil
}

// asks records that a request begins.
func (h *history) asks(by *process, key idempotent.Key) *answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &answer{by: by, key: key, from: len(h.writes)}
}

// answered records the answer of a request.
func (h *history) answered(a *answer, out idempotent.Outcome[string], err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.outcome, a.err, a.to = out, err, len(h.writes)
	h.answers = append(h.answers, a)
}

// watch returns a handler that records its calls.
func (h *history) watch(a *answer, handler handler) handler {
	return func(ctx context.Context) (value string, err error) {
		attempt := 0
		if execution, ok := idempotent.FromContext(ctx); ok {
			attempt = execution.Attempt()
		}
		a.run = h.enters(a.by, attempt)
		h.downstream(a.run, idempotent.DownstreamKey(ctx))
		returned := false
		defer func() {
			if returned {
				h.leaves(a.run, ending{value: value, err: err})
				return
			}
			p := recover()
			if err, _ = p.(error); !idempotent.IsUnknown(err) {
				err = errPanicked
			}
			h.leaves(a.run, ending{err: err})
			if p != nil {
				panic(p)
			}
		}()
		value, err = handler(ctx)
		returned = true
		return value, err
	}
}

// enters records that the handler of a worker is called for an attempt, and
// checks that it may be called (INV-1, INV-10).
func (h *history) enters(by *process, attempt int) *run {
	now := by.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var mine *run
	for _, r := range h.runs {
		if r.by == by && r.held && !r.entered && r.claim.Attempt == attempt {
			mine = r
		}
	}
	if mine == nil {
		h.breaks("INV-10: a handler was entered, but the store had not acknowledged its claim")
		mine = &run{by: by}
	}
	for _, r := range h.runs {
		if r != mine && r.entered && !r.left && now.Before(r.claim.LeaseEnd) {
			h.breaks("INV-1: a handler was entered while another one was running, %s before the end of its lease", r.claim.LeaseEnd.Sub(now))
		}
	}
	mine.entered = true
	return mine
}

// downstream records the key for the provider that a run got, and checks that
// earlier runs of the record got the same key (INV-2).
func (h *history) downstream(run *run, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run.downstream = key
	for _, r := range h.runs {
		if r.downstream != "" && r.downstream != key && r.claim.Created.Equal(run.claim.Created) {
			h.breaks("INV-2: two runs of one record got different keys for the provider")
		}
	}
}

func (h *history) leaves(r *run, end ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.left, r.end = true, end
	if end.err == nil {
		h.said[end.value] = true
	}
}

// says records a result that evidence reported.
func (h *history) says(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said[value] = true
}

// removes records that a record was deleted without the store.
func (h *history) removes(v driver.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed[v] = true
}

// forgets records that an operator discards the outcome of an attempt.
func (h *history) forgets(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgot[token] = true
}

// life is the history of a record from its insert, or from the write that
// discarded its outcome, to the next one: the writes that took effect, each
// replacing the one before it.
type life []*write

func (l life) last() *driver.Record { return &l[len(l)-1].record }

// completion returns the write that completed the record, or nil.
func (l life) completion() *write {
	for _, w := range l {
		if w.record.State == driver.StateCompleted {
			return w
		}
	}
	return nil
}

// judge returns the violations of the invariants in the history, given the
// record that exists at its end, or nil.
//
//   - INV-1: no handler is entered while another one's lease is live.
//   - Each write may replace the record before it: see package invariant.
//   - INV-2: the owner writes how its handler ended, and each run has the same key
//     for the provider.
//   - INV-3: all answers with a stored outcome, in one life of the record, are
//     the same, and were reported by a handler or by evidence.
//   - INV-4: a completed record is replaced only after its retention, or if an
//     operator discards its outcome after its lease.
//   - INV-6: another request under the key never gets its outcome.
//   - INV-10: a handler is entered only under an acknowledged claim.
//   - A handler's answer reaches its caller, whatever happens to the record.
func (h *history) judge(final *driver.Record) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	lives := h.lives(final)
	for i, l := range lives {
		var before *driver.Record
		if i > 0 {
			h.judgeSuccession(lives[i-1], l)
			if !l[0].insert {
				before = lives[i-1].last()
			}
		}
		h.judgeLife(before, l)
	}
	if len(lives) > 0 && final == nil {
		if last := lives[len(lives)-1].last(); !h.removed[last.Version] {
			h.breaks("INV-4: the record is missing, but was %s", last.State)
		}
	}
	stored := make([]string, len(lives)) // the outcome of each life, as answers report it
	for _, a := range h.answers {
		h.judgeAnswer(a, lives, stored)
	}
	return h.broken
}

// lives sorts the writes that took effect. Those are the acknowledged ones, the
// ones that the store returned, the current one, and every one that they
// replaced.
func (h *history) lives(final *driver.Record) []life {
	byVersion := map[driver.Version]*write{}
	for _, w := range h.writes {
		// An outcome has the same write id if it is written again over a newer
		// record. Only the last try can have succeeded.
		if old := byVersion[w.record.Version]; old == nil || !old.known {
			byVersion[w.record.Version] = w
		}
	}
	effective := map[*write]bool{}
	var follow func(v driver.Version)
	follow = func(v driver.Version) {
		w := byVersion[v]
		if w == nil {
			h.breaks("INV-12: the store returned a version that was never written")
			return
		}
		effective[w] = true
		if !w.insert {
			follow(w.was)
		}
	}
	for _, w := range h.writes {
		if w.known {
			follow(w.record.Version)
		}
	}
	for v := range h.seen {
		follow(v)
	}
	if final != nil {
		follow(final.Version)
	}
	successor := map[driver.Version]*write{}
	var lives []life
	for _, w := range h.writes {
		switch {
		case !effective[w]:
		case w.insert:
			lives = append(lives, life{w})
		case successor[w.was] != nil:
			h.breaks("INV-5: two writes replaced the same version")
		default:
			successor[w.was] = w
		}
	}
	var all []life
	for _, l := range lives {
		for w := successor[l.last().Version]; w != nil; w = successor[w.record.Version] {
			if w.record.Reason == driver.ReasonForgotten && l.last().Reason != driver.ReasonForgotten {
				all, l = append(all, l), nil
			}
			l = append(l, w)
		}
		all = append(all, l)
	}
	return all
}

// judgeSuccession checks that one life of the record may follow another: package
// invariant judges the write that discards an outcome, except for who asked for it.
func (h *history) judgeSuccession(old, next life) {
	last, at := old.last(), next[0].at
	legal := invariant.Expired(last, at) || h.removed[last.Version]
	if !next[0].insert {
		legal = last.State == driver.StateCompleted && h.forgot[last.Token()]
	}
	for _, w := range h.writes { // one whose reply was lost may have taken effect
		legal = legal || w.open && w.was == last.Version && invariant.Expired(&w.record, at)
	}
	if !legal {
		h.breaks("INV-4: a record that was %s was replaced by a new one before it expired", last.State)
	}
}

// judgeLife checks each write of a life. It began with a claim, or with a write that
// discarded the outcome of the record before.
func (h *history) judgeLife(before *driver.Record, l life) {
	for _, w := range l {
		r := &w.record
		made := invariant.Write{Before: before, After: r, Insert: w.insert, Was: w.was, At: w.at, By: writerFor(r.Reason)}
		var owner *run
		if before != nil && made.By == invariant.Request {
			owner = h.ownerOf(before.Owner)
			made.Owner = owner != nil && owner.by == w.by
		}
		illegal := func(name, why string) {
			h.breaks("%s: %s became %s, reason %s: %s", name, describe(before), describe(r), r.Reason, why)
		}
		for _, i := range invariant.Invariants {
			if why := i.Broken(made); why != "" {
				illegal(i.Name, why)
			}
		}
		if made.Owner && r.State != driver.StateInProgress && !owner.reports(r) {
			illegal("INV-2", "the handler ended differently")
		}
		before = r
	}
}

// writerFor returns who writes for a reason.
func writerFor(why driver.Reason) invariant.Writer {
	switch why {
	case driver.ReasonResolved:
		return invariant.Evidence
	case driver.ReasonLeaseEnded:
		return invariant.Reconciler
	case driver.ReasonForgotten:
		return invariant.Forgetter
	default:
		return invariant.Request
	}
}

// refusals are the errors for a request whose handler was not called.
var refusals = []error{
	new(idempotent.StoreError), new(idempotent.InProgressError), new(idempotent.UnresolvedError), new(idempotent.MismatchError),
	new(idempotent.ReplayUnavailableError), new(idempotent.NoTimeError),
}

func isAny(err error, of []error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errtype.Matches(err, e) })
}

// judgeAnswer checks the answer of a request. stored collects the outcome of
// each life.
func (h *history) judgeAnswer(a *answer, lives []life, stored []string) {
	final, isFinal := errors.AsType[*idempotent.FinalError](a.err)
	outcome := "result " + a.outcome.Value
	if isFinal {
		outcome = "final " + final.Code
	}
	switch {
	case a.run == nil && a.err == nil && !a.outcome.Replayed:
		h.breaks("INV-10: a request got %s, but its handler was not called", brief([]byte(outcome)))
	case a.run == nil && a.err != nil && !isAny(a.err, refusals) && !(isFinal && a.outcome.Replayed):
		h.breaks("a request was refused with an unknown error: %w", a.err)
	case a.run != nil:
		h.judgeReport(a, lives)
	}
	if a.outcome.Replayed && a.err == nil && !h.said[a.outcome.Value] {
		h.breaks("INV-3: a request got %s, but no handler returned it", brief([]byte(outcome)))
	}
	life := h.lifeOf(a, lives)
	if life < 0 {
		return
	}
	same := lives[life][0].record.Fingerprint == invariant.StoredFingerprint(a.key)
	if !same && (a.run != nil || a.outcome.Replayed) {
		h.breaks("INV-6: another request under the key was executed, or got the outcome: %s", brief([]byte(outcome)))
	}
	if same && errors.As(a.err, new(*idempotent.MismatchError)) {
		h.breaks("INV-6: the same request was treated as another one")
	}
	if !a.outcome.Stored {
		return
	}
	if done := lives[life].completion(); done == nil || done.record.Encoding == driver.EncodingOmitted {
		h.breaks("INV-3: a request got a result as stored that is not stored: %s", brief([]byte(outcome)))
	}
	if stored[life] == "" {
		stored[life] = outcome
	}
	if stored[life] != outcome {
		h.breaks("INV-3: one request got %s and another one %s", brief([]byte(stored[life])), brief([]byte(outcome)))
	}
}

// judgeReport checks the answer to the caller of a handler: what the handler
// returned, or the outcome that another report or evidence had stored, or that
// its lease was lost.
func (h *history) judgeReport(a *answer, lives []life) {
	end := a.run.end
	switch {
	case a.outcome.Replayed, errors.As(a.err, new(*idempotent.LeaseLostError)):
		return
	case errtype.Matches(a.err, end.err) && (end.err != nil || a.outcome.Value == end.value): // a failure has no value
		return
	case isAny(a.err, []error{new(idempotent.StoreError), new(idempotent.ReplayUnavailableError)}):
		for _, l := range lives {
			if done := l.completion(); done != nil && done.by != a.by {
				return // the current outcome is known to exist, but could not be fetched
			}
		}
	}
	h.breaks("a handler returned (%s, %v), but its caller got (%s, %v)",
		brief([]byte(end.value)), end.err, brief([]byte(a.outcome.Value)), a.err)
}

// lifeOf returns the index of the life that a request is about: the one that it
// claimed, or the one in which it came and was answered. It returns -1 if that
// is unknown.
func (h *history) lifeOf(a *answer, lives []life) int {
	if a.run != nil {
		return slices.IndexFunc(lives, func(l life) bool {
			return slices.ContainsFunc(l, func(w *write) bool { return w.record.Owner == a.run.claim.Owner })
		})
	}
	began := func(writes int) (n int) {
		for _, l := range lives {
			if slices.Index(h.writes, l[0]) < writes {
				n++
			}
		}
		return n
	}
	to := began(a.to)
	if max(began(a.from), 1) != to {
		return -1
	}
	return to - 1
}

// reports reports whether the ending of a run may be stored as the given
// record.
func (r *run) reports(as *driver.Record) bool {
	switch {
	case !r.entered:
		return as.State == driver.StateRetryable && (as.Reason == driver.ReasonReleased || as.Reason == driver.ReasonNoTime)
	case as.Reason == driver.ReasonCommitted: // by a transaction of the handler
		return as.State == driver.StateCompleted
	case !r.left:
		return false
	}
	_, final := idempotent.AsFinal(r.end.err)
	notExecuted := idempotent.IsNotExecuted(r.end.err)
	switch {
	case r.end.err == nil || final:
		return as.State == driver.StateCompleted
	case as.State == driver.StateRetryable:
		return notExecuted || !idempotent.IsUnknown(r.end.err) && invariant.RunsAgain(as)
	}
	return as.State == driver.StateUnknown && (!notExecuted || len(as.Steps) > 0)
}
