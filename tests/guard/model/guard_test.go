// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/guard/model"
)

// A guarded request is two operations on its key: the claim, which ends when the
// handler is entered or the request refused, and the settlement, from the
// handler's end to the answer. Between them other requests come and go. Evidence
// is a third operation.
type guardCall struct {
	kind    string // "claim", "announce", "settle", "resolve"
	request model.Request
	outcome model.Outcome // of settle and resolve
	// nows are the times that the guard may have read, in order: the clock moves
	// during a request, and it is unknown which of its ticks the request saw.
	nows *[]int64
}

// guardReply is the result of the call, and what the network knows about it: with
// the versions, the search for an order has little to guess.
type guardReply struct {
	model.Answer
	trace
	stale     bool // the record that evidence found is of another attempt than it names
	gaveUp    bool // the record changed too often meanwhile
	overtaken bool // the write was done, but its reply was lost: this is neither the answer, nor all that the request did
}

// guardState is a key, the version of its record, and how many operations have
// read it.
type guardState struct {
	model.Key
	version driver.Version
	read    int
}

// ofKey returns the search for an order of h that Key allows. Time passes in h:
// the model is nondeterministic in the time that was read.
func ofKey(h *history) puzzle {
	operations, readers := inTurns(h)
	tries := &atomic.Int64{}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{guardState{}} },
		Step: func(state, input, output any) (next []any) {
			tries.Add(1)
			s, in, out := state.(guardState), input.(turn), output.(guardReply)
			call := in.input.(guardCall)
			for _, now := range *call.nows {
				after, ok := call.told(crowdPolicy, s.Key, now, out)
				if !ok || out.wrote != (after != s.Key) || out.asked && out.stood.key != after.Nameless() {
					continue
				}
				switch {
				case out.wrote && s.read == readers[s.version]:
					next = append(next, guardState{Key: after, version: out.stood.version})
				case !out.wrote && (!out.asked || out.stood.version == s.version):
					if read, ok := in.reads(s.read); ok {
						next = append(next, guardState{s.Key, s.version, read})
					}
				}
			}
			return next
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(turn).input.(guardCall), output.(guardReply)
			return fmt.Sprintf("%s %+v %s at %v -> %+v (version %.4x %+v, wrote %t, gave up %t, overtaken %t)",
				in.kind, in.request, in.outcome, *in.nows, out.Answer, out.stood.version, out.stood.key, out.wrote, out.gaveUp, out.overtaken)
		},
	}
	return puzzle{m.ToModel(), operations, tries}
}

func (c guardCall) apply(p model.Policy, k model.Key, stale bool, now int64) (model.Key, model.Answer) {
	switch c.kind {
	case "claim":
		return p.Claim(k, c.request, now)
	case "announce":
		return p.Announce(k, c.request, now), model.Answer{}
	case "settle":
		return p.Settle(k, c.request, c.outcome, now)
	default:
		return p.Resolve(k, c.outcome, stale, now)
	}
}

// Returns k after c happened to it at now with the answer out, or reports
// that this answer is impossible.
func (c guardCall) told(p model.Policy, k model.Key, now int64, out guardReply) (after model.Key, ok bool) {
	after, want := c.apply(p, k, out.stale, now)
	switch {
	case out.overtaken:
		return after, true
	case out.Marked && out.Verdict == model.NoTime: // too late to report what it had found
		return after, want.Marked
	case c.kind == "settle" && out.Verdict == model.NoTime: // too late to enter the handler
		return p.Release(k, c.request, now), true
	case c.kind == "settle" && out.gaveUp: // its caller gets the outcome, but no retry will
		return k, out.Answer == model.Answer{Verdict: model.Own, Outcome: c.outcome}
	}
	return after, out.Answer == want
}

