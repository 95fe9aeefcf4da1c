package idempotenttest

import (
	"errors"
	"slices"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
)

// life is the history of a record between one insert and the next: the writes
// that took effect, each replacing the one before it.
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
//   - INV-2, INV-5, INV-8: the record changes only as the table of legal moves
//     allows, see move. A handler is entered again only after its record became
//     retryable, or under Rerun, and with the same key for the provider.
//   - INV-3: all answers with a stored outcome, in one life of the record, are
//     the same, and were reported by a handler or by evidence.
//   - INV-4: a completed record is replaced only after its retention.
//   - INV-6: another request under the key never gets its outcome.
//   - INV-10: a handler is entered only under an acknowledged claim.
//   - INV-12: a record begins with a claim and nothing else.
//   - A handler's answer reaches its caller, whatever happens to the record.
func (h *history) judge(final *driver.Record) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	lives := h.lives(final)
	for i, l := range lives {
		if i > 0 {
			h.judgeSuccession(lives[i-1], l)
		}
		h.judgeLife(l)
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
		switch {
		case w == nil:
			h.breaks("INV-12: the store returned a version that was never written")
		case !effective[w]:
			effective[w] = true
			if !w.insert {
				follow(w.was)
			}
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
		case !effective[w] || byVersion[w.record.Version] != w:
		case w.insert:
			lives = append(lives, life{w})
		case successor[w.was] != nil:
			h.breaks("INV-5: two writes replaced the same version")
		default:
			successor[w.was] = w
		}
	}
	for i, l := range lives {
		for w := successor[l.last().Version]; w != nil && len(l) < len(h.writes); w = successor[w.record.Version] {
			l = append(l, w)
		}
		lives[i] = l
	}
	return lives
}

// judgeSuccession checks that one life of the record may follow another.
func (h *history) judgeSuccession(old, next life) {
	last, at := old.last(), next[0].at
	expired := func(r *driver.Record) bool { return !r.Expires.IsZero() && !r.Expires.After(at) }
	if expired(last) || h.removed[last.Version] {
		return
	}
	for _, w := range h.writes {
		if w.open && w.was == last.Version && expired(&w.record) {
			return // its last write took effect, but the reply was lost
		}
	}
	h.breaks("INV-4: a record that was %s was replaced by a new one before it expired", last.State)
}

// judgeLife checks how a record began, and each of its moves.
func (h *history) judgeLife(l life) {
	first := l[0].record
	if first.State != driver.StateInProgress || first.Attempt != 1 {
		h.breaks("INV-12: a record began as %s, attempt %d", first.State, first.Attempt)
	}
	for i, w := range l[1:] {
		if err := h.move(&l[i].record, w); err != nil {
			h.broken = append(h.broken, err)
		}
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
	same := lives[life][0].record.Fingerprint == a.key.Fingerprint
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
	if a.outcome.Replayed || errors.As(a.err, new(*idempotent.LeaseLostError)) {
		return
	}
	if end.err == nil && a.err == nil && a.outcome.Value == end.value || end.err != nil && errtype.Matches(a.err, end.err) {
		return
	}
	if errors.As(a.err, new(*idempotent.StoreError)) || errors.As(a.err, new(*idempotent.ReplayUnavailableError)) {
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
	from, to := began(a.from), began(a.to)
	if to == 0 || from != to && !(from == 0 && to == 1) {
		return -1
	}
	return to - 1
}
