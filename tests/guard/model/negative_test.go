// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/guard/model"
	"github.com/once-lambda/once/tests/guard/model/broken"
)

// The answers of a guard over a broken store have no order that the model allows.
func TestBrokenStoresAreNotLinearizable(t *testing.T) {
	t.Parallel()
	few := load{rounds: 100, goroutines: 8, each: 40, keys: 2}
	for name, breaks := range map[string]func(driver.Store) driver.Store{
		"Blind":       broken.Blind,
		"Overwriting": broken.Overwriting,
		"Hasty":       broken.Hasty,
		"Familiar":    broken.Familiar,
		"Forgetful":   broken.Forgetful,
		"Racy":        broken.Racy,
		"Stale":       broken.Stale,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few.wantsNoOrder(t, func(round int) []*history {
				return newCrowd(t, breaks(newMemory()), few, 0, &kit.Tally{}).run(round)
			})
		})
	}
}

// With a store that lets a claim overwrite another, two handlers run at once,
// which is seen without any search.
func TestBrokenStoreBreaksExclusion(t *testing.T) {
	t.Parallel()
	few := load{rounds: 1, goroutines: 64, each: 10, keys: 2}
	c := newCrowd(t, broken.Overwriting(newMemory()), few, 0, &kit.Tally{})
	c.run(0)
	if len(c.wrong) == 0 {
		t.Error("no handler was entered during the lease of another")
	}
}

// entry is one operation of an invented history: its interval, the call, and
// the answer.
type entry struct {
	from, to int64
	in       guardCall
	out      any
}

func at(now int64) *[]int64 { return &[]int64{now} }

func claim(owner int) guardCall {
	return guardCall{kind: "claim", request: model.Request{Owner: owner, Fingerprint: 1, Retention: crowdPolicy.Retention, Deadline: 10_000}, nows: at(1)}
}

func settle(owner int, value string) guardCall {
	c := claim(owner)
	c.kind, c.outcome = "settle", result(value)
	return c
}

func resolve(o model.Outcome) guardCall {
	return guardCall{kind: "resolve", outcome: o, nows: at(leaseEnd)}
}

func duringLease(c guardCall) guardCall {
	c.nows = at(1)
	return c
}

func aboutAnother(r guardReply) guardReply {
	r.stale = true
	return r
}

func result(value string) model.Outcome { return model.Outcome{Kind: model.Result, Value: value} }

func says(v model.Verdict) guardReply { return guardReply{Answer: model.Answer{Verdict: v}} }

func enters(attempt int) guardReply {
	return guardReply{Answer: model.Answer{Verdict: model.Entered, Attempt: attempt}}
}

func tells(v model.Verdict, value string) guardReply {
	return guardReply{Answer: model.Answer{Verdict: v, Outcome: result(value), Stored: true}}
}

// The records of these histories.
var (
	leaseEnd  = int64(10_000) + crowdPolicy.Margin
	running   = sight{version: driver.Version{1}, key: model.Key{State: model.InProgress, Retention: crowdPolicy.Retention, Attempt: 1, LeaseEnd: leaseEnd, Due: leaseEnd}}
	again     = sight{version: driver.Version{2}, key: model.Key{State: model.InProgress, Retention: crowdPolicy.Retention, Attempt: 2, LeaseEnd: leaseEnd, Due: leaseEnd}}
	released  = sight{version: driver.Version{4}, key: model.Key{State: model.Retryable, Retention: crowdPolicy.Retention, Attempt: 1, LeaseEnd: leaseEnd, Expires: leaseEnd + crowdPolicy.Retention}}
	completed = sight{version: driver.Version{3}, key: model.Key{State: model.Completed, Retention: crowdPolicy.Retention, Attempt: 1, LeaseEnd: leaseEnd, Expires: 1 + crowdPolicy.Retention}}
)

// resolvedRecord is the record that evidence has completed.
func resolvedRecord() sight {
	s := completed
	s.key.Expires = leaseEnd + crowdPolicy.Retention
	return s
}

// another returns a different write of a similar record.
func another(s sight) sight {
	s.version[1]++
	return s
}

// met returns r for a request whose last call found a record, or wrote it.
func (r guardReply) met(s sight) guardReply {
	r.asked, r.stood = true, s
	return r
}