// FM51: many goroutines of one process share a guard and a key. For all their
// answers there is one order of their claims, outcomes and evidence in which a
// sequential guard gives the same answers. And no handler is entered during the
// lease of another one: INV-1.
func TestGuardIsLinearizable(t *testing.T) {
	t.Parallel()
	usual := []string{
		"claim entered", "claim replayed", "claim mismatch", "claim in progress", "claim unresolved", "claim no time",
		"settle own", "resolve done", "resolve settled", "resolve in progress", "resolve stale", "event taken_over", "lost replies",
	}
	rare := []string{"settle lost", "settle replayed", "event late_completion", "event contradicted", "overtaken"}
	for _, c := range []struct {
		name   string
		open   func(testing.TB) driver.Store
		cached int
		load   load
		want   int // operations
		facts  []string
	}{
		{"memory", memory, 0, load{rounds: 40, goroutines: 64, each: 46, keys: 8}, 100_000, append(rare, usual...)},
		{"cached", memory, 10, load{rounds: 10, goroutines: 64, each: 26, keys: 16}, 15_000, usual},
		{"bolt", bolt, 0, load{rounds: 3, goroutines: 64, each: 24, keys: 8}, 3_000, usual},
		{"TwoRegions", global, 0, load{rounds: 5, goroutines: 64, each: 31, keys: 8}, 9_000, usual},
		{"DynamoDBLocal", dynamo, 0, load{rounds: 3, goroutines: 64, each: 31, keys: 8}, 5_000, usual},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := &kit.Tally{}
			c.load.searchAll(t, c.want, func(round int) []*history {
				crowd := newCrowd(t, c.open(t), c.load, c.cached, seen)
				histories := crowd.run(round)
				for _, wrong := range crowd.wrong {
					t.Error(wrong)
				}
				return histories
			})
			t.Log(seen)
			seen.Least(t, 1, c.facts...)
			seen.Most(t, c.want/50, "gave up") // less is known about these
		})
	}
}

// crowd is many goroutines that share one guard and few keys. Now and then one
// of them moves the clock: past leases, rarely past retentions.
type crowd struct {
	load
	guard *idempotent.Guard
	store driver.Store // the lowest store
	mark  string
	seen  *kit.Tally

	clock  *jumpingClock
	stamps stamps
	owners atomic.Int64

	mu     sync.Mutex
	inside map[[2]int]int64 // the running handlers, by key and owner, with the end of their lease
	wrong  []string         // violations that need no search
}

const (
	shortJump = 7 * time.Minute // two of them end a lease
	longJump  = 25 * time.Hour  // ends a retention
)

var crowdPolicy = model.Policy{
	Margin:         leaseMargin.Milliseconds(),
	Retention:      24 * time.Hour.Milliseconds(),
	ReconcileAfter: time.Minute.Milliseconds(),
}

func newCrowd(t testing.TB, store driver.Store, l load, cached int, seen *kit.Tally) *crowd {
	t.Helper()
	c := &crowd{load: l, store: store, mark: cryptorand.Text(), seen: seen, clock: newJumpingClock(), inside: map[[2]int]int64{}}
	g, err := idempotent.New(network(store), func(o *idempotent.Options) {
		o.LeaseMargin = span(crowdPolicy.Margin)
		o.Retention = span(crowdPolicy.Retention)
		o.ReconcileAfter = span(crowdPolicy.ReconcileAfter)
		o.CacheEntries = cached
		o.Observer, o.Logger = event.ObserverFunc(func(ctx context.Context, e event.Event) { memberOf(ctx).watch(e) }), discard
		o.Now = func() time.Time { return time.UnixMilli(c.clock.now.Load()) }
	})
	if err != nil {
		t.Fatal(err)
	}
	c.guard = g
	return c
}

func (c *crowd) run(round int) []*history {
	return c.load.run(round, func(client int, r *rand.Rand, key int, h *history) {
		switch n := r.IntN(20 * c.goroutines); {
		case n < 4:
			c.clock.jump(longJump)
		case n < 14:
			c.clock.jump(shortJump)
		}
		m := &member{crowd: c, client: client, r: r, key: key, history: h}
		if r.IntN(6) == 0 {
			m.giveEvidence()
		} else {
			m.request()
		}
	})
}

