// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

var (
	stored     = idempotent.Outcome[string]{Value: "ch_1", Stored: true}
	replayed   = idempotent.Outcome[string]{Value: "ch_1", Stored: true, Replayed: true}
	errSilence = errors.New("no reply")
)

// judge reports every history that breaks an invariant, by the name of that
// invariant. The empty name marks a correct history.
func TestHistoriesAreJudged(t *testing.T) {
	t.Parallel()
	for i, row := range []struct {
		want, what string
		tell       func(t *tale, a, b *process)
	}{
		{"", "nothing", func(*tale, *process, *process) {}},
		{"", "a run and a replay", func(t *tale, a, b *process) {
			t.told(a, t.completed(a), stored, nil)
			t.told(b, nil, replayed, nil)
		}},
		{"", "a run, an error, evidence", func(t *tale, a, b *process) {
			r := t.runs(a, ending{err: errSilence})
			t.writes(a, becomes(driver.StateUnknown, driver.ReasonHandlerError))
			t.told(a, r, idempotent.Outcome[string]{}, errSilence)
			t.says("ch_1")
			t.writes(b, becomes(driver.StateCompleted, driver.ReasonResolved))
			t.told(b, nil, replayed, nil)
		}},
		{"", "a claim that was released, and the next request", func(t *tale, a, b *process) {
			t.writes(a, t.claim)
			t.history.claims(a, *t.stand)
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonReleased))
			t.told(b, t.completed(b), stored, nil)
		}},
		{"", "an outcome whose reply was lost, and the next life", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			lost := write{by: a, was: t.stand.Version, at: t.at, record: t.next(func(r *driver.Record) {
				r.State, r.Reason, r.Expires = driver.StateCompleted, driver.ReasonResult, t.at.Add(time.Hour)
			})}
			t.wrote(lost, nil, errSilence)
			t.at, t.stand = t.at.Add(2*time.Hour), nil
			t.completed(b)
		}},
		{"", "an outcome that was written again over a sweeper's write", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			was := *t.stand
			outcome := t.next(becomes(driver.StateCompleted, driver.ReasonResult))
			t.at = t.at.Add(time.Hour)
			t.writes(b, becomes(driver.StateUnknown, driver.ReasonLeaseEnded))
			t.wrote(write{by: a, record: outcome, was: was.Version, at: t.at}, t.stand, nil)
			t.wrote(write{by: a, record: outcome, was: t.stand.Version, at: t.at}, nil, nil)
			t.stand = &outcome
		}},
		{"", "the record was deleted", func(t *tale, a, b *process) {
			t.completed(a)
			t.removes(t.stand.Version)
			t.stand = nil
			t.completed(b)
		}},
		{"", "Rerun: an ended lease and the next run", func(t *tale, a, b *process) {
			t.writes(a, func(r *driver.Record) { t.claim(r); r.Recovery = idempotent.Rerun })
			t.at = t.at.Add(time.Hour)
			t.completed(b)
		}},

		{"", "the same key for the provider in the second run", func(t *tale, a, b *process) {
			first := t.runs(a, ending{err: idempotent.NotExecuted(errSilence)})
			t.downstream(first, "key 1")
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonNotExecuted))
			t.downstream(t.runs(b, ending{err: errSilence}), "key 1")
		}},
		{"", "completed by a transaction of the handler, before it returned", func(t *tale, a, b *process) {
			t.claimsIt(a)
			r := t.enters(a, 1)
			t.writes(a, becomes(driver.StateCompleted, driver.ReasonCommitted))
			t.leaves(r, ending{err: errSilence})
		}},

		{"INV-1", "a claim over a live one", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.claimsIt(b)
		}},
		{"INV-1", "a claim over an expired one, under Reconcile", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.at = t.at.Add(time.Hour)
			t.claimsIt(b)
		}},
		{"INV-1", "two handlers at once", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.enters(a, 1)
			t.writes(b, becomes(driver.StateRetryable, driver.ReasonNotExecuted))
			t.claimsIt(b)
			t.enters(b, 2)
		}},
		{"INV-2", "released by a worker that had begun", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonReleased))
		}},
		{"INV-2", "retryable after an error, under Reconcile", func(t *tale, a, b *process) {
			t.runs(a, ending{err: errSilence})
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonHandlerError))
		}},
		{"INV-2", "completed after an error", func(t *tale, a, b *process) {
			t.runs(a, ending{err: errSilence})
			t.writes(a, becomes(driver.StateCompleted, driver.ReasonResult))
		}},
		{"INV-2", "completed by a panic with a Final error", func(t *tale, a, b *process) {
			t.runs(a, ending{err: idempotent.Final("declined", ""), panicked: true})
			t.writes(a, becomes(driver.StateCompleted, driver.ReasonFinal))
		}},
		{"INV-2", "completed before the handler returned", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.enters(a, 1)
			t.writes(a, becomes(driver.StateCompleted, driver.ReasonResult))
		}},
		{"INV-2", "resolved as not executed while the lease is live", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.writes(b, becomes(driver.StateRetryable, driver.ReasonResolved))
		}},
		{"INV-2", "another key for the provider in the second run", func(t *tale, a, b *process) {
			first := t.runs(a, ending{err: idempotent.NotExecuted(errSilence)})
			t.downstream(first, "key 1")
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonNotExecuted))
			t.downstream(t.runs(b, ending{err: errSilence}), "key 2")
		}},
		{"never expires", "a large result without an expiry", func(t *tale, a, b *process) {
			t.putsChunks(t.at.Add(time.Hour))
			t.putsChunks(time.Time{})
		}},
		{"INV-3", "a result that no handler returned", func(t *tale, a, b *process) {
			t.told(a, t.completed(a), stored, nil)
			t.told(b, nil, idempotent.Outcome[string]{Value: "ch_2", Stored: true, Replayed: true}, nil)
		}},
		{"INV-3", "two results", func(t *tale, a, b *process) {
			t.told(a, t.completed(a), stored, nil)
			t.says("ch_2")
			t.told(b, nil, idempotent.Outcome[string]{Value: "ch_2", Stored: true, Replayed: true}, nil)
		}},
		{"INV-3", "Stored, but there is no stored result", func(t *tale, a, b *process) {
			t.told(a, t.runs(a, ending{value: "ch_1"}), stored, nil)
		}},
		{"INV-3", "Stored, but the result was left out", func(t *tale, a, b *process) {
			r := t.runs(a, ending{value: "ch_1"})
			t.writes(a, func(r *driver.Record) {
				r.State, r.Reason, r.Encoding = driver.StateCompleted, driver.ReasonOmitted, driver.EncodingOmitted
			})
			t.told(a, r, stored, nil)
		}},
		{"INV-4", "completed, and then unknown", func(t *tale, a, b *process) {
			t.completed(a)
			t.writes(a, becomes(driver.StateUnknown, driver.ReasonHandlerError))
		}},
		{"INV-4", "replaced by a new record before it expired", func(t *tale, a, b *process) {
			t.completed(a)
			t.stand = nil
			t.completed(b)
		}},
		{"INV-4", "gone", func(t *tale, a, b *process) {
			t.completed(a)
			t.stand = nil
		}},
		{"INV-5", "two writes replaced the same version", func(t *tale, a, b *process) {
			t.claimsIt(a)
			claimed := t.stand
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonReleased))
			t.stand = claimed
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonReleased))
		}},
		{"INV-5", "the outcome of another owner", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			t.writes(b, becomes(driver.StateCompleted, driver.ReasonResult))
		}},
		{"INV-5", "another owner without a claim", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			t.writes(a, func(r *driver.Record) {
				r.State, r.Reason, r.Owner = driver.StateCompleted, driver.ReasonResult, driver.Owner(newVersion())
			})
		}},
		{"INV-5", "another attempt under the same number", func(t *tale, a, b *process) {
			t.writes(a, t.claim)
			t.history.claims(a, *t.stand)
			t.writes(a, becomes(driver.StateRetryable, driver.ReasonReleased))
			t.writes(b, func(r *driver.Record) { t.claim(r); r.Attempt-- })
		}},
		{"INV-5", "another request's record", func(t *tale, a, b *process) {
			t.runs(a, ending{value: "ch_1"})
			t.writes(a, func(r *driver.Record) {
				r.State, r.Reason = driver.StateCompleted, driver.ReasonResult
				r.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
			})
		}},
		{"INV-6", "another request got the outcome", func(t *tale, a, b *process) {
			t.told(a, t.completed(a), stored, nil)
			t.key.Fingerprint = idempotent.FingerprintBytes([]byte("other"))
			t.told(b, nil, replayed, nil)
		}},
		{"INV-6", "the same request was treated as another one", func(t *tale, a, b *process) {
			t.told(a, t.completed(a), stored, nil)
			t.told(b, nil, idempotent.Outcome[string]{}, new(idempotent.MismatchError))
		}},
		{"INV-8", "a request changed an unknown record", func(t *tale, a, b *process) {
			t.runs(a, ending{err: errSilence})
			t.writes(a, becomes(driver.StateUnknown, driver.ReasonHandlerError))
			t.claimsIt(b)
		}},
		{"INV-9", "unknown before the lease ended", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.writes(b, becomes(driver.StateUnknown, driver.ReasonLeaseEnded))
		}},
		{"INV-10", "entered without a claim", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.enters(b, 1)
		}},
		{"INV-10", "entered under a claim whose reply was lost", func(t *tale, a, b *process) {
			t.writes(a, t.claim)
			t.history.claims(a, *t.stand)
			t.enters(a, 1)
		}},
		{"INV-10", "entered twice under one claim", func(t *tale, a, b *process) {
			t.claimsIt(a)
			t.leaves(t.enters(a, 1), ending{value: "ch_1"})
			t.enters(a, 1)
		}},
		{"INV-10", "a result without a source", func(t *tale, a, b *process) {
			t.told(a, nil, idempotent.Outcome[string]{Value: "ch_1"}, nil)
		}},
		{"INV-12", "a record that began as completed", func(t *tale, a, b *process) {
			t.writes(a, becomes(driver.StateCompleted, driver.ReasonResult))
		}},
		{"INV-12", "a version without a writer", func(t *tale, a, b *process) {
			t.completed(a)
			t.stand.Version = newVersion()
		}},
		{"a handler returned", "a result that did not reach its caller", func(t *tale, a, b *process) {
			t.told(a, t.runs(a, ending{value: "ch_1"}), idempotent.Outcome[string]{}, new(idempotent.StoreError))
		}},
		{"a handler returned", "an error that did not reach its caller", func(t *tale, a, b *process) {
			t.told(a, t.runs(a, ending{err: errSilence}), idempotent.Outcome[string]{}, new(idempotent.StoreError))
		}},
		{"an unknown error", "a refusal with an unknown error", func(t *tale, a, b *process) {
			t.told(a, nil, idempotent.Outcome[string]{}, errSilence)
		}},
	} {
		t.Run(fmt.Sprintf("%02d_%s", i, row.what), func(t *testing.T) {
			t.Parallel()
			tale := newTale()
			row.tell(tale, tale.process(), tale.process())
			broken := errors.Join(tale.judge(tale.stand)...)
			switch {
			case row.want == "" && broken != nil:
				t.Errorf("a correct history was judged as: %v", broken)
			case row.want != "" && (broken == nil || !strings.Contains(broken.Error(), row.want)):
				t.Errorf("want %q, got: %v", row.want, orNil(broken))
			}
		})
	}
}

