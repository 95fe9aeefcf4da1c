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
	"github.com/once-lambda/once/internal/invariant"
)

// judge reports every history that breaks an invariant, by the name of that
// invariant. The empty name marks a correct history.
func TestHistoriesAreJudged(t *testing.T) {
	t.Parallel()
	for i, row := range []struct{ want, what, acts string }{
		{"", "nothing", ""},
		{"", "a run and a replay", "A completes, A gets it, B replays ch_1"},
		{"", "a run, an error, evidence", "A runs and fails, A writes unknown handler_error, A gets the error, evidence says ch_1, B writes completed resolved, B replays ch_1"},
		{"", "an error beside a value", "A runs and fails beside a value, A writes unknown handler_error, A gets the error"},
		{"", "a claim that was released, and the next request", "A claims without a reply, A writes retryable released, B completes, B gets it"},
		{"", "an outcome whose reply was lost, and the next life", "A runs, A completes without a reply, two hours pass, the record is gone, B completes"},
		{"", "an outcome that was written again over a sweeper's write", "A runs, an hour passes, A completes over a sweep of B"},
		{"", "the record was deleted", "A completes, the record is deleted, B completes"},
		{"", "Rerun: an ended lease and the next run", "A claims under Rerun, an hour passes, B completes"},
		{"", "the same key for the provider in the second run",
			"A runs without effect, A sends key 1, A writes retryable not_executed, B runs and fails, B sends key 1"},
		{"", "completed by a transaction of the handler, before it returned", "A claims, A enters, A writes completed committed, A fails"},
		{"", "Rerun: two handlers, when the lease has just ended", "A claims under Rerun, A enters, the lease ends, B claims, B enters"},
		{"", "an outcome that an operator discards, also twice",
			"A completes, A gets it, the lease ends, an operator discards it, B writes retryable forgotten, B writes retryable forgotten, B completes 2, B gets ch_2, A gets it"},
		{"", "an outcome that was written, and refused over a later one", "A completes, A completes again and is refused, A gets it"},
		{"", "an answer of an earlier life", "A completes, the record is deleted, B completes 2, B gets ch_2, A gets it"},
		{"", "another key for the provider in the next life", "A completes, A sends key 1, an hour passes, the record is deleted, B completes, B sends key 2"},
		{"", "a Final error", "A runs and declines, A writes completed final, A gets declined, B replays declined"},
		{"", "a request that came first, and was answered later", "B asks, A completes, A gets it, B replays ch_1"},
		{"", "a request that came in one life and was answered in the next",
			"A completes, A gets it, B asks, the record is deleted, A completes 2, A gets ch_2, B replays ch_1"},
		{"", "evidence for an outcome that cannot be fetched",
			"A runs, the lease ends, B writes unknown lease_ended, evidence says ch_2, B writes completed resolved, A gets a store error, A gets a missing result"},
		{"", "no time for the handler", "A claims, A writes retryable no_time"},
		{"", "Rerun: an error", "A claims under Rerun, A enters, A fails, A writes retryable handler_error"},
		{"", "Rerun: an Unknown error", "A claims under Rerun, A enters, A fails in doubt, A writes unknown unknown"},
		{"", "no effect, after a step", "A claims, A enters, A begins a step, A fails without effect, A writes unknown handler_error"},

		{"INV-1", "a claim over a live one", "A claims, B claims"},
		{"INV-1", "a claim over an expired one, under Reconcile", "A claims, an hour passes, B claims"},
		{"INV-1", "two handlers at once", "A claims, A enters, B writes retryable not_executed, B claims, B enters"},
		{"INV-2", "released by a worker that had begun", "A runs, A writes retryable released"},
		{"INV-2", "retryable after an error, under Reconcile", "A runs and fails, A writes retryable handler_error"},
		{"INV-2", "completed after an error", "A runs and fails, A writes completed result"},
		{"INV-2", "completed by a panic with a Final error", "A runs and panics, A writes completed final"},
		{"INV-2", "unknown without a handler", "A claims, A writes unknown released"},
		{"INV-2", "an error without a handler", "A claims, A writes retryable handler_error"},
		{"INV-2", "committed, and not completed", "A claims, A enters, A writes retryable committed"},
		{"INV-2", "unknown after a result", "A runs, A writes unknown handler_error"},
		{"INV-2", "retryable after a result", "A runs, A writes retryable not_executed"},
		{"INV-2", "unknown after a Final error", "A runs and declines, A writes unknown handler_error"},
		{"INV-2", "unknown without an effect", "A runs without effect, A writes unknown handler_error"},
		{"INV-2", "Rerun: retryable after an Unknown error", "A claims under Rerun, A enters, A fails in doubt, A writes retryable handler_error"},
		{"INV-2", "completed before the handler returned", "A claims, A enters, A writes completed result"},
		{"FM48", "resolved as not executed while the lease is live", "A claims, B writes retryable resolved"},
		{"INV-2", "another key for the provider in the second run",
			"A runs without effect, A sends key 1, A writes retryable not_executed, B runs and fails, B sends key 2"},
		{"never expires", "a large result without an expiry", "a result is put, a result is put without an expiry"},
		{"INV-3", "a result that no handler returned", "A completes, A gets it, B replays ch_2"},
		{"INV-3", "two results", "A completes, A gets it, evidence says ch_2, B replays ch_2"},
		{"INV-3", "two Final errors", "A runs and declines, A writes completed final, A gets declined, B replays expired"},
		{"INV-3", "two results for a request that came first", "B asks, A completes, A gets it, evidence says ch_2, B replays ch_2"},
		{"INV-3", "two results of a later life", "A completes, the record is deleted, A completes 2, A gets ch_2, B replays ch_1"},
		{"but no handler returned it", "an empty result after an error", "A runs and fails, B replays "},
		{"INV-3", "Stored, but there is no stored result", "A runs, A gets it"},
		{"INV-3", "Stored, but the result was left out", "A runs, A omits its result, A gets it"},
		{"INV-4", "completed, and then unknown", "A completes, A writes unknown handler_error"},
		{"INV-4", "replaced by a new record before it expired", "A completes, the record is gone, B completes"},
		{"INV-4", "discarded by no operator", "A completes, the lease ends, B writes retryable forgotten"},
		{"INV-4", "discarded while it was running", "A claims, an operator discards it, B writes retryable forgotten"},
		{"INV-4", "discarded, and replaced by a new record", "A completes, an operator discards it, the record is gone, B completes"},
		{"INV-4", "replaced by a new record before an outcome expired whose reply was lost", "A runs, A completes without a reply, the record is gone, B completes"},
		{"INV-4", "replaced by a new record after an outcome that was refused", "A runs, A completes and is refused, two hours pass, the record is gone, B completes"},
		{"INV-4", "replaced by a new record after an outcome of an earlier version",
			"A runs, A completes without a reply, A writes completed result, two hours pass, the record is gone, B completes"},
		{"INV-4", "gone", "A completes, the record is gone"},
		{"INV-5", "two writes replaced the same version", "A claims, A releases it twice"},
		{"INV-5", "the outcome of another owner", "A runs, B writes completed result"},
		{"INV-5", "another owner without a claim", "A runs, A completes as another owner"},
		{"INV-11", "another attempt under the same number", "A claims without a reply, A writes retryable released, B claims under its number"},
		{"INV-6", "another request's record", "A runs, A completes another request"},
		{"INV-6", "another request got the outcome", "A completes, A gets it, another request comes, B replays ch_1"},
		{"INV-6", "another request was executed", "A runs and fails, another request comes, A gets the error"},
		{"INV-6", "the same request was treated as another one", "A completes, A gets it, B gets a mismatch"},
		{"INV-8", "a request changed an unknown record", "A runs and fails, A writes unknown handler_error, B claims"},
		{"INV-5", "unknown before the lease ended", "A claims, B writes unknown lease_ended"},
		{"INV-10", "entered without a claim", "A claims, B enters"},
		{"INV-10", "entered under a claim whose reply was lost", "A claims without a reply, A enters"},
		{"INV-10", "entered as another attempt", "A claims, A enters as another attempt"},
		{"INV-10", "entered twice under one claim", "A claims, A enters, A returns, A enters"},
		{"INV-10", "a result without a source", "A gets a result at once"},
		{"INV-12", "a record that began as completed", "A writes completed result"},
		{"INV-12", "a version without a writer", "A completes, the record has another version"},
		{"a handler returned", "a result that did not reach its caller", "A runs, A gets a store error"},
		{"INV-12", "a version that a reader got, without a writer", "A completes, B reads another version"},
		{"INV-12", "a version that a writer got, without a writer", "A completes, B is refused by another version"},
		{"a handler returned", "another result", "A completes, A gets ch_2"},
		{"a handler returned", "an outcome of its own that cannot be fetched", "A completes, A gets a store error"},
		{"a handler returned", "an error without a cause",
			"A runs, the lease ends, B writes unknown lease_ended, evidence says ch_1, B writes completed resolved, A gets the error"},
		{"a handler returned", "an error that did not reach its caller", "A runs and fails, A gets a store error"},
		{"an unknown error", "a refusal with an unknown error", "A is refused for no reason"},
	} {
		t.Run(fmt.Sprintf("%02d_%s", i, row.what), func(t *testing.T) {
			t.Parallel()
			tale := newTale()
			tale.play(row.acts)
			broken := errors.Join(tale.judge(tale.stand)...)
			switch {
			case row.want == "" && broken != nil:
				t.Errorf("a correct history was judged as: %v", broken)
			case row.want != "" && (broken == nil || !strings.Contains(broken.Error(), row.want)):
				t.Errorf("want %q, got: %v", row.want, broken)
			}
		})
	}
}

