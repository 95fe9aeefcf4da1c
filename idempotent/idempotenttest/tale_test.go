package idempotenttest

import (
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// tale builds a history by hand, as guards and stores could produce it: correct
// ones, and broken ones of every kind.
type tale struct {
	*history
	key   idempotent.Key
	at    time.Time
	stand *driver.Record // the current record
}

func newTale() *tale { return &tale{history: newHistory(), key: newKey(), at: now()} }

func (t *tale) worker() *worker { return &worker{now: func() time.Time { return t.at }} }

// next returns the current record, or a new one, with another version.
func (t *tale) next(change func(*driver.Record)) driver.Record {
	r := driver.Record{ID: t.key.RecordID(), Fingerprint: t.key.Fingerprint, Created: t.at}
	if t.stand != nil {
		r = *t.stand
	}
	r.Version = newVersion()
	change(&r)
	return r
}

// writes records a write that took effect.
func (t *tale) writes(by *worker, change func(*driver.Record)) {
	r := t.next(change)
	w := write{by: by, record: r, at: t.at}
	if t.stand == nil {
		w.insert = true
	} else {
		w.was = t.stand.Version
	}
	t.wrote(w, nil, nil)
	t.stand = &r
}

// claim makes r the claim of another attempt.
func (t *tale) claim(r *driver.Record) {
	r.State, r.Reason, r.Expires = driver.StateInProgress, driver.ReasonClaimed, time.Time{}
	r.Owner, r.LeaseEnd, r.Attempt = driver.Owner(newVersion()), t.at.Add(lease), r.Attempt+1
}

// claimsIt records a claim that took effect and was acknowledged to its guard.
func (t *tale) claimsIt(by *worker) {
	t.writes(by, t.claim)
	t.history.claims(by, *t.stand)()
}

// runs records a whole run: claim, handler, outcome.
func (t *tale) runs(by *worker, end ending) *run {
	t.claimsIt(by)
	r := t.enters(by, t.stand.Attempt)
	t.leaves(r, end)
	return r
}

func becomes(s driver.State, why driver.Reason) func(*driver.Record) {
	return func(r *driver.Record) { r.State, r.Reason = s, why }
}

// completed records a whole run with an outcome that expires an hour later.
func (t *tale) completed(by *worker) *run {
	r := t.runs(by, ending{value: "ch_1"})
	t.writes(by, func(r *driver.Record) {
		r.State, r.Reason, r.Expires = driver.StateCompleted, driver.ReasonResult, t.at.Add(time.Hour)
	})
	return r
}

// Records a request and its answer.
func (t *tale) told(by *worker, r *run, out idempotent.Outcome[string], err error) {
	a := t.asks(by, t.key)
	a.run = r
	t.answered(a, out, err)
}
