// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// PendingRecord is the view of a record waiting for evidence that a [ResolveFunc]
// gets. It shares no memory with the record.
type PendingRecord struct {
	// ID is the record's id. ID.DownstreamKey and ID.StepKey return the keys that
	// the handler sent to the provider.
	ID       RecordID
	Token    string // identifies the current attempt, for [ProvenNotExecuted]
	Attempt  int    // number of the current attempt, from 1
	Recovery Recovery
	// Released reports that the record may continue under [Resume], and that no
	// request has continued it yet. If it is false, the outcome is unknown.
	Released bool
	Ref      string    // resource reference set by the handler, if any
	Created  time.Time // time of the first claim
	Since    time.Time // when the outcome became unknown, or the record was released
	LeaseEnd time.Time // end of the current attempt's lease
	Asked    int       // number of earlier calls of a resolver

	record *driver.Record
	sealer Sealer
}

// Pending returns the record r as a [ResolveFunc] gets it. It is for tools that
// show records, and for tests of resolvers.
func (g *Guard) Pending(r driver.Record) PendingRecord {
	g.mustExist("Pending")
	stored := &r
	return PendingRecord{
		ID: r.ID, Token: r.Token(), Attempt: r.Attempt, Recovery: r.Recovery, Released: r.State == driver.StateRetryable,
		Ref: r.Ref, Created: r.Created, Since: r.Since, LeaseEnd: r.LeaseEnd, Asked: r.ReconcileAttempts,
		record: stored.Clone(), sealer: g.opts.Seal,
	}
}

// Step decodes the result of the named step into the value that v points to, and
// reports whether the step has a result. The error is a [*StoreError] if the
// result is sealed and a later call may open it, and otherwise a [*StepError].
func (p PendingRecord) Step(ctx context.Context, name string, v any) (finished bool, err error) {
	stored := p.Stored()
	s, _ := stored.Step(name)
	if !s.Finished {
		return false, nil
	}
	return true, decodeStep(ctx, p.sealer, p.ID, s, v)
}

// Stored returns the record as it is stored, for tools. In a PendingRecord built
// by a test it is the zero value.
func (p PendingRecord) Stored() driver.Record {
	if p.record == nil {
		return driver.Record{}
	}
	return *p.record
}

// ResolveFunc finds out the outcome of a record, for example by querying the
// provider with the record's keys. It returns [Resolved], [ResolvedFinal],
// [ResolvedStep], [ProvenNotExecuted] or [Later]. An error counts as Later and is
// reported to the observer. It is called concurrently. Two errors mean something
// else, as they do from [Operation.Predecessor]:
//   - [*InProgressError]: the work is running elsewhere. The record is not given up,
//     and is asked about again after RetryAfter, or its pause if that is zero.
//   - [Unknown]: the outcome can no longer be found out. A released record becomes
//     unknown, so that no request continues it.
//
// If the record was released, the function can do the rest of the work itself, or
// have the request sent again and return Later.
type ResolveFunc func(ctx context.Context, r PendingRecord) (Resolution, error)

// ReconcileOptions configure [Reconciler]. The zero value of each field selects
// its documented default.
type ReconcileOptions struct {
	// GiveUpAfter is how long after a record became unknown, or was requeued,
	// reconciliation gives it up: if the next call of the resolver brings no evidence,
	// OnExhausted gets the record, and it is then listed as exhausted, not as due. It
	// stays unknown. [Guard.Requeue] makes it due again. Default: 7 days.
	GiveUpAfter time.Duration

	// Backoff is the pause after the first call of the resolver that brought no
	// evidence. It doubles after each further call, up to MaxBackoff. Default: 1 min.
	Backoff time.Duration

	// MaxBackoff is the longest pause. Default: 1 h.
	MaxBackoff time.Duration

	// Timeout limits one call of the resolver, and one of OnExhausted. A call that
	// does not return soon after its context has ended counts as failed and is left
	// behind. Default: 10 s.
	Timeout time.Duration

	// Concurrency is how many records of one operation are reconciled at the same
	// time. Operations do not wait for each other. Default: 8.
	Concurrency int

	// Operations limits the records that the run asks about and counts to these
	// operations. The end of a lease is processed whatever the operation. Default: all.
	Operations []string

	// ReleasedFor is how long after a record was released under [Resume], or
	// requeued, reconciliation gives it up and lists it as exhausted. The next request
	// with its key can still continue it. GiveUpAfter and OnExhausted do not apply to
	// such a record, because it needs no action by an operator. Default: 24 h.
	ReleasedFor time.Duration

	// OnExhausted is called with each record that reconciliation gives up, for
	// example to send it to a queue for operators. If it returns an error or panics,
	// the record stays due. It may be called twice for a record. Default: no call; the
	// record is only listed as exhausted.
	OnExhausted func(ctx context.Context, r PendingRecord) error

	// DryRun calls the resolver but writes nothing. It works on what one list shows, so
	// not on every record if more than 100,000 wait. Default: false.
	DryRun bool

	// SweepOnly only marks or releases records whose lease has ended. It does not
	// call the resolver, which may be nil. Default: false.
	SweepOnly bool
}

func (o *ReconcileOptions) setDefaults() {
	if o.Concurrency == 0 {
		o.Concurrency = 8
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.GiveUpAfter, 7 * 24 * time.Hour}, {&o.ReleasedFor, 24 * time.Hour},
		{&o.Backoff, time.Minute}, {&o.MaxBackoff, time.Hour}, {&o.Timeout, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

func (o *ReconcileOptions) validate() error {
	if o.Concurrency < 1 {
		return errors.New("idempotent: ReconcileOptions.Concurrency must be at least 1 (or zero for the default)")
	}
	if min(o.GiveUpAfter, o.ReleasedFor) < 0 {
		return errors.New("idempotent: ReconcileOptions.GiveUpAfter and ReleasedFor must be positive (or zero for the default)")
	}
	if min(o.Backoff, o.Timeout) < time.Millisecond || o.MaxBackoff < o.Backoff {
		return errors.New("idempotent: ReconcileOptions.Backoff and Timeout must be at least 1ms (or zero for the default), and MaxBackoff not below Backoff")
	}
	return nil
}