// tale builds a history by hand, as guards and stores could produce it: correct
// ones, and broken ones of every kind.
type tale struct {
	*history
	key   idempotent.Key
	at    time.Time
	stand *driver.Record // the current record
}

func newTale() *tale { return &tale{history: newHistory(), key: newKey(), at: now()} }

func (t *tale) process() *process { return &process{now: func() time.Time { return t.at }} }

// next returns the current record, or a new one, with another version.
func (t *tale) next(change func(*driver.Record)) driver.Record {
	r := driver.Record{ID: t.key.RecordID(), Fingerprint: StoredFingerprint(t.key), Created: t.at}
	if t.stand != nil {
		r = *t.stand
	}
	r.Version = newVersion()
	change(&r)
	return r
}

// writes records a write that took effect.
func (t *tale) writes(by *process, change func(*driver.Record)) {
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
func (t *tale) claimsIt(by *process) {
	t.writes(by, t.claim)
	t.history.claims(by, *t.stand)()
}

// runs records a whole run: claim, handler, outcome.
func (t *tale) runs(by *process, end ending) *run {
	t.claimsIt(by)
	r := t.enters(by, t.stand.Attempt)
	t.leaves(r, end)
	return r
}

func becomes(s driver.State, why driver.Reason) func(*driver.Record) {
	return func(r *driver.Record) { r.State, r.Reason = s, why }
}

// completed records a whole run with an outcome that expires an hour later.
func (t *tale) completed(by *process) *run {
	r := t.runs(by, ending{value: "ch_1"})
	t.writes(by, func(r *driver.Record) {
		r.State, r.Reason, r.Expires = driver.StateCompleted, driver.ReasonResult, t.at.Add(time.Hour)
	})
	return r
}

// Records a request and its answer.
func (t *tale) told(by *process, r *run, out idempotent.Outcome[string], err error) {
	a := t.asks(by, t.key)
	a.run = r
	t.answered(a, out, err)
}
