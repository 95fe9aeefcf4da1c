// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// bulkHelp describes --from in the help of once resolve.
const bulkHelp = `With --from, each line of the file is a JSON document with a record id, one
answer in the form of once reconcile --exec (except "later"), and, if you like,
its own reason:

    {"record": "transfer#…", "completed": {"transfer_id": "tr_17"}}
    {"record": "transfer#…", "not_executed": "TOKEN", "reason": "…"}
    {"record": "transfer#…", "without_result": true, "reason": "…",
     "instead_of": "TOKEN"}

The whole file is checked against its records first. Nothing is written if a
line is malformed, or has a form or a shape that its record cannot use. A record
that was settled meanwhile, or whose lease is live, is refused and does not stop
the others. It is safe to repeat the command. The exit code is 1 if a write
failed or was not tried, and otherwise 4 if a record was refused.`

// bulkLine is a line of a file of evidence.
type bulkLine struct {
	Record idempotent.RecordID `json:"record"`
	Reason string              `json:"reason"`
	// InsteadOf is the token of the attempt whose stored outcome is wrong.
	InsteadOf string `json:"instead_of"`
	operate.Answer
}

// bulk settles the records of a file.
type bulk struct {
	operate.Settler
	operate.Writing
	from string
}

func (c *bulk) run(ctx context.Context) error {
	if c.from == "-" && !c.Yes && !c.DryRun {
		return operate.Usage("--from - reads standard input, which the confirmation needs; use --yes to write without asking")
	}
	if err := c.Ready(c.Env); err != nil {
		return err
	}
	tasks, err := c.tasks()
	if err != nil {
		return err
	}
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	if err := c.check(ctx, o, tasks); err != nil {
		return err
	}
	if c.DryRun {
		all := c.Results(true)
		for _, t := range tasks {
			all.Add(t.Result())
		}
		return all.End()
	}
	q := c.QuestionAll(o, tasks)
	q.Facts = append([][2]string{{"file", output.OneLine(c.from)}}, q.Facts...)
	q.Warning += "\nTo see each line, use --dry-run."
	_, a, err := c.Begin(ctx, c.Env, o, q)
	if err != nil {
		return err
	}
	all := c.Results(true)
	audit := all.CarryOut(ctx, tasks, a, func(t *operate.Task) { c.Try(ctx, o, t) })
	return errors.Join(audit, all.End())
}

// tasks reads the file. It returns an error that names every malformed line.
func (c *bulk) tasks() (tasks []*operate.Task, err error) {
	data, err := c.ReadFile(c.from)
	if err != nil {
		return nil, operate.Usage("%v", err)
	}
	type claim struct {
		record idempotent.RecordID
		step   string
	}
	seen := map[claim]int{}
	var wrong []string
	number := 0
	for text := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		t, err := parseTask(text)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("line %d: %s", number, err))
			continue
		}
		t.Number, t.Reason = number, cmp.Or(t.Reason, c.Reason)
		about := claim{t.ID, t.Evidence.Step}
		if before := seen[about]; before > 0 {
			wrong = append(wrong, fmt.Sprintf("line %d: line %d is about the same record", number, before))
		}
		seen[about] = number
		tasks = append(tasks, t)
	}
	switch {
	case len(wrong) > 0:
		return nil, operate.Usage("%s", wrongLines(wrong, "malformed"))
	case len(tasks) == 0:
		return nil, operate.Usage("%s has no lines", c.from)
	}
	return tasks, nil
}

func parseTask(text []byte) (*operate.Task, error) {
	var line bulkLine
	if err := operate.DecodeOne(text, &line); err != nil {
		return nil, err
	}
	id, err := idempotent.ParseRecordID(string(line.Record))
	if err != nil {
		return nil, fmt.Errorf("invalid record %q: want OPERATION#HASH with %d characters after #", line.Record, operate.HashLength)
	}
	ev, err := line.Evidence()
	if err == nil && line.InsteadOf != "" {
		err = ev.Correct(line.InsteadOf)
	}
	switch {
	case err != nil:
		return nil, err
	case ev.Instead && line.Reason == "":
		return nil, errors.New(`"instead_of" needs a "reason" in the same line: how you know that the stored outcome is wrong`)
	}
	return &operate.Task{Piece: operate.Piece{Evidence: ev}, ID: id, Reason: line.Reason}, nil
}

// wrongLines returns the text of an error that names the lines that are wrong.
func wrongLines(lines []string, what string) string {
	return fmt.Sprintf("%s %s; nothing was written:\n  %s", output.Count(len(lines), "line"), what, operate.Shown(lines, "\n  "))
}

// check reads the records, and judges each line without writing. The error means
// that the file as a whole is wrong, or that the store could not be read.
func (c *bulk) check(ctx context.Context, o operate.Store, tasks []*operate.Task) error {
	dry, m := operate.Rehearse(o), c.Meter("checking", len(tasks))
	operate.Parallel(slices.All(tasks), operate.ReadParallel, func(_ int, t *operate.Task) {
		if t.Record, t.Err = o.Get(ctx, t.ID); t.Err == nil {
			t.Err = t.Evidence.Fit(t.Record)
		}
		m.Add(1)
	})
	var wrong []string
	var fit []operate.Piece
	for _, t := range tasks {
		switch {
		case errors.Is(t.Err, idempotent.ErrNoRecord):
			t.Record = &driver.Record{ID: t.ID}
		case operate.ExitCode(t.Err) == operate.ExitRefused:
			wrong = append(wrong, fmt.Sprintf("line %d: %s", t.Number, t.Err))
		case t.Err != nil:
			return t.Err
		default:
			fit = append(fit, t.Piece)
		}
	}
	if err := o.Alien(ctx); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return operate.Refuse("%s", wrongLines(wrong, "cannot be used for the record"))
	}
	if err := c.Compare(ctx, o, fit...); err != nil {
		return err
	}
	operate.Parallel(slices.All(tasks), operate.ReadParallel, func(_ int, t *operate.Task) { c.Try(ctx, dry, t) })
	return ctx.Err()
}
