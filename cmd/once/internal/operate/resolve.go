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

// ForgetQuestion returns what will be discarded. The answer is the hash of the record.
func ForgetQuestion(e *Env, o Store, r *driver.Record, reason string) Question {
	facts := append(about(o, r, "since "+output.When(r.Since, e.Now())),
		[2]string{"result", output.DescribeResult(view.Of(r))}, writes([]becoming{{one: "retryable, because its outcome is discarded"}}, reason))
	return Question{facts, "The next request with this key runs. If the effect did happen, it happens twice:\nundo it at the provider first.", r.ID.KeyHash()}
}

// Forget lets the guard check and discard the outcome, and returns the line for the
// audit.
func Forget(ctx context.Context, e *Env, o Store, r *driver.Record, token, reason string) (AuditLine, error) {
	line := AuditLine{Action: "forget", Record: r.ID, From: r.State.String(), To: r.State.String(), Token: token, Reason: reason}
	written := false
	g := Guard(e, o, func(opts *idempotent.Options) {
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) { written = written || e.Kind == event.Forgotten })
	})
	err := g.Forget(ctx, r.ID, idempotent.Correction{Token: token, Actor: e.actor(), Reason: reason})
	if written {
		line.To = driver.StateRetryable.String()
	}
	err = refusal(stale(r.ID, err, ""))
	return line.ended(o, written, err), err
}

// GivenUp returns the records of the operations that reconciliation has given up.
func GivenUp(ctx context.Context, e *Env, o Store, operations []string) (list []*driver.Record, err error) {
	m := e.Meter("listing", 0)
	for r, err := range Exhausted(ctx, o, operations) {
		if err != nil {
			return nil, err
		}
		list = append(list, &r)
		m.Add(1)
	}
	return list, o.Alien(ctx)
}

// RequeueQuestion returns what will be requeued. The answer is the number of records.
func RequeueQuestion(o Store, list []*driver.Record, reason string) Question {
	var become []becoming
	for _, r := range list {
		text := "due now, of " + output.OneLine(r.ID.Operation())
		become = append(become, becoming{text, text})
	}
	facts := [][2]string{{"in", output.OneLine(o.Name())}, writes(become, reason)}
	return Question{facts, "Reconciliation asks about them again. Nothing runs, and no outcome is stored.", fmt.Sprint(len(list))}
}

// RequeueAll requeues the records. It returns the results, and the errors of the audit.
func RequeueAll(ctx context.Context, e *Env, o Store, list []*driver.Record, reason string, a *Auditor) (*Results, error) {
	var tasks []*Task
	for _, r := range list {
		tasks = append(tasks, &Task{ID: r.ID, Piece: Piece{Record: r}, Line: AuditLine{From: r.State.String()}})
	}
	all := e.Results(false)
	return all, all.CarryOut(ctx, tasks, a, func(t *Task) { t.Line, _ = Requeue(ctx, e, o, t.Record, reason) })
}

// Requeue requeues a record, and returns its line for the audit.
func Requeue(ctx context.Context, e *Env, o Store, r *driver.Record, reason string) (AuditLine, error) {
	state := r.State.String()
	line := AuditLine{Action: "requeue", Record: r.ID, From: state, To: state, Reason: reason}
	written := false
	g := Guard(e, o, func(opts *idempotent.Options) {
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			if e.Kind == event.MarkedUnknown {
				line.To = driver.StateUnknown.String()
			}
			if e.Kind == event.Retryable {
				line.To = driver.StateRetryable.String()
			}
			written = written || e.Kind == event.ReconcileScheduled || line.To != state
		})
	})
	err := refusal(g.Requeue(ctx, r.ID))
	return line.ended(o, written, err), err
}

// Task is one of the records that a command settles or requeues, such as the one of a
// line of a file.
type Task struct {
	Piece
	ID     idempotent.RecordID
	Number int // of the line
	Reason string

	// The last write or rehearsal.
	written bool
	Err     error
	Line    AuditLine
}

// Result returns the result of the last write or rehearsal.
func (t *Task) Result() Result {
	l := &t.Line
	return Result{Line: t.Number, Record: t.ID, Evidence: l.Evidence, Step: l.Step, From: l.From, To: l.To, Outcome: l.Outcome, Error: l.Error}
}

// Result is what a command did with one record, in the form of --json.
type Result struct {
	Line     int                 `json:"line,omitempty"` // of the file
	Record   idempotent.RecordID `json:"record"`
	Evidence string              `json:"evidence,omitempty"`
	Step     string              `json:"step,omitempty"`
	From     string              `json:"from,omitempty"`
	To       string              `json:"to,omitempty"`
	Outcome  string              `json:"outcome"`
	Error    string              `json:"error,omitempty"`
}

// Results prints the results of a command about many records, and counts them.
type Results struct {
	env   *Env
	table *output.Table
	List  []Result
}

