// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/guard/model"
)

// role is what an actor does.
type role byte

const (
	attempt role = iota
	sweeper
	stranger
	neighbour
	resolver
	courier // submits evidence some time after it was true
	witness // submits evidence about the step
	reaper
	forgetter
	corrector
	requeuer
	announcer // a run whose handler is late announces itself; a part of the process of the run
)

// phase is where an actor is suspended.
type phase byte

const (
	idle    phase = iota // has not begun
	calling              // has sent a call, which the store has not served
	waiting              // the call is served, the reply in transit
	inside               // in the handler, before its call to the provider
	called               // in the handler, its effect has happened
	paused               // in the handler, after or before a write
	blocked              // the other thread of its process holds the lock of the run
	done
	dead
)

// plan is how a handler will end.
type plan byte

const (
	succeed     plan = iota + 1 // the effect has happened
	refuse                      // NotExecuted: nothing was sent
	fail                        // an error: the call was sent, no reply came
	unsure                      // Unknown: like fail, but declared
	lie                         // NotExecuted, although the effect has happened
	stumble                     // the effect has happened, and the handler fails after its step
	interrupted                 // the process dies
)

var (
	errLost    = errors.New("no reply")
	errCrashed = errors.New("the process is dead")
	errFailed  = errors.New("the provider did not answer")
	errDenied  = fmt.Errorf("%w: the condition of a row failed", idempotent.ErrNotApplied)
)

// actor is one process that makes one request, or submits one piece of
// evidence. It runs only while the scheduler resumes it.
type actor struct {
	w     *world
	name  string
	index byte
	role  role
	plans []plan

	phase phase
	turn  bool // it has to choose its next step before any other step
	fiber *fiber

	run       *actor    // of an announcer: the actor whose run it announces
	announcer *actor    // of that actor
	fired     time.Time // when its timer did, of an announcer

	call  call
	reply reply
	plan  plan
	claim call   // its claim, and the reply, when its handler was entered
	grant reply  //
	told  []byte // the replies so far, as far as it may still depend on them

	// For the invariants.
	owner     driver.Owner // its token, once it has claimed
	versions  byte         // number of write ids it has drawn
	deadline  time.Time
	leaseEnd  time.Time // until then it may be running, if it is killed at its deadline
	gen       int       // the generation of the record that it claimed
	open      bool      // an earlier run of the record may have had an effect, when it claimed
	openSince time.Time // of the record that it claimed
	forgotten bool      // an event reported that the provider may have forgotten the key of its step
	entered   bool
	left      bool       // the handler has ended
	failed    error      // its error
	ends      bool       // it has sent how its handler ended
	known     model.Step // what it knew of its step then
	finished  bool       // its step has returned a result
	effect    effect
	applied   string    // the outcome that a transaction of its handler has stored
	committed bool      // its Commit has returned nil
	denied    bool      // its last Commit was answered with ErrNotApplied
	until     time.Time // the end of the context of its last call
	since     time.Time // the beginning of that context
	releases  int       // writes that released its claim, because its handler was not entered
	misled    bool      // its second Commit was answered with SettledError, although its result is stored
	evidence  evidence
	met       bool   // the store has served it
	promised  string // the outcome that was acknowledged by then

	value    string // the value that the caller got
	stored   bool
	replayed bool
	err      error
}

func (a *actor) gone() bool      { return a.phase == done || a.phase == dead }
func (a *actor) active() bool    { return a.phase != idle && !a.gone() }
func (a *actor) inHandler() bool { return a.entered && !a.left && !a.gone() }

// requests reports whether the actor makes a request.
func (a *actor) requests() bool {
	return a.role == attempt || a.role == sweeper || a.role == stranger || a.role == neighbour
}

// testifies reports whether the actor submits evidence.
func (a *actor) testifies() bool {
	return a.role == resolver || a.role == courier || a.role == witness
}

// process returns the actor that a belongs to: a, if it is no announcer.
func (a *actor) process() *actor {
	if a.run != nil {
		return a.run
	}
	return a
}

// threads returns the threads of the actor's process.
func (a *actor) threads() []*actor {
	if p := a.process(); p.announcer != nil {
		return []*actor{p, p.announcer}
	}
	return []*actor{a}
}

// writing reports whether a write of the actor has been sent, and not been answered.
func (a *actor) writing() bool {
	return (a.phase == calling || a.phase == waiting) && a.call.write()
}

// clock returns the time. Only an announcement reads it while it moves: that is where
// the announcement begins.
func (a *actor) clock() time.Time {
	if n := a.announcer; n != nil && a.w.passing {
		n.fired = began.Add(time.Since(a.w.born))
		n.fiber.rest()
	}
	return a.w.now
}

