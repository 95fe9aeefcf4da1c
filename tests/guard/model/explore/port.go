// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"iter"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/guard/model"
)

// port is an actor's connection to the store: every call is a point where the
// scheduler decides.
type port struct{ a *actor }

func (p port) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return p.thread(ctx).ask(call{kind: insert, record: r, now: now})
}

func (p port) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return p.thread(ctx).ask(call{kind: replace, record: r, was: was})
}

func (p port) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	return p.thread(ctx).ask(call{kind: get, record: driver.Record{ID: id}})
}

// transact is an [idempotent.Transaction]: the record and the handler's effect,
// or neither.
func (p port) transact(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	return p.thread(ctx).ask(call{kind: commit, record: r, was: was})
}

// Due always lists the record: a list is a hint, and the sweeper reads the record.
func (p port) Due(context.Context) iter.Seq2[driver.Listed, error] {
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

func (a *actor) ask(c call) (*driver.Record, error) {
	if a.phase == dead {
		return nil, errCrashed
	}
	c.sent, c.judged = a.w.now, a.w.now
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

// call is one call to the store.
type call struct {
	kind   method
	record driver.Record
	was    driver.Version
	now    time.Time // of an insert: what its condition compares
	sent   time.Time
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
