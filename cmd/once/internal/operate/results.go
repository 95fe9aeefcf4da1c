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
)

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