// begin starts the actor and lets it run to its first call.
func (a *actor) begin() {
	if a.run != nil {
		if a.run.left {
			a.w.facts |= factAnnouncedTooLate
		}
		a.phase = blocked // unless it comes to a call
		a.run.tell('n')
		a.goOn()
		return
	}
	a.deadline = a.w.now.Add(timeout)
	a.leaseEnd = a.deadline.Add(margin)
	a.tell('b')
	body := a.request
	switch a.role {
	case resolver, courier, witness:
		a.evidence = a.look()
		a.told = a.evidence.encode(a.told)
		body = a.resolve
	case reaper:
		body = a.reap
	case forgetter:
		a.evidence = a.look()
		a.told = a.evidence.encode(a.told)
		body = a.discard
	case corrector:
		a.evidence = a.look()
		a.told = a.evidence.encode(a.told)
		body = a.correct
	case requeuer:
		body = a.requeue
	}
	a.fiber = a.w.fibers.take(body)
	a.goOn()
}

// goOn lets the actor run to its next call, into its handler or to its end. The other
// thread of its process goes on by itself if it has waited for this one.
func (a *actor) goOn() {
	a.fiber.resume()
	for _, b := range a.threads() {
		switch {
		case b.phase == idle || b.gone():
		case b.run != nil && !b.fiber.resting: // it has ended, or waits: then it comes to its next call by itself
			b.phase = done
		case b.run == nil && b.fiber.job == nil:
			b.phase = done
			b.w.fibers.free(b.fiber)
			b.w.answers(b)
		case b.fiber.turns != nil && !b.fiber.resting:
			b.phase = blocked
		}
	}
	if a.phase == blocked || a.run != nil && a.run.inHandler() && a.phase == done && a.run.writing() {
		a.w.facts |= factWaited
	}
}

// crash ends the actor immediately, with all threads of its process. Calls that they
// make while they unwind have no effect.
func (a *actor) crash() {
	for _, b := range a.threads() {
		b.phase = dead
	}
	for _, b := range a.threads() {
		if f := b.fiber; f.turns == nil || f.resting {
			f.resume()
		}
	}
	if a.fiber.resting {
		a.fiber.resume()
	}
	if a.run == nil {
		a.w.fibers.free(a.fiber)
	}
}

func (a *actor) key() idempotent.Key {
	switch a.role {
	case neighbour:
		return elsewhere
	case stranger:
		return reused
	}
	return key
}

// fingerprint returns the fingerprint of the actor's request, as it is stored.
func (a *actor) fingerprint() idempotent.Fingerprint {
	switch a.role {
	case neighbour:
		return beyond
	case stranger:
		return theirs
	}
	return ours
}

// recovery returns the recovery that the actor's code declares.
func (a *actor) recovery() idempotent.Recovery {
	switch s := a.w.scenario; {
	case !(s.Redeployed && a.role == sweeper) && !(s.Foreign && !a.requests()):
		return s.Recovery
	case s.Recovery == idempotent.Reconcile:
		return idempotent.Rerun
	default:
		return idempotent.Reconcile
	}
}

// retention returns how long the actor's code stores outcomes.
func (a *actor) retention() time.Duration {
	if a.w.scenario.Foreign && a.requests() {
		return longRetention
	}
	return retention
}

func (a *actor) guard() *idempotent.Guard {
	store := driver.Store(port{a})
	if seen := a.w.scenario.Seen; seen != nil && a.testifies() {
		store = seen(a, store)
	}
	g, err := idempotent.New(store, func(o *idempotent.Options) {
		if o.Recovery = a.recovery(); o.Recovery == idempotent.Resume {
			o.Steps = []string{stepName}
		}
		o.LeaseMargin, o.Retention, o.ReconcileAfter = margin, a.retention(), reconcileAfter
		o.Observer, o.Logger = event.ObserverFunc(a.observe), discard
		o.Now = a.clock
		if a.w.scenario.Predecessor {
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return earlier, true, nil }
		}
	})
	if err != nil {
		panic(err)
	}
	return g
}

func (a *actor) request() {
	ctx := invocation{context.Background(), a.deadline}
	if a.w.scenario.Late {
		ctx.deadline = a.deadline.Add(time.Second)
	}
	out, err := idempotent.DoOutcome(ctx, a.guard(), a.key(), a.handler)
	a.value, a.stored, a.replayed, a.err = out.Value, out.Stored, out.Replayed, err
}

// earlier is the result that the predecessor has.
const earlier = "earlier"

// stepName is the step of every handler that has one.
const stepName = "charge"