// tale builds a history by hand, as guards and stores could produce it: correct
// ones, and broken ones of every kind.
type tale struct {
	*history
	key    idempotent.Key
	at     time.Time
	stand  *driver.Record // the current record
	actors map[string]*actor
}

// actor is a process, and its last run.
type actor struct {
	process
	run  *run
	asks *answer // the request that waits for an answer
}

func newTale() *tale {
	t := &tale{history: newHistory(), key: newKey(), at: now()}
	clock := process{now: func() time.Time { return t.at }}
	t.actors = map[string]*actor{"A": {process: clock}, "B": {process: clock}}
	return t
}

// play makes a history of acts, which are separated by commas.
func (t *tale) play(acts string) {
	for act := range strings.SplitSeq(acts, ", ") {
		subject, what, _ := strings.Cut(act, " ")
		if a := t.actors[subject]; a != nil {
			t.does(a, what)
		} else if act != "" {
			t.happens(act)
		}
	}
}

// happens plays an act of no process.
func (t *tale) happens(act string) {
	switch act {
	case "the record is gone":
		t.stand = nil
	case "the record is deleted":
		t.removes(t.stand.Version)
		t.stand = nil
	case "the record has another version":
		t.stand.Version = newVersion()
	case "another request comes":
		t.key.Fingerprint = otherRequests
	case "a result is put":
		t.putsChunks(t.at.Add(time.Hour))
	case "a result is put without an expiry":
		t.putsChunks(time.Time{})
	case "an operator discards it":
		t.forgets(t.stand.Token())
	case "the lease ends":
		t.at = t.stand.LeaseEnd
	case "evidence says ch_1", "evidence says ch_2":
		t.says(act[len("evidence says "):])
	case "an hour passes":
		t.at = t.at.Add(time.Hour)
	case "two hours pass":
		t.at = t.at.Add(2 * time.Hour)
	default:
		panic("no such act: " + act)
	}
}

