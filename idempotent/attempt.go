package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
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

// newVersion draws a write id.
func newVersion() (v driver.Version) {
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
	r.State = driver.StateInProgress
	r.Recovery = a.opts.Recovery
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

// transition returns r in another state, as the write with id v at now makes
// it. Reconciliation begins anew with it.
func (o *Options) transition(r *driver.Record, state driver.State, reason driver.Reason, v driver.Version, now time.Time) driver.Record {
	next := *r
	next.State, next.Reason = state, reason
	next.Version = v
	next.Settled = now
	next.ReconcileAttempts, next.Exhausted = 0, false
	if state == driver.StateCompleted {
		next.Steps = nil
	}
	schedule(&next, now, o)
	return next
}

func (a *attempt) observe(ctx context.Context, kind EventKind, r *driver.Record, err error) {
	a.opts.observe(ctx, kind, a.id.Operation(), r, err)
}

// insert and replace call the store and recognise our own write in what it
// brings back: a lost reply is retried below us, and the retry's condition
// fails on the first try's write. The write id tells, and nothing else does:
// a record of our owner token may be somebody else's word about our work.

func (g *Guard) insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	existing, err := g.store.Insert(ctx, r, now)
	if err != nil {
		return nil, storeError(r.ID, "insert", err)
	}
	return foreign(existing, r.Version), nil
}

func (g *Guard) replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	current, err := g.store.Replace(ctx, r, was)
	if err != nil {
		return nil, storeError(r.ID, "replace", err)
	}
	return foreign(current, r.Version), nil
}

// storeError wraps what a store said, once.
func storeError(id RecordID, op string, err error) error {
	if errors.Is(err, ErrStore) {
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
