// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/view"
)

// Settler writes evidence of operators.
type Settler struct {
	*Env
	ResultVersion string
	Force         bool // whatever the shape of a result is
}

// Question returns what will be written. The answer is a word, or the record's hash
// if an effect may happen again.
func (c *Settler) Question(o Store, p Piece, reason string) Question {
	r, ev := p.Record, p.Evidence
	q := Question{about(o, r, "created "+output.When(r.Created, c.Now())), "Every retry gets this. To correct it later: --instead-of, or once forget.", "yes"}
	if s, recorded := r.Step(ev.Step); recorded {
		v := view.StepOf(r.ID, s)
		q.Facts = append(q.Facts, [2]string{"step", output.DescribeStep(&v)})
	}
	q.Facts = append(q.Facts, writes([]becoming{ev.becoming()}, reason))
	switch {
	case ev.Instead:
		q.Warning = "Every retry gets this instead of the stored outcome. Nothing runs again. A caller\nthat got the other one does not learn of this."
	case ev.Step != "":
		q.Warning = "The next attempt gets this result and does not repeat the step."
	case ev.Kind == KindNotExecuted:
		q.Word = r.ID.KeyHash()
		q.Warning = "The next request with this key runs. If the effect did happen, it happens twice."
	}
	return q
}

// QuestionAll returns how many records change, after a rehearsal of the tasks. The answer
// is that number.
func (c *Settler) QuestionAll(o Store, tasks []*Task) Question {
	becomes, run := map[string]int{}, 0
	var write []*Task
	for _, t := range tasks {
		if becomes[t.Line.Outcome]++; !t.written {
			continue
		}
		if write = append(write, t); t.Evidence.Kind == KindNotExecuted {
			run++
		}
	}
	var become []becoming
	var reasons []string
	for _, t := range write {
		become, reasons = append(become, t.Evidence.becoming()), append(reasons, t.Reason)
	}
	if reasons = slices.Compact(reasons); len(reasons) > 1 {
		reasons = []string{"each its own"}
	}
	facts := [][2]string{{"in", output.OneLine(o.Name())}, writes(become, strings.Join(reasons, ""))}
	for _, what := range []string{OutcomeUnchanged, outcomeRefused, outcomeFailed} {
		if n := becomes[what]; n > 0 {
			facts = append(facts, [2]string{what, output.Count(n, "record")})
		}
	}
	warning := "Every retry gets these outcomes.\nTo correct one later: --instead-of, or once forget."
	if run > 0 {
		warning += fmt.Sprintf("\nThe next requests of %s run. If an effect did happen, it happens twice.", output.Count(run, "record"))
	}
	return Question{facts, warning, fmt.Sprint(len(write))}
}

// Settle writes the evidence if the record has not changed since it was shown, and
// writes the line that it returns to the audit.
func (c *Settler) Settle(ctx context.Context, o Store, shown Piece, reason string, a *Auditor) (AuditLine, error) {
	t := &Task{Piece: shown, Reason: reason}
	c.TryShown(ctx, o, t)
	return t.Line, errors.Join(t.Err, a.Write(t.Line))
}

// TryShown writes the evidence of a task if nothing is wrong with it and its record has
// not changed since it was shown.
func (c *Settler) TryShown(ctx context.Context, o Store, t *Task) {
	if t.Err == nil {
		var current *driver.Record
		if current, t.Err = o.Get(ctx, t.Record.ID); t.Err == nil && current.Version != t.Record.Version {
			t.Err = Changed(current)
		}
	}
	if t.Err == nil {
		t.written, t.Err = c.write(ctx, o, t.Record.ID, t.Evidence, t.Reason)
	}
	t.Line = t.Wrote(ctx, o, "resolve", t.Reason, t.written, t.Err)
}

// Changed refuses a write because the operator has seen an earlier record.
func Changed(current *driver.Record) error {
	return Refuse("%s: the record has changed since it was shown: it is %s (%s) now, attempt %d; run once show again", output.Short(current.ID), current.State, output.OneLine(string(current.Reason)), current.Attempt)
}

// Try writes the evidence of a task, unless its record is missing.
func (c *Settler) Try(ctx context.Context, o Store, t *Task) {
	if t.Record.State != 0 {
		t.written, t.Err = c.write(ctx, o, t.ID, t.Evidence, t.Reason)
	}
	t.Line = t.Wrote(ctx, o, "resolve", t.Reason, t.written, t.Err)
}

// write lets the guard check and write the evidence. It reports whether the record
// changed: it may already hold the same outcome.
func (c *Settler) write(ctx context.Context, o Store, id idempotent.RecordID, ev *Evidence, reason string) (written bool, err error) {
	g, err := newGuard(c.Env, o, func(opts *idempotent.Options) {
		opts.ResultVersion = c.ResultVersion
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			written = written || e.Kind == event.Resolved
		})
	})
	if err != nil {
		return false, Usage("%v", err) // the version of the result is invalid
	}
	r := ev.Resolution
	if ev.Instead {
		r = r.InsteadOf(idempotent.Correction{Token: ev.Token, Actor: c.actor(), Reason: reason})
	}
	err = stale(id, g.Resolve(ctx, id, r), ", then ask the provider again")
	return written, refusal(err) // for example of a result that is too large
}
