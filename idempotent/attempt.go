package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// attempt is one request on its way through the protocol: claim, run, settle.
type attempt struct {
	guard  *Guard
	opts   *Options
	id     RecordID
	fp     Fingerprint
	owner  driver.Owner
	window window
	random random
	mine   driver.Record // the claim as this attempt wrote it last
	// openBefore is the record's OpenSince before this attempt claimed it.
	openBefore time.Time
	// lastCall is how long the last call of the store took.
	lastCall time.Duration
}

// begin prepares an attempt for key. It draws the owner token: random, and
// never the request id, which an asynchronous retry may use again.
func (g *Guard) begin(ctx context.Context, o *Options, key Key, now time.Time) attempt {
	a := attempt{guard: g, opts: o, id: key.RecordID(), fp: key.Fingerprint, window: o.windowOf(ctx, now)}
	a.owner = a.random.draw()
	return a
}

// random is the randomness of one attempt, read in portions: the usual attempt
// needs an owner token and two write ids, and asking the system once for all
// three is a tenth of the cost of a request on a store in memory.
type random struct {
	bytes [3 * 16]byte
	used  int
}

// draw returns 128 bits that were never drawn before.
func (r *random) draw() (out [16]byte) {
	if r.used == 0 {
		rand.Read(r.bytes[:])
	}
	copy(out[:], r.bytes[r.used:])
	r.used = (r.used + len(out)) % len(r.bytes)
	return out
}

// version draws a write id.
func (r *random) version() (v driver.Version) {
	if r != nil {
		return r.draw()
	}
	rand.Read(v[:])
	return v
}

// fresh returns the record of a new key, claimed at now.
func (a *attempt) fresh(ctx context.Context, now time.Time) driver.Record {
	return a.claimed(ctx, driver.Record{ID: a.id, Reason: driver.ReasonClaimed, Created: now}, now)
}

// takeover returns r, claimed for another run at now. What is recorded of its
// steps stays.
func (a *attempt) takeover(ctx context.Context, r *driver.Record, now time.Time) driver.Record {
	next := *r
	next.Reason = driver.ReasonTakenOver
	return a.claimed(ctx, next, now)
}

// claimed makes r this attempt's own. The promise is the one that the code
// declares now: the work that begins is this code's work.
func (a *attempt) claimed(ctx context.Context, r driver.Record, now time.Time) driver.Record {
	a.openBefore = r.OpenSince
	a.opts.declare(&r)
	switch {
	case r.Recovery != driver.Resume:
		r.OpenSince = time.Time{}
	case r.OpenSince.IsZero():
		r.OpenSince = now
	}
	r.State = driver.StateInProgress
	r.Owner = a.owner
	r.Version = a.random.draw()
	r.Attempt++
	r.Fingerprint = a.fp
	r.LeaseEnd = a.window.leaseEnd
	r.Settled = time.Time{}
	setOutcome(&r, outcome{})
	r.ReconcileAttempts, r.Exhausted = 0, false
	if a.opts.RequestID != nil {
		r.RequestID = a.opts.RequestID(ctx)
	}
	schedule(&r, now, a.opts)
	return r
}

// keysForgotten reports whether the provider may have forgotten the downstream
// keys that earlier runs of this record used: running a step of theirs again with
// such a key would repeat its effect.
func (a *attempt) keysForgotten(now time.Time) bool {
	return !a.openBefore.IsZero() && !now.Before(a.openBefore.Add(a.opts.DownstreamRetention))
}

// released returns the claim r of this attempt, whose handler was not entered,
// as the next request may take it over: what was open before stays open.
func (a *attempt) released(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.OpenSince = a.openBefore
	return a.opts.transition(&next, driver.StateRetryable, reason, now)
}

func (a *attempt) observe(ctx context.Context, kind event.Kind, r *driver.Record, err error) {
	a.opts.observe(ctx, kind, a.id.Operation(), r, err)
}

// insert, replace and get call the store, note how long it took, and recognise
// an own write in what the store returns: a lost reply is retried below, and the
// retry's condition fails on the first try's write. Only the write id proves
// that: a record with this attempt's owner token may be somebody's judgement of
// its work.

func (a *attempt) insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	began := a.opts.Now()
	existing, err := a.guard.store.Insert(ctx, r, now)
	a.lastCall = a.opts.Now().Sub(began)
	if err != nil {
		return nil, storeError(r.ID, driver.OpInsert, err)
	}
	return foreign(existing, r.Version), nil
}

func (a *attempt) replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	began := a.opts.Now()
	current, err := a.guard.store.Replace(ctx, r, was)
	a.lastCall = a.opts.Now().Sub(began)
	if err != nil {
		return nil, storeError(r.ID, driver.OpReplace, err)
	}
	return foreign(current, r.Version), nil
}

func (a *attempt) get(ctx context.Context) (*driver.Record, error) {
	began := a.opts.Now()
	r, err := a.guard.store.Get(ctx, a.id)
	a.lastCall = a.opts.Now().Sub(began)
	return r, err
}

// storeError wraps what a store returned, once.
func storeError(id RecordID, op driver.Op, err error) error {
	if errors.As(err, new(*StoreError)) {
		return err
	}
	return &StoreError{RecordID: id, Op: op, Err: err}
}

// foreign returns r unless it is the write with id own.
func foreign(r *driver.Record, own driver.Version) *driver.Record {
	if r != nil && r.Version == own {
		return nil
	}
	return r
}
