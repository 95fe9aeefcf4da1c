// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// This file writes every change of a record except its claim: the outcome, a
// step, a transaction, evidence, and reconciliation. All follow one procedure:
// judge the current record, write if its version has not changed, recognize an
// own write whose reply was lost, and judge again if another write came first.

// maxRounds limits how often one change is judged again because the record
// changed meanwhile: by a sweeper, by evidence and by an earlier write of the
// same run, once each, plus one spare.
const maxRounds = 4

// ending is how a change ended.
type ending uint8

const (
	endWritten   ending = iota + 1 // the record is as the change made it
	endAgreed                      // the record already said so
	endStanding                    // another outcome is stored
	endApplied                     // an earlier write of this run has stored an outcome: its reply was lost
	endLost                        // the record belongs to another run, or is gone
	endRefused                     // the judge or the store refused: nothing was written or will be
	endFailed                      // the store failed: the change may or may not have been written
	endContended                   // the record changed too often: nothing was written
)

// judgement is the decision of a judge about the current record.
type judgement struct {
	next driver.Record // the record to write, except for its version and outcome
	end  ending        // if set, the change ends here and nothing is written
	err  error         // reason for end
	// contradicts reports that next contradicts recorded evidence.
	contradicts bool
}

// refuse ends a change with an error.
func refuse(err error) judgement { return judgement{end: endRefused, err: err} }

func refuseGone(current *driver.Record) judgement {
	return refuse(fmt.Errorf("%w: %s has expired", ErrNoRecord, short(current.ID)))
}

func refuseStale(current *driver.Record) judgement {
	return refuse(&StaleEvidenceError{RecordID: current.ID, Attempt: current.Attempt})
}

// writer is a party that changes a record.
type writer interface {
	// judge decides about the current record. It may read, and writes nothing.
	judge(ctx context.Context, current *driver.Record, now time.Time) judgement
	// meet is called with a record that was found instead of the expected version. It
	// reports whether an earlier write of this run has completed that record: the
	// stored outcome is then the outcome, and the change ends.
	meet(current *driver.Record) (applied bool)
}

// judgeFunc is a writer that ignores the records it meets.
type judgeFunc func(current *driver.Record, now time.Time) judgement

func (f judgeFunc) judge(_ context.Context, current *driver.Record, now time.Time) judgement {
	return f(current, now)
}
func (judgeFunc) meet(*driver.Record) bool { return false }

// change is one change of a record.
type change struct {
	opts *Options
	by   writer
	// out is the outcome if the change completes the record.
	out outcome
	// whole requires the result to be stored. If it is false and the store cannot
	// hold the result, the outcome is stored without it.
	whole bool
	// transaction writes the record together with writes of the caller. If nil, only
	// the record is written.
	transaction driver.Transaction
	// rounds limits how often the record is judged.
	rounds int
}

// changed is the result of a change.
type changed struct {
	end ending
	// record is the current record: the one written, the one found instead, or, if
	// the store failed, the one that may have been written.
	record *driver.Record
	// out is the outcome as stored: its result may be sealed, or omitted.
	out outcome
	err error
}

