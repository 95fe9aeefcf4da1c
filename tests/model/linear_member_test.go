package model_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/tests/model"
)

// member is one request of one goroutine of the crowd, or one piece of
// evidence.
type member struct {
	*crowd
	caller
	client  int
	r       *rand.Rand
	key     int
	history *history

	from    instant
	claim   guardCall
	entered *instant // when the claim had succeeded
	marked  bool     // the claim marked its record unknown
	gaveUp  bool     // the outcome was not stored
}

// instant is when something began or ended: a stamp, and a time that was read
// after it.
type instant struct{ stamp, now int64 }

func (m *member) instant() instant {
	return instant{m.stamps.next(), m.clock.now.Load()}
}

// request sends a request.
func (m *member) request() {
	m.from = m.instant()
	request := model.Request{
		Owner: int(m.owners.Add(1)), Fingerprint: 1, Retention: crowdPolicy.Retention,
		Deadline: moment(m.from.now).Add(requestTimeout).UnixMilli(),
	}
	if m.r.IntN(2) == 0 {
		request.Recovery = model.Rerun
	}
	if m.r.IntN(20) == 0 {
		request.Fingerprint = 2
	}
	m.claim = guardCall{kind: "claim", request: request}
	var (
		e       ending
		leaving instant
		reply   reply
	)
	yield(m.r)
	reply.value, reply.err = idempotent.DoOutcome(m.invocation(moment(request.Deadline)), m.guard, m.keyOf(m.key, request.Fingerprint), func(context.Context) (string, error) {
		e = m.work(request)
		leaving = m.instant()
		return e.end()
	}, declares(request))
	yield(m.r)
	to := m.instant()

	out := m.reply(reply.answer(e))
	out.gaveUp = m.gaveUp || errors.As(reply.err, new(*idempotent.StoreError))
	if m.entered == nil {
		out.marked = m.marked
		m.note(m.claim, m.from, out, to)
		return
	}
	settlement := m.claim
	settlement.kind, settlement.outcome = "settle", e.Outcome
	if out.Verdict == model.NoTime { // too late to enter its handler
		settlement.outcome, leaving = model.Outcome{Kind: model.NotExecuted}, *m.entered
	}
	m.note(settlement, leaving, out, to)
}

// watch gets the events of the observer.
func (m *member) watch(e event.Event) {
	m.seen.Add("event "+string(e.Kind), 1)
	switch e.Kind {
	case event.Reserved, event.TakenOver:
		now := m.instant()
		m.entered = &now
		m.note(m.claim, m.from, m.reply(model.Answer{Verdict: model.Entered, Attempt: e.Attempt}), now)
	case event.MarkedUnknown:
		m.marked = true
	case event.CompletionFailed:
		m.gaveUp = true
	default: // they change nothing that the model sees
	}
}

// work is the handler of a request. Now and then it outlives its lease.
func (m *member) work(request model.Request) ending {
	m.enter(m.key, request.Owner, request.Deadline+crowdPolicy.Margin)
	defer m.leave(m.key, request.Owner)
	yield(m.r)
	if m.r.IntN(20) == 0 {
		m.clock.jump(2 * shortJump)
	}
	yield(m.r)
	kinds := []model.Kind{model.Result, model.Result, model.Result, model.Final, model.NotExecuted, model.Maybe, model.Failed}
	o := model.Outcome{Kind: kinds[m.r.IntN(len(kinds))]}
	if o.Kind == model.Result || o.Kind == model.Final {
		o.Value = fmt.Sprintf("v%d", request.Owner)
	}
	return newEnding(o, false, asItIs)
}

func (m *member) giveEvidence() {
	in := guardCall{kind: "resolve", outcome: model.Outcome{Kind: model.NotExecuted}}
	if m.r.IntN(2) == 0 {
		in.outcome = model.Outcome{Kind: model.Result, Value: fmt.Sprintf("r%d", m.owners.Add(1))}
	}
	id := m.keyOf(m.key, 1).RecordID()
	about := driver.Record{}
	if r, err := m.store.Get(context.Background(), id); err == nil {
		about.Owner = r.Owner
	}
	if m.r.IntN(2) == 0 {
		yield(m.r) // the provider's answer takes its time
	}
	m.from = m.instant()
	yield(m.r)
	err := m.guard.Resolve(m.invocation(moment(m.from.now).Add(requestTimeout)), id, resolution(in.outcome, about.Token()))
	yield(m.r)
	to := m.instant()
	out := m.reply(resolved(err))
	out.stale = m.stood.owner != about.Owner
	out.gaveUp = errors.As(err, new(*idempotent.StoreError))
	m.note(in, m.from, out, to)
}

// reply returns an answer with what the network knows about it.
func (m *member) reply(a model.Answer) guardReply {
	a.RetryAfter, a.Events = 0, ""
	return guardReply{Answer: a, trace: m.trace}
}

// note adds an operation to the history, and the writes whose replies were
// lost.
func (m *member) note(in guardCall, from instant, out guardReply, to instant) {
	in.nows = m.clock.between(from.now, to.now)
	for _, stood := range m.overtaken {
		if stood.version == m.stood.version && stood.key.State != model.Completed {
			m.complain("the write id %x was used again, after others had found and replaced it", stood.version)
		}
		m.history.add(m.client, in, from.stamp, guardReply{overtaken: true, trace: trace{asked: true, wrote: true, stood: stood}}, to.stamp)
	}
	m.seen.Add("overtaken", len(m.overtaken))
	m.seen.Add("lost replies", m.lost)
	m.overtaken, m.lost = nil, 0
	if out.gaveUp {
		m.seen.Add("gave up", 1)
	} else {
		m.seen.Add(in.kind+" "+string(out.Verdict), 1)
	}

	// An operation that changed nothing and reports nothing about the record
	// fits anywhere.
	switch {
	case in.kind == "claim" && out.Verdict == model.NoTime && !out.marked:
		if last := (*in.nows)[len(*in.nows)-1]; last < in.request.Deadline {
			m.complain("%d got NoTime, at %d at the latest, although it had until %d", in.request.Owner, last, in.request.Deadline)
		}
	case in.kind != "settle" && out.gaveUp && !out.marked:
	default:
		m.history.add(m.client, in, from.stamp, out, to.stamp)
	}
}
