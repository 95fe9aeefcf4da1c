package idempotenttest

import (
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// tale is a history that is told by hand, as guards and stores might make it:
// right ones, and broken ones of every kind.
type tale struct {
	*history
	key   idempotent.Key
	at    time.Time
	stand *driver.Record // what stands by now
}

func newTale() *tale { return &tale{history: newHistory(), key: newKey(), at: now()} }

func (t *tale) worker() *worker { return &worker{now: func() time.Time { return t.at }} }

// next returns what stands, or a new record, with another version.
func (t *tale) next(change func(*driver.Record)) driver.Record {
	r := driver.Record{ID: t.key.RecordID(), Fingerprint: t.key.Fingerprint, Created: t.at}
	if t.stand != nil {
		r = *t.stand
	}
	r.Version = newVersion()
	change(&r)
	return r
}

// writes tells of a write that took effect.
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

// claimsIt tells of a claim that took effect, and that its guard was told so.
func (t *tale) claimsIt(by *worker) {
	t.writes(by, t.claim)
	t.history.claims(by, *t.stand)()
}

// runs tells of a whole run: claim, handler, outcome.
func (t *tale) runs(by *worker, end ending) *run {
	t.claimsIt(by)
	r := t.enters(by, t.stand.Attempt)
	t.leaves(r, end)
	return r
}

func becomes(s driver.State, why driver.Reason) func(*driver.Record) {
	return func(r *driver.Record) { r.State, r.Reason = s, why }
}

// completed is a whole run that was stored until an hour later.
func (t *tale) completed(by *worker) *run {
	r := t.runs(by, ending{value: "ch_1"})
	t.writes(by, func(r *driver.Record) {
		r.State, r.Reason, r.Expires = driver.StateCompleted, driver.ReasonResult, t.at.Add(time.Hour)
	})
	return r
}

// told tells of a request and its answer.
func (t *tale) told(by *worker, r *run, out idempotent.Outcome[string], err error) {
	a := t.asks(by, t.key)
	a.run = r
	t.answered(a, out, err)
}