// handler is the guarded function. It calls the provider, in a step if the
// scenario has one, and reports what it knows of the result. Its attempt then
// depends only on its claim.
func (a *actor) handler(ctx context.Context) (value string, err error) {
	if a.phase == dead {
		return "", errCrashed
	}
	a.entered, a.claim, a.grant = true, a.call, a.reply
	a.told = a.w.encodeRecord(append(a.told[:0], 'h'), &a.call.record)
	a.w.enter(a)
	ctx = context.WithValue(ctx, byHandler{}, true)
	switch mode := a.w.scenario.Step; {
	case mode != nil:
		value, err = idempotent.Step(ctx, stepName, a.provide, func(o *idempotent.StepOptions) { o.AtMostOnce = *mode == driver.AtMostOnce })
	case a.w.scenario.Commit:
		value, err = a.commit(ctx)
	case a.w.scenario.CommitStep:
		if value, err = a.provide(ctx); err == nil {
			value, err = idempotent.CommitStep(ctx, stepName, value, port{a}.transact)
		}
	default:
		value, err = a.provide(ctx)
	}
	if a.w.stepped() {
		a.pause()
	}
	if a.phase == dead {
		return "", errCrashed
	}
	if err == nil && a.plan == stumble {
		value, err = "", errFailed
	}
	a.left, a.failed = true, err
	return value, err
}

// provide calls the provider.
func (a *actor) provide(context.Context) (string, error) {
	if a.phase == dead {
		return "", errCrashed
	}
	a.phase = inside
	a.w.provide(a)
	if a.fiber.rest(); a.phase == dead {
		return "", errCrashed
	}
	switch a.plan {
	case succeed, stumble:
		a.finished = a.w.scenario.Step != nil
		return a.name, nil
	case refuse, lie:
		return "", idempotent.NotExecuted(errFailed)
	case unsure:
		return "", idempotent.Unknown(errFailed)
	default:
		return "", errFailed
	}
}

// pause gives the announcement of the run a moment between two writes.
func (a *actor) pause() {
	if a.w.scenario.Announce && a.phase != dead {
		a.phase = paused
		a.fiber.rest()
	}
}

// commit completes the record in one transaction with the effect.
func (a *actor) commit(ctx context.Context) (string, error) {
	a.w.provide(a)
	e, _ := idempotent.FromContext(ctx)
	result := a.name
	a.pause()
	err := e.Commit(ctx, result, port{a}.transact)
	a.committed = err == nil
	a.pause()
	if err != nil && a.w.scenario.Second != noSecond && a.phase != dead {
		if a.w.scenario.Second == otherResult {
			result += "'"
		}
		if err = e.Commit(ctx, result, port{a}.transact); errors.As(err, new(*idempotent.SettledError)) {
			a.misled = result == a.applied
			err = nil
		}
	}
	a.denied = errors.Is(err, idempotent.ErrNotApplied)
	return result, err
}

func (a *actor) resolve() {
	a.err = a.guard().Resolve(context.Background(), keyID, a.evidence.resolution())
	if !a.evidence.step {
		a.value, a.stored = a.evidence.value, a.err == nil && a.evidence.value != ""
	}
}

// reap runs the reconciler without a resolver, as on its schedule.
func (a *actor) reap() {
	_, a.err = kit.Reconcile(context.Background(), a.guard(), nil, func(o *idempotent.ReconcileOptions) {
		o.SweepOnly, o.Concurrency = true, 1 // a coroutine has one goroutine
	})
}

// discard forgets the outcome that the operator has seen.
func (a *actor) discard() {
	r := driver.Record{Owner: a.evidence.attempt}
	a.err = a.guard().Forget(context.Background(), keyID, idempotent.Correction{Token: r.Token(), Actor: a.name, Reason: "undone"})
}

// correct replaces the outcome that the operator has seen.
func (a *actor) correct() {
	r := driver.Record{Owner: a.evidence.attempt}
	a.err = a.guard().Resolve(context.Background(), keyID,
		idempotent.Resolved("right, says "+a.name).InsteadOf(idempotent.Correction{Token: r.Token(), Actor: a.name, Reason: "wrong"}))
	if errors.As(a.err, new(*idempotent.StaleEvidenceError)) {
		a.w.facts |= factStaleCorrection
	}
}

func (a *actor) requeue() { a.err = a.guard().Requeue(context.Background(), keyID) }

func (a *actor) observe(_ context.Context, e event.Event) {
	if a.phase == dead {
		return
	}
	a.forgotten = a.forgotten || e.Reason == driver.ReasonKeysForgotten
	a.w.observe(e)
}