var (
	errSilence    = errors.New("no reply")
	otherRequests = idempotent.FingerprintBytes([]byte("other"))

	// endings are how a handler ends.
	endings = map[string]ending{
		"runs": {value: "ch_1"}, "returns": {value: "ch_1"}, "runs to 2": {value: "ch_2"}, "runs and fails": {err: errSilence}, "fails": {err: errSilence},
		"runs and fails beside a value": {value: "ch_1", err: errSilence},
		"runs without effect":           {err: idempotent.NotExecuted(errSilence)}, "fails without effect": {err: idempotent.NotExecuted(errSilence)},
		"fails in doubt": {err: idempotent.Unknown(errSilence)}, "runs and declines": {err: idempotent.Final("declined", "")},
		"runs and panics": {err: errPanicked},
	}
)

// does plays an act of a process.
func (t *tale) does(a *actor, what string) {
	if end, ok := endings[what]; ok {
		if strings.HasPrefix(what, "runs") {
			t.does(a, "claims")
			t.does(a, "enters")
		}
		t.leaves(a.run, end)
		return
	}
	switch what {
	case "claims":
		t.writes(a, t.claim)
		t.claims(&a.process, *t.stand)()
	case "claims without a reply":
		t.writes(a, t.claim)
		t.claims(&a.process, *t.stand)
	case "claims under Rerun":
		t.writes(a, func(r *driver.Record) { t.claim(r); r.Recovery = idempotent.Rerun })
		t.claims(&a.process, *t.stand)()
	case "claims under its number":
		t.writes(a, func(r *driver.Record) { t.claim(r); r.Attempt-- })
	case "enters as another attempt":
		t.enters(&a.process, t.stand.Attempt+1)
	case "begins a step":
		t.writes(a, func(r *driver.Record) { r.Steps = []driver.StepRecord{{Name: "charge"}} })
	case "enters":
		a.run = t.enters(&a.process, t.stand.Attempt)
	case "sends key 1", "sends key 2":
		t.downstream(a.run, what)
	case "completes":
		t.does(a, "runs")
		t.writes(a, t.complete)
	case "completes 2":
		t.does(a, "runs to 2")
		t.writes(a, t.complete)
	case "completes and is refused":
		t.wrote(write{by: &a.process, was: t.stand.Version, at: t.at, record: t.next(t.complete)}, t.stand, nil)
	case "completes again and is refused":
		t.wrote(write{by: &a.process, was: newVersion(), at: t.at, record: *t.stand}, &t.history.writes[0].record, nil)
	case "completes without a reply":
		t.wrote(write{by: &a.process, was: t.stand.Version, at: t.at, record: t.next(t.complete)}, nil, errSilence)
	case "completes over a sweep of B":
		claimed, outcome := t.stand.Version, t.next(t.complete)
		t.does(t.actors["B"], "writes unknown lease_ended")
		t.wrote(write{by: &a.process, record: outcome, was: claimed, at: t.at}, t.stand, nil)
		t.wrote(write{by: &a.process, record: outcome, was: t.stand.Version, at: t.at}, nil, nil)
		t.stand = &outcome
	case "completes as another owner":
		t.writes(a, func(r *driver.Record) { t.complete(r); r.Owner = driver.Owner(newVersion()) })
	case "completes another request":
		t.writes(a, func(r *driver.Record) { t.complete(r); r.Fingerprint = otherRequests })
	case "omits its result":
		t.writes(a, func(r *driver.Record) { t.complete(r); r.Encoding = driver.EncodingOmitted })
	case "releases it twice":
		claimed := t.stand
		t.does(a, "writes retryable released")
		t.stand = claimed
		t.does(a, "writes retryable released")
	case "reads another version":
		t.saw(&driver.Record{Version: newVersion()})
	case "is refused by another version":
		t.wrote(write{by: &a.process, was: t.stand.Version, at: t.at, record: t.next(t.complete)}, &driver.Record{Version: newVersion()}, nil)
	case "asks":
		a.asks = t.asks(&a.process, t.key)
	case "gets it":
		t.told(a, a.run, idempotent.Outcome[string]{Value: "ch_1", Stored: true}, nil)
	case "gets ch_2":
		t.told(a, a.run, idempotent.Outcome[string]{Value: "ch_2", Stored: true}, nil)
	case "gets declined":
		t.told(a, a.run, idempotent.Outcome[string]{Stored: true}, idempotent.Final("declined", ""))
	case "gets a missing result":
		t.told(a, a.run, idempotent.Outcome[string]{}, new(idempotent.ReplayUnavailableError))
	case "replays declined", "replays expired":
		t.told(a, nil, idempotent.Outcome[string]{Stored: true, Replayed: true}, idempotent.Final(what[len("replays "):], ""))
	case "replays ch_1", "replays ch_2", "replays ":
		t.told(a, nil, idempotent.Outcome[string]{Value: what[len("replays "):], Stored: true, Replayed: true}, nil)
	case "gets the error":
		t.told(a, a.run, idempotent.Outcome[string]{}, errSilence)
	case "gets a store error":
		t.told(a, a.run, idempotent.Outcome[string]{}, new(idempotent.StoreError))
	case "gets a mismatch":
		t.told(a, nil, idempotent.Outcome[string]{}, new(idempotent.MismatchError))
	case "gets a result at once":
		t.told(a, nil, idempotent.Outcome[string]{Value: "ch_1"}, nil)
	case "is refused for no reason":
		t.told(a, nil, idempotent.Outcome[string]{}, errSilence)
	default: // writes a state for a reason
		var state, reason string
		if _, err := fmt.Sscanf(what, "writes %s %s", &state, &reason); err != nil {
			panic("no such act: " + what)
		}
		t.writes(a, func(r *driver.Record) {
			if r.State, r.Reason = stateNamed[state], driver.Reason(reason); state == "unknown" {
				r.Due = t.at
			}
		})
	}
}

