package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Resolution is evidence about a record: build it with [Resolved],
// [ResolvedWith], [ResolvedFinal] or [ProvenNotExecuted]. [Later] is the lack
// of it.
type Resolution struct {
	state driver.State // 0: Later
	later time.Duration
	codec Codec // nil: the guard's
	value any
	final *FinalError
}

// Resolved says that the work was done and what its result is. The value is
// what the handler would have returned; replays return it.
func Resolved(value any) Resolution { return Resolution{state: driver.StateCompleted, value: value} }

// ResolvedWith is [Resolved] for a record whose handler stores its results
// with another codec than the guard's, as adapters do.
func ResolvedWith(codec Codec, value any) Resolution {
	return Resolution{state: driver.StateCompleted, codec: codec, value: value}
}

// ResolvedFinal says that the work ended with a business outcome: replays
// return it as a [*FinalError].
func ResolvedFinal(code, message string) Resolution {
	return Resolution{state: driver.StateCompleted, final: &FinalError{Code: code, Message: message}}
}

// ProvenNotExecuted says that no effect happened and none can happen any more,
// because whoever worked on it is dead and not merely late. The next request
// with the key runs. Of a record with steps it speaks of what was begun and not
// finished: the finished ones keep their results.
func ProvenNotExecuted() Resolution { return Resolution{state: driver.StateRetryable} }

// Later says that nothing is known yet: [ReconcileDue] asks again after d, or,
// if d is zero, when its own backoff says.
func Later(d time.Duration) Resolution { return Resolution{later: d} }

// maxResolveRounds bounds how often a resolution meets a record that changes
// under it.
const maxResolveRounds = 4

// Resolve settles the record id by evidence from outside: a provider's
// webhook, a look into its ledger, an operator. It is the only way, besides
// the owner itself, out of an unknown outcome. The first evidence wins; giving
// the same evidence again is no error.
//
// A result may be told of a record that is still in progress: a webhook is
// often faster than the handler. [ProvenNotExecuted] is refused with
// [ErrInProgress] until the owner's lease has ended, and where another request
// began while Resolve was at work. A record that is completed with another
// outcome stays as it is, and the error is [ErrSettled]. Without a record of
// that id, or with an expired one, the error is [ErrNoRecord]. Any other
// failure of the store is [ErrStore]; it is safe to try again.
func (g *Guard) Resolve(ctx context.Context, id RecordID, r Resolution) error {
	if _, err := ParseRecordID(string(id)); err != nil {
		return err
	}
	want, err := g.opts.resolutionOutcome(r)
	if err != nil {
		return err
	}
	current, err := g.store.Get(ctx, id)
	if err != nil {
		return g.resolveFailed(ctx, id, "get", err)
	}
	return g.settleByEvidence(ctx, current, want)
}

// settleByEvidence writes what the evidence makes of the record, which may have
// changed since it was read.
func (g *Guard) settleByEvidence(ctx context.Context, current *driver.Record, want outcome) (err error) {
	id := current.ID
	about, version := current.Owner, newVersion()
	for range maxResolveRounds {
		next, done, err := g.judgeResolution(ctx, current, about, want, version)
		if done {
			return err
		}
		if g.keepsBeside(want) {
			if want, err = g.putChunks(ctx, id, version, want, next.Expires); err != nil {
				return g.resolveFailed(ctx, id, "put the result of", err)
			}
		}
		setOutcome(&next, want)
		met, err := g.replace(ctx, next, current.Version)
		if err != nil {
			return g.resolveFailed(ctx, id, "replace", err)
		}
		if met == nil {
			g.opts.observe(ctx, EventResolved, id.Operation(), &next, nil)
			return nil
		}
		current = met
		if want.state != driver.StateCompleted {
			version = newVersion() // as in settle: the first may have stood there
		}
	}
	return g.resolveFailed(ctx, id, "resolve", fmt.Errorf("the record changed %d times meanwhile", maxResolveRounds))
}

// judgeResolution says what the evidence want, about the work of the owner
// about, makes of the record current: the record to write, or that it is done
// and with which error.
func (g *Guard) judgeResolution(ctx context.Context, current *driver.Record, about driver.Owner, want outcome, v driver.Version) (next driver.Record, done bool, err error) {
	o, id := &g.opts, current.ID
	now := o.now()
	switch decideResolution(current, about, want.state, now) {
	case resolveGone:
		return next, true, fmt.Errorf("%w: %s has expired", ErrNoRecord, short(id))
	case resolveAgreed:
		return next, true, nil
	case resolveTooEarly:
		return next, true, &InProgressError{RecordID: id, RetryAfter: max(0, current.LeaseEnd.Sub(now)), Ref: current.Ref}
	case resolveCompare:
		if want.equals(current) {
			return next, true, nil
		}
		fallthrough
	case resolveSettled:
		err := &SettledError{RecordID: id, State: current.State}
		o.observe(ctx, EventContradicted, id.Operation(), current, err)
		return next, true, err
	case resolveContradict:
		o.observe(ctx, EventContradicted, id.Operation(), current, nil)
	}
	next = o.transition(current, want.state, want.reason, v, now)
	if want.state == driver.StateRetryable {
		next.Steps = finishedSteps(next.Steps)
		schedule(&next, now, o)
	}
	return next, false, nil
}

// resolveFailed turns what the store said into the caller's error.
func (g *Guard) resolveFailed(ctx context.Context, id RecordID, op string, err error) error {
	switch {
	case errors.Is(err, ErrNoRecord):
		return fmt.Errorf("%w: %s", ErrNoRecord, short(id))
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("idempotent: %s: the resolution's result cannot be stored: %w", short(id), ErrTooLarge)
	}
	err = storeError(id, op, err)
	g.opts.observe(ctx, EventStoreError, id.Operation(), nil, err)
	return err
}

// resolutionOutcome encodes the evidence as the handler's outcome would be.
func (o *Options) resolutionOutcome(r Resolution) (outcome, error) {
	out := outcome{state: r.state, reason: driver.ReasonResolved}
	switch {
	case r.state == 0:
		return out, errors.New("idempotent: this Resolution says nothing; use Resolved, ResolvedFinal or ProvenNotExecuted")
	case r.state == driver.StateRetryable:
	case r.final != nil:
		out.encoding, out.result = driver.EncodingFinal, encodeFinal(r.final)
	default:
		codec := r.codec
		if codec == nil {
			codec = o.Codec
		}
		var err error
		if out.encoding, out.result, err = encodeResult(codec, r.value); err != nil {
			return out, err
		}
		out.version = o.ResultVersion
	}
	return out, nil
}