// apply applies c to the record current, which may have changed since it was
// read.
func (g *Guard) apply(ctx context.Context, current *driver.Record, c *change) changed {
	write := c.transaction
	if write == nil {
		write = g.store.Replace
	}
	out := c.out
	var version driver.Version
	for range c.rounds {
		now := c.opts.now()
		j := c.by.judge(ctx, current, now)
		if j.end != 0 {
			return changed{end: j.end, record: current, out: out, err: j.err}
		}
		if j.contradicts {
			c.opts.observe(ctx, event.Contradicted, current.ID, current, out.err)
		}
		next := j.next
		// Only Forget changes a completed record, and a completion after it contradicts
		// it. So any other completion that was refused because of another write was not
		// applied: its id, and the chunks stored under it, can be used again. A
		// transaction is a new request each time, and any other change may have been
		// applied and then replaced before its reply came: those ids must not be reused.
		if version == (driver.Version{}) || c.transaction != nil || j.contradicts || next.State != driver.StateCompleted {
			version = newVersion()
			out.chunks = driver.Chunks{}
		}
		next.Version = version
		if next.State == driver.StateCompleted {
			kept, err := g.prepare(ctx, c.opts, &next, out)
			switch {
			case err == nil:
				out = kept
			case c.whole:
				return changed{end: endRefused, record: current, out: out, err: err}
			default:
				c.opts.observe(ctx, event.CompletionFailed, next.ID, current, err)
				out = out.omitted(err)
			}
			setOutcome(&next, out)
			next.Reason = out.reason
		}
		met, err := write(ctx, next, current.Version)
		switch {
		case errors.Is(err, driver.ErrTooLarge) && !c.whole && next.State == driver.StateCompleted && out.encoding != driver.EncodingOmitted:
			c.opts.observe(ctx, event.CompletionFailed, next.ID, &next, storeError(next.ID, driver.OpReplace, err)) // a transaction is whole
			out = out.omitted(err)
			continue
		case errors.Is(err, driver.ErrTooLarge), errors.Is(err, ErrNotApplied):
			return changed{end: endRefused, record: current, out: out, err: err}
		case errors.Is(err, ErrNoRecord): // an outcome never creates a record
			return changed{end: endLost, record: &next, out: out, err: err}
		case err != nil:
			return changed{end: endFailed, record: &next, out: out, err: err}
		case met == nil || met.Version == next.Version:
			return changed{end: endWritten, record: &next, out: out}
		case c.by.meet(met):
			return changed{end: endApplied, record: met, out: stored(met)}
		}
		current = met
	}
	return changed{end: endContended, record: current, out: out, err: fmt.Errorf("conflict persisted after %d attempts", c.rounds)}
}

// newVersion returns a random id for a write.
func newVersion() (v driver.Version) {
	rand.Read(v[:])
	return v
}

// keepUntilLeaseEnd extends the expiry of the completed record r to the end of its
// lease. A writer calls it if the handler may still be running: a short retention
// must not let a second request run at the same time.
func keepUntilLeaseEnd(r *driver.Record) {
	if r.Expires.Before(r.LeaseEnd) {
		r.Expires = r.LeaseEnd
	}
}

// transition returns r in another state, as written at now. It resets the
// reconciliation counters.
func (o *Options) transition(r *driver.Record, state driver.State, reason driver.Reason, now time.Time) driver.Record {
	next := *r
	next.State, next.Reason = state, reason
	next.Since = now
	next.ReconcileAttempts, next.Exhausted = 0, false
	if state == driver.StateCompleted {
		next.Steps, next.OpenSince = nil, time.Time{}
	}
	next.Schedule(now, o.ReconcileAfter)
	return next
}

// inlineResult is the size in bytes up to which a result stays in its record even
// if the store could store it beside: a read of a record is billed by its size,
// and one read unit covers 4 KB.
const inlineResult = 4 << 10

// keepsBeside reports whether to store the result of out beside its record: it is
// large, the store supports it, and it is not stored there yet.
func (g *Guard) keepsBeside(out outcome) bool {
	return len(out.result) > inlineResult && g.chunks != nil && out.chunks.Count == 0
}

// prepare returns out as it is written with the record next: sealed, and with its
// chunks stored.
func (g *Guard) prepare(ctx context.Context, o *Options, next *driver.Record, out outcome) (outcome, error) {
	if o.Seal != nil && out.encoding != driver.EncodingOmitted && !out.sealed {
		var err error
		if out.encoding, out.result, err = seal(ctx, o.Seal, site{record: next.ID}, out.encoding, out.result); err != nil {
			return out, err
		}
		out.sealed = true
	}
	if g.keepsBeside(out) {
		return g.putChunks(ctx, next, out)
	}
	return out, nil
}

// decodeResult decodes the result of a completed record into the value that v
// points to. The error is a [*FinalError] if that is the outcome, a
// [*ReplayUnavailableError] if the result cannot be read, and a [*StoreError] if
// a later try may succeed.
func decodeResult(ctx context.Context, o *Options, r *driver.Record, v any) error {
	unavailable := func(reason string) error {
		return &ReplayUnavailableError{RecordID: r.ID, Reason: reason, Ref: r.Ref}
	}
	if r.Encoding == driver.EncodingOmitted {
		return unavailable("the result could not be stored")
	}
	encoding, data, err := r.Encoding, r.Result, error(nil)
	if r.Sealed() {
		encoding, data, err = unseal(ctx, o.Seal, site{record: r.ID}, encoding, data)
	}
	switch {
	case errors.As(err, new(*StoreError)):
		return err
	case err != nil:
		return unavailable(err.Error())
	case encoding == driver.EncodingFinal:
		final, err := decodeFinal(data)
		if err != nil {
			return unavailable("the stored Final error is damaged")
		}
		return final
	case r.ResultVersion != o.ResultVersion:
		return unavailable(fmt.Sprintf("it has version %q but this code reads version %q", r.ResultVersion, o.ResultVersion))
	}
	data, err = unpack(encoding, o.Codec.Name(), data)
	if err != nil {
		return unavailable(err.Error())
	}
	if err := decode(o.Codec, data, v); err != nil {
		return unavailable(fmt.Sprintf("the stored result does not decode into a %s", reflect.TypeOf(v).Elem()))
	}
	return nil
}