func (c *crowd) keyOf(key, fingerprint int) idempotent.Key {
	return idempotent.Key{
		Operation: "crowd", Scope: c.mark, ID: fmt.Sprint(key),
		Fingerprint: idempotent.FingerprintBytes([]byte{byte(fingerprint)}),
	}
}

// enter records that a handler begins, and checks INV-1: no other one runs
// under a live lease. A handler whose own lease ended before it was entered may
// overlap with its successor; only the platform can prevent that.
func (c *crowd) enter(key, owner int, lease int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now.Load()
	for other, end := range c.inside {
		if other[0] == key && now < min(end, lease) {
			c.wrong = append(c.wrong, fmt.Sprintf("INV-1: %d entered the handler of key %d at %d, during the lease of %d until %d", owner, key, now, other[1], end))
		}
	}
	c.inside[[2]int{key, owner}] = lease
}

func (c *crowd) leave(key, owner int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inside, [2]int{key, owner})
}

// complain records a violation.
func (c *crowd) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// member is one request of one goroutine of the crowd, or one piece of
// evidence.
type member struct {
	*crowd
	trace
	client  int
	r       *rand.Rand
	key     int
	history *history

	from    instant
	claim   guardCall
	entered *instant // when the claim had succeeded
	marked  bool     // the claim marked its record unknown
	gaveUp  bool     // the outcome was not stored

	claimed trace  // what the claim saw
	refused *sight // the record that an announcement met

	lost      int     // how many replies got lost
	overtaken []sight // of unreported writes: the reply was lost, and the second try found another owner's record
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
		out.Marked = m.marked
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

// declares returns the options of a request.
func declares(r model.Request) func(*idempotent.Operation) {
	return func(o *idempotent.Operation) {
		o.Recovery, o.Retention = idempotent.Recovery(r.Recovery), span(r.Retention)
	}
}

// watch gets the events of the observer.
func (m *member) watch(e event.Event) {
	m.seen.Add("event "+string(e.Kind), 1)
	switch e.Kind {
	case event.Reserved, event.TakenOver:
		now := m.instant()
		m.entered, m.claimed = &now, m.trace
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
	return newEnding(o)
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
	verdict := model.Done
	if err != nil {
		verdict = verdictOf(err)
	}
	out := m.reply(model.Answer{Verdict: verdict})
	out.stale = m.stood.owner != about.Owner
	out.gaveUp = errors.As(err, new(*idempotent.StoreError))
	m.note(in, m.from, out, to)
}

// announce is an operation beside the handler. If it meets another record, the outcome
// can be settled without a further call.
func (m *member) announce(write func() (sight, bool)) {
	in, from := guardCall{kind: "announce", request: m.claim.request}, m.instant()
	stood, wrote := write()
	to := m.instant()
	in.nows = m.clock.between(from.now, to.now)
	m.history.add(m.client, in, from.stamp, guardReply{trace: trace{asked: true, wrote: wrote, stood: stood}}, to.stamp)
	if m.seen.Add("announce", 1); !wrote {
		m.refused = &stood
	}
}

// reply returns an answer with what the network knows about it.
func (m *member) reply(a model.Answer) guardReply {
	if m.refused != nil && m.trace == m.claimed {
		return guardReply{Answer: a, trace: trace{asked: true, stood: *m.refused}}
	}
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
	case in.kind == "claim" && out.Verdict == model.NoTime && !out.Marked:
		if last := (*in.nows)[len(*in.nows)-1]; last < in.request.Deadline {
			m.complain("%d got NoTime, at %d at the latest, although it had until %d", in.request.Owner, last, in.request.Deadline)
		}
	case in.kind != "settle" && out.gaveUp && !out.Marked:
	default:
		m.history.add(m.client, in, from.stamp, out, to.stamp)
	}
}

// jumpingClock moves only when a test moves it, and remembers its earlier
// times.
type jumpingClock struct {
	now atomic.Int64 // milliseconds

	mu    sync.Mutex
	ticks []int64
}

func newJumpingClock() *jumpingClock {
	c := &jumpingClock{ticks: []int64{began.UnixMilli()}}
	c.now.Store(began.UnixMilli())
	return c
}

func (c *jumpingClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Load() + d.Milliseconds()
	c.ticks = append(c.ticks, now) // recorded before any reader can see it
	c.now.Store(now)
}

// between returns the times that could be read between two that were.
func (c *jumpingClock) between(before, after int64) *[]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, _ := slices.BinarySearch(c.ticks, before)
	to, _ := slices.BinarySearch(c.ticks, after)
	read := slices.Clone(c.ticks[from : to+1])
	return &read
}

