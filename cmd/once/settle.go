// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/view"
)

// settler writes evidence of operators.
type settler struct {
	*env
	resultVersion string
	force         bool // whatever the shape of a result is
}

// rehearse checks the evidence as settle does, and writes nothing. It returns the
// line that the audit would contain.
func (c *settler) rehearse(ctx context.Context, o *opened, p piece, reason string) (auditLine, error) {
	dry := o.rehearse()
	written, err := c.write(ctx, dry, p.record.ID, p.ev, reason)
	line := p.wrote(ctx, dry, "resolve", reason, written, err)
	if written {
		line.Outcome = outcomeWouldWrite
	}
	return line, err
}

// question returns what will be written. The answer is a word, or the record's hash
// if an effect may happen again.
func (c *settler) question(o *opened, p piece) question {
	r, ev := p.record, p.ev
	q := question{about(o, r, "created "+when(r.Created, c.now())), "Every retry gets this. To correct it later: --instead-of, or once forget.", "yes"}
	if s, recorded := r.Step(ev.step); recorded {
		v := view.StepOf(r.ID, s)
		q.facts = append(q.facts, [2]string{"step", describeStep(&v)})
	}
	q.facts = append(q.facts, [2]string{"becomes", ev.text})
	switch {
	case ev.instead:
		q.warning = "Every retry gets this instead of the stored outcome. Nothing runs again. A caller\nthat got the other one does not learn of this."
	case ev.aboutStep():
		q.warning = "The next attempt gets this result and does not repeat the step."
	case ev.kind == kindNotExecuted:
		q.word = r.ID.KeyHash()
		q.warning = "The next request with this key runs. If the effect did happen, it happens twice."
	}
	return q
}

// settle writes the evidence if the record has not changed since it was shown, and
// writes the line that it returns to the audit.
func (c *settler) settle(ctx context.Context, o *opened, shown piece, reason string, a *auditor) (auditLine, error) {
	written, err := c.writeShown(ctx, o, shown, reason)
	line := shown.wrote(ctx, o, "resolve", reason, written, err)
	return line, errors.Join(err, a.write(line))
}

// writeShown writes the evidence if the record has not changed since it was shown.
func (c *settler) writeShown(ctx context.Context, o *opened, shown piece, reason string) (written bool, err error) {
	current, err := o.Get(ctx, shown.record.ID)
	if err == nil && current.Version != shown.record.Version {
		err = changed(current)
	}
	if err != nil {
		return false, err
	}
	return c.write(ctx, o, shown.record.ID, shown.ev, reason)
}

// changed refuses a write because the operator has seen an earlier record.
func changed(current *driver.Record) error {
	return refuse("%s: the record has changed since it was shown: it is %s (%s) now, attempt %d; run once show again", short(current.ID), current.State, oneLine(string(current.Reason)), current.Attempt)
}

// write lets the guard check and write the evidence. It reports whether the record
// changed: it may already hold the same outcome.
func (c *settler) write(ctx context.Context, o *opened, id idempotent.RecordID, ev *evidence, reason string) (written bool, err error) {
	g, err := c.newGuard(o, func(opts *idempotent.Options) {
		opts.ResultVersion = c.resultVersion
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			written = written || e.Kind == event.Resolved
		})
	})
	if err != nil {
		return false, usage("%v", err) // the version of the result is invalid
	}
	r := ev.resolution
	if ev.instead {
		r = r.InsteadOf(idempotent.Correction{Token: ev.token, Actor: c.actor(), Reason: reason})
	}
	err = stale(id, g.Resolve(ctx, id, r), ", then ask the provider again")
	return written, refusal(err) // for example of a result that is too large
}
