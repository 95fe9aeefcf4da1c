// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// resolveCmd is the command once resolve.
type resolveCmd struct {
	operate.Settler
	operate.Target
	completed     string
	withoutResult bool
	final         view.Final
	step          string
	correctStep   string
	notExecuted   bool
	token         string

	status int
	header []string

	insteadOf string

	from string // a file of evidence
	operate.Writing

	set func(flag string) bool // whether the command line has the flag
}

func resolveCommand(e *operate.Env) *cobra.Command {
	c := &resolveCmd{Settler: operate.Settler{Env: e}}
	cmd := &cobra.Command{
		Use:   "resolve {RECORD | --from FILE} --reason TEXT",
		Short: "Settle records by evidence from outside the store",
		Long: recordHelp + `

First run once show: it prints the keys for the provider and the token of the
attempt. The first evidence stands. If it is wrong, correct it: --correct-step
replaces the result of a step, and --instead-of an outcome; nothing runs because
of that. To let the work run again, discard the outcome with once forget.

The record defines in which form its operation stores results, and for how long;
another form is refused. While the lease is live, a request may be executing:
only --step is accepted, so repeat the others later.

Use --not-executed only for an attempt that is dead, not merely late. If its
effect did happen, it will happen twice. The write compares the token: if
another attempt has begun, nothing is written.

` + shapeHelp + `

` + bulkHelp + `

Every write, and every refusal by the record, adds a line to the audit.`,
		Example: `  once resolve transfer --scope acme --key t-17 \
    --completed '{"transfer_id":"tr_17"}' --reason 'tr_17 is on the statement'
  once resolve 'POST /charges' --scope merchant-1 --key KEY --status 201 \
    --header 'Location: /charges/ch_5' --completed @charge.json --reason '…'
  once resolve order --scope acme --key o-8 --step 'charge={"id":"ch_8"}' \
    --reason 'charge ch_8 is in the ledger; nothing was shipped'
  once resolve refund --scope acme --key r-9 --final refund_rejected \
    --message 'The bank rejected the refund.' --reason 'the bank, by telephone'
  once resolve '#4RexMqXSY3Lf' --not-executed --token TOKEN \
    --reason 'no charge under this key an hour after the lease had ended'
  once resolve transfer --scope acme --key t-17 --instead-of TOKEN \
    --completed '{"transfer_id":"tr_71"}' --reason 'tr_17 is of another key'
  once resolve --from evidence.jsonl --reason 'the statement of 21 November' \
    --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.from == "":
				return oneRecord(cmd, args)
			case len(args) > 0:
				return errors.New("--from names the records in its file; omit RECORD")
			}
			return nil
		},
		RunE: command(e, c.run),
	}
	recordFlags(cmd, &c.Target)
	c.set = cmd.Flags().Changed
	f := cmd.Flags()
	f.StringVar(&c.completed, "completed", "", "it was done, and retries get this `RESULT`: a\nliteral, or @FILE, or @- for standard input")
	f.BoolVar(&c.withoutResult, "without-result", false, "it was done, and its result is not known;\nretries learn that it was done, and nothing\nruns")
	f.StringVar(&c.final.Code, "final", "", "it ended in the business outcome of this `CODE`,\nas with idempotent.Final")
	f.StringVar(&c.final.Message, "message", "", "with --final: the message `TEXT` for callers")
	f.StringVar(&c.step, "step", "", "`NAME=JSON`: this step was done, with this\nresult (or NAME=@FILE, NAME=@-); the next\nattempt does not repeat it")
	f.StringVar(&c.correctStep, "correct-step", "", "`NAME=JSON`: like --step, but replaces a stored\nresult that is wrong")
	f.BoolVar(&c.notExecuted, "not-executed", false, "proven: the attempt did nothing and can no\nlonger do anything; the next request runs")
	f.StringVar(&c.token, "token", "", "with --not-executed: the `TOKEN` of the attempt,\nas once show printed it before you asked the\nprovider; required with --yes")
	f.StringVar(&c.insteadOf, "instead-of", "", "the stored outcome of the attempt with this\n`TOKEN` is wrong: --completed, --final or\n--without-result replaces it")
	f.IntVar(&c.status, "status", 0, "with --completed, for a handler behind\nlambdahttp: the `STATUS` of its response; RESULT\nis the body")
	f.StringArrayVar(&c.header, "header", nil, "with --status: a header `'NAME: VALUE'` of the\nresponse (repeatable); a JSON body gets its\nContent-Type")
	f.StringVar(&c.ResultVersion, "result-version", "", "with --completed: the `VERSION` that the handler\nexpects now, if it is not the record's")
	f.StringVar(&c.from, "from", "", "settle the records in this `FILE`, or - for\nstandard input: one JSON document per line")
	f.BoolVar(&c.Force, "force", false, "store a result whose shape differs from stored\nones; nothing is read to compare it")
	writingFlags(cmd, &c.Writing, checkAndWrite, "how you know; the audit contains this `TEXT`", "write without asking")
	cmd.MarkFlagsRequiredTogether("final", "message")
	cmd.MarkFlagsMutuallyExclusive("completed", "without-result", "final", "step", "correct-step", "not-executed", "from")
	for _, one := range []string{"status", "header", "token", "instead-of", "key", "scope", "global", "path", "scan"} {
		cmd.MarkFlagsMutuallyExclusive("from", one)
	}
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound, operate.ExitRefused)
}

// shapeHelp describes the comparison of results in the help of once resolve.
const shapeHelp = `A result in JSON is compared with stored results of its operation, one of a step
with those of the step, an HTTP response with those of the same status: up to 10
of each, among the first 1,000 records, and the first 4 MB, of the table. If it
has another type, other members or members of other types, or if all stored
steps have other names, or all responses other statuses, it is refused; --force
stores it anyway. Without any result to compare it with, it is stored, with a
warning.`

func (c *resolveCmd) run(ctx context.Context, args []string) error {
	if c.from != "" {
		return (&bulk{Settler: c.Settler, Writing: c.Writing, from: c.from}).run(ctx)
	}
	ev, err := c.evidence()
	if err != nil {
		return err
	}
	if err := c.Ready(c.Env); err != nil {
		return err
	}
	o, r, err := c.OpenRecord(ctx, c.Env, args[0])
	if err != nil {
		return err
	}
	defer o.Close()
	p := operate.Piece{Record: r, Evidence: ev}
	if err := c.Fit(ctx, o, p); err != nil {
		return err
	}
	o, a, err := c.Begin(ctx, c.Env, o, c.Question(o, p, c.Reason))
	if err != nil {
		return err
	}
	line, err := c.Settle(ctx, o, p, c.Reason, a)
	if err != nil {
		return err
	}
	return c.printResolved(line)
}

// evidence returns the evidence of the command line.
func (c *resolveCmd) evidence() (ev *operate.Evidence, err error) {
	switch {
	case !c.set("completed") && (c.set("status") || c.set("header") || c.set("result-version")):
		return nil, operate.Usage("--status, --header and --result-version are for --completed")
	case !c.notExecuted && c.set("token"):
		return nil, operate.Usage("--token is for --not-executed")
	case c.set("completed"):
		ev, err = c.completedEvidence()
	case c.withoutResult:
		ev = &operate.Evidence{Kind: operate.KindWithoutResult}
	case c.set("final"):
		ev, err = operate.CompletedFinal(c.final)
	case c.set("step"):
		ev, err = c.stepEvidence(operate.KindStep, c.step)
	case c.set("correct-step"):
		ev, err = c.stepEvidence(operate.KindCorrectedStep, c.correctStep)
	case c.notExecuted && c.Yes && c.token == "":
		return nil, operate.Usage("--not-executed with --yes needs --token: the token that once show printed before you asked the provider")
	case c.notExecuted:
		ev = &operate.Evidence{Kind: operate.KindNotExecuted, Token: c.token}
	default:
		return nil, operate.Usage("missing evidence: use --completed, --without-result, --final, --step, --correct-step or --not-executed")
	}
	if err == nil && c.insteadOf != "" {
		err = ev.Correct(c.insteadOf)
	}
	if err != nil {
		return nil, operate.Usage("%v", err)
	}
	return ev, nil
}

func (c *resolveCmd) completedEvidence() (*operate.Evidence, error) {
	data, file, err := c.value(c.completed)
	switch {
	case err != nil:
		return nil, err
	case !c.set("status") && c.set("header"):
		return nil, errors.New("--header needs the --status of the response")
	case !c.set("status"):
		return operate.CompletedWith(data, file), nil
	}
	header, err := parseHeader(c.header)
	if err != nil {
		return nil, err
	}
	return operate.CompletedHTTP(c.status, header, data)
}

func (c *resolveCmd) stepEvidence(kind, text string) (*operate.Evidence, error) {
	name, result, found := strings.Cut(text, "=")
	if !found || name == "" {
		return nil, fmt.Errorf("invalid step %q: want NAME=JSON", text)
	}
	data, _, err := c.value(result)
	if err != nil {
		return nil, err
	}
	return operate.StepDone(kind, name, data)
}

// value returns a result, or the content of the file that it names.
func (c *resolveCmd) value(text string) (data []byte, file bool, err error) {
	name, file := strings.CutPrefix(text, "@")
	switch {
	case !file:
		return []byte(text), false, nil
	case name == "-" && !c.Yes:
		return nil, true, errors.New("@- reads standard input, which the confirmation needs; use --yes to write without asking")
	}
	data, err = c.ReadFile(name)
	return data, true, err
}

func parseHeader(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if name = textproto.TrimString(name); !found || name == "" {
			return nil, fmt.Errorf("invalid header %q: want NAME: VALUE", line)
		}
		h.Add(name, textproto.TrimString(value))
	}
	return h, nil
}

// printResolved prints the outcome of the command.
func (c *resolveCmd) printResolved(line operate.AuditLine) error {
	if c.JSON {
		doc := map[string]any{"record": line.Record, "from": line.From, "to": line.To, "outcome": line.Outcome}
		if line.Step != "" {
			doc["step"] = line.Step
		}
		return c.Document(doc)
	}
	text := fmt.Sprintf("was %s and is %s", line.From, line.To)
	if line.Outcome == operate.OutcomeWouldWrite {
		text = fmt.Sprintf("is %s and would become %s; nothing was written", line.From, line.To)
	}
	if line.Step != "" {
		text = fmt.Sprintf("has a result for %s; it %s", output.OneLine(line.Step), text)
	}
	if line.Outcome == operate.OutcomeUnchanged {
		text = "already holds this outcome; nothing was written"
	}
	_, err := fmt.Fprintf(c.Stdout, "%s %s\n", output.Short(line.Record), text)
	return err
}

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
