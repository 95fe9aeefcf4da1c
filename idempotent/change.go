package idempotent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// This file writes every change of a record but its claim: the outcome, a step,
// a transaction, evidence, and what reconciliation makes of it. All follow one
// procedure: judge the record that stands, write on its version, recognise an
// own write whose reply was lost, and look again if another write was quicker.

// maxRounds bounds how often one change is judged again because the record
// changed meanwhile: by a sweeper, by evidence and by an earlier write of the
// same run, each once, and one to spare.
const maxRounds = 4

// ending is how a change ended.
type ending uint8

const (
	endWritten   ending = iota + 1 // the record is as the change made it
	endAgreed                      // the record said so already
	endStanding                    // another outcome stands
	endLost                        // the record belongs to another run, or is gone
	endRefused                     // the judge or the store refused: nothing was written, nothing will be
	endFailed                      // the store failed: it is open whether the change was written
	endContended                   // the record changed too often: nothing was written
)

// judgement is what a judge makes of the record that stands.
type judgement struct {
	next driver.Record // the record to write, but for its version and its outcome
	end  ending        // if set, the change ends here and nothing is written
	err  error         // why
	// contradicts: next says something else than the evidence that stands.
	contradicts bool
}

// writer is a party that wants to change a record.
type writer interface {
	// judge looks at the record that stands. It has no effects.
	judge(current *driver.Record, now time.Time) judgement
	// meet takes note of a record that stood in the way.
	meet(current *driver.Record)
}

// judgeFunc is a writer that does not remember what it met.
type judgeFunc func(current *driver.Record, now time.Time) judgement

func (f judgeFunc) judge(current *driver.Record, now time.Time) judgement { return f(current, now) }
func (judgeFunc) meet(*driver.Record)                                     {}

// change is one change of a record.
type change struct {
	opts *Options
	by   writer
	// out is the outcome, if the change completes the record.
	out outcome
	// whole: the result must be stored. Otherwise the outcome is stored without it
	// if the store cannot keep it.
	whole bool
	// transaction writes the record together with writes of the caller. Nil: the
	// record alone.
	transaction driver.Transaction
	// random draws the write ids. Nil: the system does.
	random *random
	// rounds bounds how often the record is judged.
	rounds int
	// mine reports whether a write id is one that this run used before without
	// learning what became of it. Nil: there is none.
	mine func(driver.Version) bool
}

// changed is what became of a change.
type changed struct {
	end ending
	// record is the record that stands: the one written, the one that was met, or,
	// if the store failed, the one that may have been written.
	record *driver.Record
	// out is the outcome as it was stored: a result may have been omitted.
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
		j := c.by.judge(current, now)
		if j.end != 0 {
			return changed{end: j.end, record: current, out: out, err: j.err}
		}
		if j.contradicts {
			c.opts.observe(ctx, event.Contradicted, current.ID.Operation(), current, out.err)
		}
		next := j.next
		// A completed record stays, so a completion alone that met another write was
		// not applied, and its id, with the chunks under it, serves again. A
		// transaction is another request each time, and any other change may have
		// been applied and replaced before its reply came: that id must not recur.
		if version == (driver.Version{}) || c.transaction != nil || next.State != driver.StateCompleted {
			version = c.random.version()
			out.chunks = driver.Chunks{}
		}
		next.Version = version
		if next.State == driver.StateCompleted {
			if g.keepsBeside(out) {
				kept, err := g.putChunks(ctx, &next, out)
				switch {
				case err == nil:
					out = kept
				case c.whole:
					return changed{end: endRefused, record: current, out: out, err: err}
				default:
					c.opts.observe(ctx, event.CompletionFailed, next.ID.Operation(), current, err)
					out = out.omitted(err)
				}
			}
			setOutcome(&next, out)
			next.Reason = out.reason
		}
		met, err := write(ctx, next, current.Version)
		switch {
		case errors.Is(err, driver.ErrTooLarge) && !c.whole && next.State == driver.StateCompleted && out.encoding != driver.EncodingOmitted:
			c.opts.observe(ctx, event.CompletionFailed, next.ID.Operation(), &next, err)
			out = out.omitted(err)
			continue
		case errors.Is(err, driver.ErrTooLarge), errors.Is(err, ErrNotApplied):
			return changed{end: endRefused, record: current, out: out, err: err}
		case errors.Is(err, ErrNoRecord): // an outcome creates no record
			return changed{end: endLost, record: &next, out: out, err: err}
		case err != nil:
			return changed{end: endFailed, record: &next, out: out, err: err}
		case met == nil || met.Version == next.Version:
			return changed{end: endWritten, record: &next, out: out}
		case c.mine != nil && c.mine(met.Version):
			return changed{end: endWritten, record: met, out: out}
		}
		c.by.meet(met)
		current = met
	}
	return changed{end: endContended, record: current, out: out, err: fmt.Errorf("another write was quicker at each of %d attempts", c.rounds)}
}
