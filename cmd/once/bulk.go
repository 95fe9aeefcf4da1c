// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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

// maxFile limits a file of evidence, or of one result, in bytes: it is held in memory.
const maxFile = 64 << 20

// bulkLine is a line of a file of evidence.
type bulkLine struct {
	Record idempotent.RecordID `json:"record"`
	Reason string              `json:"reason"`
	// InsteadOf is the token of the attempt whose stored outcome is wrong.
	InsteadOf string `json:"instead_of"`
	answer
}

// bulk settles the records of a file.
type bulk struct {
	settler
	writing
	from string
}

func (c *bulk) run(ctx context.Context) error {
	if c.from == "-" && !c.yes && !c.dryRun {
		return usage("--from - reads standard input, which the confirmation needs; use --yes to write without asking")
	}
	if err := c.ready(c.env); err != nil {
		return err
	}
	tasks, err := c.tasks()
	if err != nil {
		return err
	}
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	if err := c.check(ctx, o, tasks); err != nil {
		return err
	}
	if c.dryRun {
		all := c.results(true, true)
		for _, t := range tasks {
			all.add(t.result())
		}
		return all.end()
	}
	q := c.question(o, tasks)
	q.facts = append([][2]string{{"file", oneLine(c.from)}}, q.facts...)
	q.warning += "\nTo see each line, use --dry-run."
	a, err := c.begin(ctx, c.env, o, q)
	if err != nil {
		return err
	}
	all := c.results(true, false)
	audit := all.carryOut(ctx, tasks, a, func(t *task) { c.try(ctx, o, t) })
	return errors.Join(audit, all.end())
}

// tasks reads the file. It returns an error that names every malformed line.
func (c *bulk) tasks() (tasks []*task, err error) {
	data, err := c.readFile(c.from)
	if err != nil {
		return nil, usage("%v", err)
	}
	type claim struct {
		record idempotent.RecordID
		step   string
	}
	seen := map[claim]int{}
	var wrong wrongLines
	number := 0
	for text := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		t, err := parseTask(text)
		if err != nil {
			wrong.add(number, err)
			continue
		}
		t.number, t.reason = number, cmp.Or(t.reason, c.reason)
		about := claim{t.id, t.ev.step}
		if before := seen[about]; before > 0 {
			wrong.add(number, fmt.Errorf("line %d is about the same record", before))
		}
		seen[about] = number
		tasks = append(tasks, t)
	}
	switch {
	case wrong.count > 0:
		return nil, usage("%s", wrong.text("malformed"))
	case len(tasks) == 0:
		return nil, usage("%s has no lines", c.from)
	}
	return tasks, nil
}

// readFile returns the content of a file, or of standard input if its name is -.
func (e *env) readFile(name string) ([]byte, error) {
	from := e.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %s", name, size(maxFile))
	}
	return data, err
}

func parseTask(text []byte) (*task, error) {
	var line bulkLine
	if err := decodeOne(text, &line); err != nil {
		return nil, err
	}
	id, err := idempotent.ParseRecordID(string(line.Record))
	if err != nil {
		return nil, fmt.Errorf("invalid record %q: want OPERATION#HASH with %d characters after #", line.Record, hashLength)
	}
	ev, err := line.evidence()
	if err == nil && line.InsteadOf != "" {
		err = ev.correct(line.InsteadOf)
	}
	switch {
	case err != nil:
		return nil, err
	case ev.instead && line.Reason == "":
		return nil, errors.New(`"instead_of" needs a "reason" in the same line: how you know that the stored outcome is wrong`)
	}
	return &task{piece: piece{ev: ev}, id: id, reason: line.Reason}, nil
}

// wrongLines collects errors of lines.
type wrongLines struct {
	count int
	lines string
}

func (w *wrongLines) add(number int, err error) {
	if w.count++; w.count <= maxShown {
		w.lines += fmt.Sprintf("\n  line %d: %s", number, err)
	}
}

func (w *wrongLines) text(what string) string {
	text := count(w.count, "line") + " " + what + "; nothing was written:" + w.lines
	if w.count > maxShown {
		text += fmt.Sprintf("\n  and %s more", grouped(w.count-maxShown))
	}
	return text
}

// check reads the records, and judges each line without writing. The error means
// that the file as a whole is wrong, or that the store could not be read.
func (c *bulk) check(ctx context.Context, o *opened, tasks []*task) error {
	dry := o.rehearse()
	parallel(slices.All(tasks), readParallel, func(_ int, t *task) {
		if t.record, t.err = o.Get(ctx, t.id); t.err == nil {
			t.err = t.ev.fit(t.record)
		}
	})
	var wrong wrongLines
	var fit []piece
	for _, t := range tasks {
		switch {
		case errors.Is(t.err, idempotent.ErrNoRecord):
			t.record = &driver.Record{ID: t.id}
		case exitCode(t.err) == exitRefused:
			wrong.add(t.number, t.err)
		case t.err != nil:
			return t.err
		default:
			fit = append(fit, t.piece)
		}
	}
	if err := o.alien(ctx); err != nil {
		return err
	}
	if wrong.count > 0 {
		return refuse("%s", wrong.text("cannot be used for the record"))
	}
	if err := c.compare(ctx, o, fit...); err != nil {
		return err
	}
	parallel(slices.All(tasks), readParallel, func(_ int, t *task) { c.try(ctx, dry, t) })
	return ctx.Err()
}

// try writes the evidence of a task, unless its record is missing.
func (c *bulk) try(ctx context.Context, o *opened, t *task) {
	if t.record.State != 0 {
		t.written, t.err = c.write(ctx, o, t.id, t.ev, t.reason)
	}
	t.line = t.wrote(ctx, o, "resolve", t.reason, t.written, t.err)
}

// question returns how many records change. The answer is that number.
func (c *bulk) question(o *opened, tasks []*task) question {
	becomes, run := map[string]int{}, 0
	for _, t := range tasks {
		becomes[t.line.Outcome]++
		if t.written && t.ev.kind == kindNotExecuted {
			run++
		}
	}
	write := becomes[outcomeWritten]
	facts := [][2]string{{"in", oneLine(o.name)}, {"write", count(write, "record")}}
	for _, what := range []string{outcomeUnchanged, outcomeRefused, outcomeFailed} {
		if n := becomes[what]; n > 0 {
			facts = append(facts, [2]string{what, count(n, "record")})
		}
	}
	warning := "Every retry gets these outcomes.\nTo correct one later: --instead-of, or once forget."
	if run > 0 {
		warning += fmt.Sprintf("\nThe next requests of %s run. If an effect did happen, it happens twice.", count(run, "record"))
	}
	return question{facts, warning, fmt.Sprint(write)}
}