// This file has the large results, which are stored beside their records, and compares
// outcomes with what is stored.

// putChunks stores the result of out beside the record next, which is written
// afterwards, and returns out with a description of the chunks. It uses at most
// two thirds of the time left; the rest is for the record.
func (g *Guard) putChunks(ctx context.Context, next *driver.Record, out outcome) (outcome, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*2/3)
		defer cancel()
	}
	count, err := g.chunks.PutChunks(ctx, next.ID, next.Version, out.result, next.Expires)
	if err != nil {
		return out, storeError(next.ID, driver.OpPutChunks, err)
	}
	out.chunks = driver.Chunks{Count: count, Length: len(out.result), Sum: sha256.Sum256(out.result)}
	return out, nil
}

// withChunks returns r with its result, fetching it if it is stored beside the
// record. The error is [*ReplayUnavailableError] if the result is missing or
// altered, and [*StoreError] if the store fails; a retry may then succeed.
func (g *Guard) withChunks(ctx context.Context, r *driver.Record) (*driver.Record, error) {
	if r.Chunks.Count == 0 || r.Result != nil {
		return r, nil
	}
	unavailable := &ReplayUnavailableError{RecordID: r.ID, Ref: r.Ref}
	if g.chunks == nil {
		unavailable.Reason = "it is stored in chunks, which this store does not support"
		return r, unavailable
	}
	data, err := g.chunks.GetChunks(ctx, r.ID, r.Version, r.Chunks.Count)
	switch {
	case errors.Is(err, ErrNoRecord):
		unavailable.Reason = "a chunk of the stored result is missing"
		return r, unavailable
	case err != nil:
		return r, storeError(r.ID, driver.OpGetChunks, err)
	case !matches(r.Chunks, data):
		unavailable.Reason = "the stored result was altered"
		return r, unavailable
	}
	whole := *r
	whole.Result = data
	return &whole, nil
}

// holds reports whether the completed record r holds the outcome out. It opens a
// sealed result, because sealing equal results gives different bytes. The error
// is a [*StoreError] if a later try may succeed; a result that cannot be read is
// another outcome.
func (g *Guard) holds(ctx context.Context, o *Options, r *driver.Record, out outcome) (bool, error) {
	if out.encoding == driver.EncodingOmitted || !r.Sealed() {
		return out.equals(r), nil
	}
	whole, err := g.withChunks(ctx, r)
	if err == nil {
		opened := *r
		opened.Chunks = driver.Chunks{}
		if opened.Encoding, opened.Result, err = unseal(ctx, o.Seal, site{record: r.ID}, whole.Encoding, whole.Result); err == nil {
			return out.equals(&opened), nil
		}
	}
	if errors.As(err, new(*StoreError)) {
		return false, err
	}
	return false, nil
}

// equals reports whether the completed record r, which is not sealed, holds the
// same outcome.
func (o outcome) equals(r *driver.Record) bool {
	switch {
	case o.state != r.State:
		return false
	case r.Chunks.Count > 0:
		return o.encoding == r.Encoding && matches(r.Chunks, o.result)
	}
	return resultEquals(o.encoding, o.result, r.Encoding, r.Result)
}

// resultEquals reports whether two stored results are equal: the same bytes of
// the same codec, compressed or not.
func resultEquals(encodingA string, a []byte, encodingB string, b []byte) bool {
	if encodingA == encodingB && bytes.Equal(a, b) {
		return true
	}
	codec := strings.TrimSuffix(encodingA, encodingCompressed)
	plainA, errA := unpack(encodingA, codec, a)
	plainB, errB := unpack(encodingB, codec, b)
	return errA == nil && errB == nil && bytes.Equal(plainA, plainB)
}

// matches reports whether c was computed from data.
func matches(c driver.Chunks, data []byte) bool {
	return len(data) == c.Length && sha256.Sum256(data) == c.Sum
}