// ending is how a handler ends.
type ending struct {
	model.Outcome
	raised error // what it returns
}

func newEnding(o model.Outcome) ending {
	e := ending{Outcome: o}
	switch o.Kind {
	case model.Final:
		e.raised = idempotent.Final("declined", o.Value)
	case model.NotExecuted:
		e.raised = idempotent.NotExecuted(errors.New("nothing happened"))
	case model.Maybe:
		e.raised = idempotent.Unknown(errors.New("no answer"))
	default:
		e.raised = errors.New("the handler failed")
	}
	return e
}

// end ends a handler.
func (e ending) end() (string, error) {
	if e.Kind == model.Result {
		return e.Value, nil
	}
	return "", e.raised
}

// reply is the result of a request, as its caller sees it.
type reply struct {
	value idempotent.Outcome[string]
	err   error
}

// answer returns r as an answer of the model. The handler of the request, if it
// was entered, ended with e.
func (r reply) answer(e ending) model.Answer {
	var (
		final *idempotent.FinalError
		a     = model.Answer{Stored: r.value.Stored}
	)
	a.Verdict = model.Own
	if r.value.Replayed {
		a.Verdict = model.Replayed
	}
	switch {
	case r.err == nil:
		a.Outcome = model.Outcome{Kind: model.Result, Value: r.value.Value}
	case r.err == e.raised:
		a.Outcome = e.Outcome
	case errors.As(r.err, new(*idempotent.LeaseLostError)): // may wrap the handler's error, so it comes first
		a.Verdict = model.Lost
	case errors.As(r.err, &final):
		a.Outcome = model.Outcome{Kind: model.Final, Value: final.Message}
	default:
		a.Verdict = verdictOf(r.err)
	}
	return a
}

// verdicts are the errors that refuse a request or evidence.
var verdicts = []struct {
	err     error
	verdict model.Verdict
}{
	{new(idempotent.InProgressError), model.Running}, {new(idempotent.UnresolvedError), model.Unresolved},
	{new(idempotent.MismatchError), model.Mismatch}, {new(idempotent.NoTimeError), model.NoTime},
	{new(idempotent.SettledError), model.Settled}, {new(idempotent.StaleEvidenceError), model.Stale}, {idempotent.ErrNoRecord, model.Gone},
}

// verdictOf returns the verdict of the model for an error, or one that the model does not
// have.
func verdictOf(err error) model.Verdict {
	for _, v := range verdicts {
		if errtype.Matches(err, v.err) {
			return v.verdict
		}
	}
	return model.Verdict(fmt.Sprintf("%T", err))
}

// resolution returns evidence in the guard's form; token names the attempt that
// it is about.
func resolution(o model.Outcome, token string) idempotent.Resolution {
	switch o.Kind {
	case model.Result:
		return idempotent.Resolved(o.Value)
	default:
		return idempotent.ProvenNotExecuted(token)
	}
}