var stateNamed = map[string]driver.State{
	"completed": driver.StateCompleted, "retryable": driver.StateRetryable, "unknown": driver.StateUnknown,
}

// claim makes r the claim of another attempt.
func (t *tale) claim(r *driver.Record) {
	r.State, r.Reason, r.Expires = driver.StateInProgress, driver.ReasonClaimed, time.Time{}
	r.Owner, r.LeaseEnd, r.Attempt = driver.Owner(newVersion()), t.at.Add(lease), r.Attempt+1
}

// complete makes r an outcome that expires an hour later.
func (t *tale) complete(r *driver.Record) {
	r.State, r.Reason, r.Expires = driver.StateCompleted, driver.ReasonResult, t.at.Add(time.Hour)
}

// next returns the current record, or a new one, with another version.
func (t *tale) next(change func(*driver.Record)) driver.Record {
	r := driver.Record{ID: t.key.RecordID(), Fingerprint: invariant.StoredFingerprint(t.key), Created: t.at}
	if t.stand != nil {
		r = *t.stand
	}
	r.Version = newVersion()
	change(&r)
	return r
}

// writes records a write that took effect.
func (t *tale) writes(a *actor, change func(*driver.Record)) {
	r := t.next(change)
	w := write{by: &a.process, record: r, at: t.at, insert: t.stand == nil}
	if !w.insert {
		w.was = t.stand.Version
	}
	t.wrote(w, nil, nil)
	t.stand = &r
}

// Records a request and its answer.
func (t *tale) told(a *actor, r *run, out idempotent.Outcome[string], err error) {
	asked := t.asks(&a.process, t.key)
	if a.asks != nil {
		asked, a.asks = a.asks, nil
	}
	asked.run = r
	t.answered(asked, out, err)
}