func (r guardReply) writes(s sight) guardReply {
	r.wrote = true
	return r.met(s)
}

func overtaken(s sight) guardReply { return guardReply{overtaken: true}.writes(s) }

// The models refuse exactly the histories that a guard must not produce.
func TestMadeUpHistories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		entries []entry
		ordered bool
	}{
		{"one runs, one replays", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{5, 6, claim(2), tells(model.Replayed, "v1").met(completed)},
		}, true},
		{"a replay overtakes the answer", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 6, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{4, 5, claim(2), tells(model.Replayed, "v1").met(completed)},
		}, true},
		{"a replay from the cache", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{5, 6, claim(2), tells(model.Replayed, "v1")},
		}, true},
		{"a claim whose reply was lost is completed by evidence", []entry{
			{1, 6, claim(1), overtaken(running)}, {2, 3, resolve(result("r1")), says(model.Done).writes(resolvedRecord())},
			{1, 6, claim(1), tells(model.Replayed, "r1").met(resolvedRecord())},
		}, true},

		{"two enter together", []entry{
			{1, 4, claim(1), enters(1).writes(running)}, {2, 3, claim(2), enters(1).writes(another(running))},
		}, false},
		{"one enters while the claim of another is lost", []entry{
			{1, 4, claim(1), overtaken(running)}, {2, 3, claim(2), enters(1).writes(another(running))},
			{1, 4, claim(1), says(model.Running).met(another(running))},
		}, false},
		{"one enters after the other completed", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{5, 6, claim(2), enters(2).writes(again)},
		}, false},
		{"one gets in progress after the other completed", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{5, 6, claim(2), says(model.Running).met(running)},
		}, false},
		{"a replay comes before the outcome", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, claim(2), tells(model.Replayed, "v1").met(completed)},
			{5, 6, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
		}, false},
		{"a replay of a result that was never reported", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").writes(completed)},
			{5, 6, claim(2), tells(model.Replayed, "v2").met(completed)},
		}, false},
		{"the owner gets another outcome than it reported", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v2").writes(completed)},
		}, false},
		{"contrary evidence is accepted twice", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, resolve(result("v1")), says(model.Done).writes(resolvedRecord())},
			{5, 6, resolve(result("v2")), says(model.Done).writes(another(resolvedRecord()))},
		}, false},
		{"evidence completes a record during its lease", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, duringLease(resolve(result("v1"))), says(model.Done).writes(completed)},
		}, false},
		{"evidence about another attempt releases the record", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, resolve(model.Outcome{Kind: model.NotExecuted}), aboutAnother(says(model.Done)).writes(released)},
		}, false},
		{"evidence about the attempt releases the record", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, resolve(model.Outcome{Kind: model.NotExecuted}), says(model.Done).writes(released)},
		}, true},
		{"a refusal writes", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, claim(2), says(model.Running).writes(another(running))},
		}, false},
		{"an outcome is acknowledged but not written", []entry{
			{1, 2, claim(1), enters(1).writes(running)}, {3, 4, settle(1, "v1"), tells(model.Own, "v1").met(running)},
		}, false},
		{"the record that is written is another than the claim's", []entry{
			{1, 2, claim(1), enters(1).writes(again)},
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := &history{}
			for client, e := range c.entries {
				h.add(client, e.in, e.from, e.out, e.to)
			}
			switch err := ofKey(h).search(patience); {
			case c.ordered && err != nil:
				t.Error(err)
			case !c.ordered && !errors.Is(err, errNoOrder):
				t.Errorf("it has an order (%v)", err)
			}
		})
	}
}

// A search that does not end is no proof: 40 overlapping writes have too many orders to
// try before the one read that is impossible.
func TestEndlessSearchFails(t *testing.T) {
	t.Parallel()
	h := &history{}
	for client := range 40 {
		h.add(client, client, int64(client), nil, int64(100+client))
	}
	h.add(40, "read", 50, nil, 90)
	p := puzzle{operations: h.operations, tries: &atomic.Int64{}, model: porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			client, writes := input.(int)
			return writes, state.(int) | 1<<client
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}}
	if err := p.search(10 * time.Millisecond); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
}
