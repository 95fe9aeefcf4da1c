package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// attempt is one request in the protocol: claim, run, settle.
type attempt struct {
	guard  *Guard
	opts   *Options
	id     RecordID
	fp     Fingerprint
	owner  driver.Owner
	window window
	mine   driver.Record // the claim as last written by this attempt
	// openBefore is the record's OpenSince before this attempt claimed it.
	openBefore time.Time
	// lastCall is how long the last write took.
	lastCall time.Duration
}

// begin prepares an attempt for key. The owner token is random, never the request
// id, because an asynchronous retry may reuse the request id.
func (g *Guard) begin(ctx context.Context, o *Options, key Key, now time.Time) attempt {
	a := attempt{guard: g, opts: o, id: key.RecordID(), fp: key.Fingerprint, window: o.windowOf(ctx, now)}
	rand.Read(a.owner[:])
	return a
}

// fresh returns the record of a new key, claimed at now.
func (a *attempt) fresh(ctx context.Context, now time.Time) driver.Record {
	return a.claimed(ctx, driver.Record{ID: a.id, Reason: driver.ReasonClaimed, Created: now}, now)
}

// takeover returns r, claimed for another run at now. Recorded steps are
// preserved.
func (a *attempt) takeover(ctx context.Context, r *driver.Record, now time.Time) driver.Record {
	next := *r
	next.Reason = driver.ReasonTakenOver
	return a.claimed(ctx, next, now)
}

// claimed returns r as owned by this attempt. It stores the options that the
// current code declares, because the work that begins is this code's work.
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
	r.Version = newVersion()
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
// keys that earlier runs of this record used. Running one of their steps again
// with such a key would repeat its effect.
func (a *attempt) keysForgotten(now time.Time) bool {
	return !a.openBefore.IsZero() && !now.Before(a.openBefore.Add(a.opts.DownstreamRetention))
}

// released returns the claim r of this attempt, whose handler was not entered,
// such that the next request can take it over. OpenSince has its value from before
// the claim.
func (a *attempt) released(r *driver.Record, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.OpenSince = a.openBefore
	return a.opts.transition(&next, driver.StateRetryable, reason, now)
}

func (a *attempt) observe(ctx context.Context, kind event.Kind, r *driver.Record, err error) {
	a.opts.observe(ctx, kind, a.id.Operation(), r, err)
}

// insert and replace call the store and measure the duration. They recognize this
// attempt's own write in the returned record: the store may have retried after a
// lost reply, and the retry's condition then fails on the first try's write. Only
// the write id proves that. A record with this attempt's owner token may have
// been written by another party that judged its work.

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

// storeError wraps an error of the store, once.
func storeError(id RecordID, op driver.Op, err error) error {
	if errors.As(err, new(*StoreError)) {
		return err
	}
	return &StoreError{RecordID: id, Op: op, Err: err}
}

// foreign returns r, or nil if r is the write with id own.
func foreign(r *driver.Record, own driver.Version) *driver.Record {
	if r != nil && r.Version == own {
		return nil
	}
	return r
}