// source returns the write that the actor's answer is based on: its own, or the
// one that it found.
func (a *actor) source() driver.Version {
	if a.reply.record != nil {
		return a.reply.record.Version
	}
	return a.call.record.Version
}

// invocation is a context with a deadline in the world's time that never ends.
type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

// port is an actor's connection to the store: every call is a point where the
// scheduler decides.
type port struct{ a *actor }

func (p port) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return p.thread(ctx).ask(ctx, call{kind: insert, record: r, now: now})
}

func (p port) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return p.thread(ctx).ask(ctx, call{kind: replace, record: r, was: was})
}

func (p port) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	return p.thread(ctx).ask(ctx, call{kind: get, record: driver.Record{ID: id}})
}

// transact is an [idempotent.Transaction]: the record and the handler's effect,
// or neither.
func (p port) transact(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return p.thread(ctx).ask(ctx, call{kind: commit, record: r, was: was})
}

// Due always lists the record: a list is a hint, and the sweeper reads the record.
func (p port) Due(context.Context, time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		yield(driver.Listed{ID: keyID, State: driver.StateInProgress}, nil)
	}
}

// Exhausted is never called: no reconciler gives up here.
func (p port) Exhausted(context.Context) iter.Seq2[driver.Listed, error] { panic("not asked") }

// thread returns who makes a call with this context: the actor, or the announcement
// of its run.
func (p port) thread(ctx context.Context) *actor {
	if _, runs := idempotent.FromContext(ctx); runs && ctx.Value(byHandler{}) == nil && p.a.announcer != nil {
		return p.a.announcer
	}
	return p.a
}

// byHandler marks the context of calls that a handler makes.
type byHandler struct{}

func (a *actor) ask(ctx context.Context, c call) (*driver.Record, error) {
	if a.phase == dead {
		return nil, errCrashed
	}
	c.sent, c.judged = a.w.now, a.w.now
	if c.releases() && a.requests() && !a.entered {
		if a.releases++; a.releases > 1 { // beside the answer: it is lost
			return nil, errLost
		}
	}
	c.since, c.lasts = a.lasting(ctx)
	if a.call.kind == insert && !a.call.sent.IsZero() { // the record that it found is judged at the time of the insert
		c.judged = a.call.sent
	}
	switch {
	case a.run != nil:
		a.w.nameVersion(a, c.record.Version)
		c.known, c.entered, c.announces = model.Of(&c.record, stepName).Step, true, true
	case c.write():
		a.w.nameVersion(a, c.record.Version)
		if !a.ends {
			a.ends, a.known = a.left, model.Of(&c.record, stepName).Step
		}
		c.known, c.entered, c.forgotten = a.known, a.entered, a.forgotten
	}
	a.call, a.reply, a.phase = c, reply{}, calling
	if a.fiber.rest(); a.phase == dead {
		return nil, errCrashed
	}
	return a.reply.record, a.reply.err
}

// lasting returns how long a call with this context can last, and since when: a context
// that ends after a while, in real time, can be that of an earlier call, before the clock
// has moved.
func (a *actor) lasting(ctx context.Context) (since time.Time, lasts time.Duration) {
	until, ok := ctx.Deadline()
	if !ok {
		return a.w.now, forever
	}
	if !until.Equal(a.until) {
		a.until, a.since = until, a.w.now
	}
	if until.Before(began) {
		return a.since, time.Until(until)
	}
	return a.since, until.Sub(a.since)
}

// forever is longer than any schedule.
const forever = 1 << 62

// call is one call to the store.
type call struct {
	kind   method
	record driver.Record
	was    driver.Version
	now    time.Time // of an insert: what its condition compares
	sent   time.Time
	since  time.Time     // when its context began
	lasts  time.Duration // at most, unless it is answered
	resent bool

	announces bool // it is the announcement of a run

	// What its sender knows.
	judged    time.Time // of a claim: when it decided about the record
	entered   bool      // its handler
	forgotten bool      // the provider may have forgotten the key of its step
	known     model.Step
}

type method byte

const (
	insert method = iota
	replace
	commit // a replace, and the effect of its sender
	get
)

func (c *call) write() bool { return c.kind != get }

// releases reports whether the call releases a record.
func (c *call) releases() bool { return c.kind == replace && c.record.State == driver.StateRetryable }

// reply is the store's answer, or what a client library made of a missing
// answer.
type reply struct {
	record *driver.Record
	err    error
}

// own reports whether the reply shows the call's own write, from a call that
// was sent twice.
func (r reply) own(c *call) bool {
	return r.record != nil && c.write() && r.record.Version == c.record.Version
}