// Results returns a printer of results. With lines they are those of a file.
func (e *Env) Results(lines bool) *Results {
	titles := []string{"RECORD", "OUTCOME", "STATE"}
	if lines {
		titles = append([]string{"LINE"}, titles...)
	}
	return &Results{env: e, table: e.Table(1, titles...)}
}

// CarryOut calls do for the tasks, some of them at the same time, writes their lines to
// the audit, and adds their results, until a line cannot be written or ctx ends. It
// returns the errors of the audit.
func (r *Results) CarryOut(ctx context.Context, tasks []*Task, a *Auditor, do func(*Task)) (audit error) {
	m := r.env.Meter("writing", len(tasks))
	for len(tasks) > 0 && a.Check() == nil && ctx.Err() == nil {
		batch := tasks[:min(writeParallel, len(tasks))]
		tasks = tasks[len(batch):]
		Parallel(slices.All(batch), writeParallel, func(_ int, t *Task) { do(t) })
		for _, t := range batch {
			audit = errors.Join(audit, a.Write(t.Line))
			r.Add(t.Result())
			m.Add(1)
		}
	}
	for _, t := range tasks {
		one := t.Result()
		one.To, one.Outcome, one.Error = one.From, outcomeNotTried, ""
		r.Add(one)
	}
	return audit
}

// Add prints a result. Its error goes to standard error, so that the table stays
// narrow. End returns the error of a write.
func (r *Results) Add(one Result) {
	r.List = append(r.List, one)
	if one.Error != "" && !r.env.JSON {
		text := strings.TrimPrefix(one.Error, "idempotent: ")
		if !strings.HasPrefix(text, output.Short(one.Record)) {
			text = output.Short(one.Record) + ": " + text
		}
		if one.Line > 0 {
			text = fmt.Sprintf("line %d: %s", one.Line, text)
		}
		fmt.Fprintf(r.env.Stderr, "once: %s\n", output.Plain(text))
	}
	state := one.From
	if one.To != one.From {
		state += " → " + one.To
	}
	cells := []string{output.Short(one.Record), one.Outcome, state}
	if one.Line > 0 {
		cells = append([]string{fmt.Sprint(one.Line)}, cells...)
	}
	r.table.Add(one, cells...) // the table repeats its first error in End
}

// Problems returns the first results with an error.
func (r *Results) Problems() (list []Result) {
	for _, one := range r.List {
		if one.Error != "" && len(list) < maxShown {
			list = append(list, one)
		}
	}
	return list
}

// Summary is the last document of --json.
type Summary struct {
	Records    int `json:"records"`
	Written    int `json:"written"`
	WouldWrite int `json:"would_write"`
	Unchanged  int `json:"unchanged"`
	Refused    int `json:"refused"`
	Failed     int `json:"failed"`
	NotTried   int `json:"not_tried"`
}

// Summary returns the counts.
func (r *Results) Summary() Summary {
	n := map[string]int{}
	for _, one := range r.List {
		n[one.Outcome]++
	}
	return Summary{len(r.List), n[OutcomeWritten], n[OutcomeWouldWrite], n[OutcomeUnchanged], n[outcomeRefused], n[outcomeFailed], n[outcomeNotTried]}
}

// End prints the summary and returns the error of the whole command.
func (r *Results) End() error {
	s := r.Summary()
	var err error
	if r.env.JSON {
		err = r.table.JSON.Encode(map[string]Summary{"summary": s})
	} else if err = r.table.Flush(); err == nil {
		_, err = fmt.Fprintln(r.env.Stdout, s.text())
	}
	switch {
	case err != nil:
		return err
	case s.NotTried > 0:
		return fmt.Errorf("interrupted: %s of %s not tried; repeat the command, which writes nothing twice", output.Grouped(s.NotTried), output.Grouped(s.Records))
	case s.Failed > 0:
		return fmt.Errorf("%s of %s failed; repeat the command, which writes nothing twice", output.Grouped(s.Failed), output.Grouped(s.Records))
	case s.Refused > 0:
		return Refuse("%s of %s refused", output.Grouped(s.Refused), output.Grouped(s.Records))
	}
	return nil
}

func (s Summary) text() string {
	text := output.Count(s.Records, "record") + ":"
	for _, part := range []struct {
		n    int
		what string
	}{
		{s.Written, "written"}, {s.WouldWrite, "would be written"}, {s.Unchanged, "unchanged"},
		{s.Refused, "refused"}, {s.Failed, "failed"}, {s.NotTried, "not tried"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(" %s %s,", output.Grouped(part.n), part.what)
		}
	}
	return strings.TrimRight(text, ":,")
}

// maxShown is how many wrong lines or records an error names.
const maxShown = 20

// Shown returns the first of the texts, and how many more there are.
func Shown(texts []string, separator string) string {
	if n := len(texts) - maxShown; n > 0 {
		texts = append(texts[:maxShown:maxShown], fmt.Sprintf("and %s more", output.Grouped(n)))
	}
	return strings.Join(texts, separator)
}

// writeParallel is how many records are written at the same time.
const writeParallel = 8
