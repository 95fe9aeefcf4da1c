// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/outage"
	"github.com/once-lambda/once/internal/view"
)

// reconcileCmd is the command once reconcile.
type reconcileCmd struct {
	*operate.Env
	dryRun      bool
	exec        string
	operations  []string
	giveUpAfter time.Duration
	timeout     time.Duration
	concurrency int
	noScan      bool
	audit       string
}

func reconcileCommand(e *operate.Env) *cobra.Command {
	c := &reconcileCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Reconcile the records that are due",
		Long: `A record whose lease ended without an outcome becomes unknown, or retryable if
its operation declares so, whatever --operation says. Then --exec asks its
program about each record that is due. The program reads the record as JSON from
standard input, in the form of once show --json --result, and writes one of
these answers to standard output:

    {"completed": RESULT}
    {"completed_base64": "…"}        for an operation's own codec
    {"response": {"status": 201, "header": {…}, "body": "…"}}
    {"without_result": true}         done, and the result is not known
    {"final": {"code": "…", "message": "…"}}
    {"step": {"name": "…", "result": RESULT}}
    {"corrected_step": {"name": "…", "result": RESULT}}
    {"not_executed": "TOKEN"}        the record's "token": this attempt
    {"later": "5m"}

A result is stored in the form and for the time that the record declares;
another form is refused. If the program fails or writes another answer, it is
asked again later: after a minute, then after pauses that double up to an hour.
No record is given up because of that. If it fails for five records of an
operation in a row, the others of that operation are left to the next run. Its
standard error is passed on.

The whole table is read to find abandoned runs: about $0.02 for each GB.
--no-scan leaves them to the scheduled reconciler and reads the index.`,
		Example: `  once reconcile --dry-run
  once reconcile --operation 'POST /charges' --exec ./ask-provider`,
		RunE: command(e, c.run),
	}
	f := cmd.Flags()
	f.BoolVar(&c.dryRun, "dry-run", false, "write nothing: print what would be done; the\nprogram of --exec runs anyway")
	f.StringVar(&c.exec, "exec", "", "ask this `COMMAND` about each record, through sh;\nwithout it only ended leases are processed")
	f.StringArrayVar(&c.operations, "operation", nil, "ask about and count only records of this\n`OPERATION` (repeatable)")
	f.DurationVar(&c.giveUpAfter, "give-up-after", 7*24*time.Hour, "give a record up if it has been unknown\nfor so long and the program has no answer\n")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long the program may run for a\nrecord")
	f.IntVar(&c.concurrency, "concurrency", 8, "process `N` records of an operation\nin parallel")
	noScanFlag(cmd, &c.noScan)
	auditFlag(cmd, &c.audit)
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

func (c *reconcileCmd) run(ctx context.Context, _ []string) error {
	if c.concurrency < 1 || min(c.timeout, c.giveUpAfter) < time.Millisecond {
		return operate.Usage("--concurrency must be at least 1, and --timeout and --give-up-after at least 1ms")
	}
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	switch { // a dry run reads what a reconciler reads: the index, and a scan for abandoned runs
	case !c.noScan && !c.dryRun:
		o = o.Whole()
	case c.noScan && c.dryRun:
		o = operate.Rehearse(o) // which has no scan
	}
	m := c.Meter("reconciling", 0)
	j := &journal{env: c.Env, store: o, dry: c.dryRun, done: m.Add, answers: map[string]operate.Piece{}}
	if !c.dryRun && c.exec != "" {
		if j.audit, err = c.OpenAudit(ctx, c.audit, o); err != nil {
			return err
		}
	}
	g := operate.Guard(c.Env, o, func(opts *idempotent.Options) { opts.Observer = j })
	resolvers := map[string]idempotent.ResolveFunc{"*": (&program{command: c.exec, env: c.Env, guard: g, journal: j}).resolve}
	report, err := idempotent.Reconciler(g, resolvers, func(opts *idempotent.ReconcileOptions) {
		opts.GiveUpAfter, opts.Timeout, opts.Concurrency = c.giveUpAfter, c.timeout, c.concurrency
		opts.Operations = c.operations
		opts.DryRun, opts.SweepOnly = c.dryRun, c.exec == ""
	})(ctx)
	if err != nil && !errors.As(err, new(*outage.Error)) { // which failures explains
		return err
	}
	return errors.Join(c.print(j, report), j.failed, failures(report))
}

// failures returns an error if a run did not succeed for every record.
func failures(r idempotent.Report) error {
	switch {
	case r.Skipped > 0:
		return fmt.Errorf("%s of %s failed; %s were not asked about, because the program kept failing", output.Count(r.Failed, "record"), output.Grouped(r.Due), output.Grouped(r.Skipped))
	case r.Failed > 0:
		return fmt.Errorf("%s of %s failed and will be asked about again after a pause", output.Count(r.Failed, "record"), output.Grouped(r.Due))
	case r.Incomplete:
		return errors.New("interrupted before the end of the list")
	}
	return nil
}

// reportView is the report in the form of --json.
type reportView struct {
	DryRun         bool      `json:"dry_run"`
	Due            int       `json:"due"`
	MarkedUnknown  int       `json:"marked_unknown"`
	Released       int       `json:"released"`
	Completed      int       `json:"completed"`
	NotExecuted    int       `json:"not_executed"`
	Steps          int       `json:"steps"`
	Postponed      int       `json:"postponed"`
	Exhausted      int       `json:"exhausted"`
	Stale          int       `json:"stale"`
	Failed         int       `json:"failed"`
	Skipped        int       `json:"skipped"` // because the program kept failing
	Other          int       `json:"other"`   // of other operations, whose lease had ended
	Pending        int       `json:"pending"`
	Oldest         view.Time `json:"oldest,omitzero"` // since when the oldest outcome is unknown
	PendingRelease int       `json:"pending_released"`
	OldestRelease  view.Time `json:"oldest_released,omitzero"`
	Incomplete     bool      `json:"incomplete"`
	Records        []entry   `json:"records"`
}

func (c *reconcileCmd) print(j *journal, r idempotent.Report) error {
	if c.JSON {
		return c.Document(reportView{
			c.dryRun, r.Due, r.MarkedUnknown, r.Released, r.Completed, r.NotExecuted, r.Steps, r.Postponed, r.Exhausted, r.Stale, r.Failed, r.Skipped, r.Other,
			r.Pending, view.Time{Time: r.Oldest}, r.PendingReleased, view.Time{Time: r.OldestReleased}, r.Incomplete, append([]entry{}, j.entries...),
		})
	}
	text := r.String()
	if r.Due == 0 && len(c.operations) > 0 {
		text += "; only records of " + output.OneLine(strings.Join(c.operations, ", ")) + " were looked for"
	}
	if left := r.Due - r.MarkedUnknown - r.Released - r.Stale - r.Failed; left > 0 && c.exec == "" {
		text += fmt.Sprintf("; %s not asked about, because there is no --exec", output.Grouped(left))
	}
	if c.dryRun {
		text += "; nothing was written"
	}
	if r.Pending > 0 {
		text += fmt.Sprintf("\n%s left, the oldest since %s", output.Count(r.Pending, "unknown outcome"), output.When(r.Oldest, c.Now()))
	}
	if r.PendingReleased > 0 {
		text += fmt.Sprintf("\n%s left that can be continued, the oldest since %s", output.Count(r.PendingReleased, "record"), output.When(r.OldestReleased, c.Now()))
	}
	_, err := fmt.Fprintln(c.Stdout, text)
	return err
}

// program asks another program for the outcomes of records.
type program struct {
	command string
	env     *operate.Env
	guard   *idempotent.Guard
	journal *journal
}

// resolve is an [idempotent.ResolveFunc]. An error says that the program is down: whatever
// the age of a record, it is not the record that has no answer.
func (p *program) resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	defer p.journal.done(1)
	ev, later, err := p.evidence(ctx, r)
	switch {
	case err == nil && ev == nil:
		p.journal.note(output.Short(r.ID), "no answer yet", nil)
		return idempotent.Later(later), nil
	case err == nil:
		stored := r.Stored()
		p.journal.answered(&stored, ev)
		return ev.Resolution, nil
	case p.journal.dry: // without writes there are no events
		p.journal.note(output.Short(r.ID), "no answer", err)
	}
	return idempotent.Resolution{}, &outage.Error{Err: err}
}

// evidence asks the program about r. Without evidence it returns when to ask
// again.
func (p *program) evidence(ctx context.Context, r idempotent.PendingRecord) (ev *operate.Evidence, later time.Duration, err error) {
	said, err := p.ask(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	if ev, later, err = operate.ParseAnswer(said); ev == nil {
		return nil, later, err
	}
	if ev.Kind == operate.KindNotExecuted && ev.Token != r.Token {
		return nil, 0, errors.New(`the program's answer "not_executed" has another token than the record`)
	}
	stored := r.Stored()
	return ev, 0, ev.Fit(&stored)
}

// ask runs the program for one record and returns its output.
func (p *program) ask(ctx context.Context, r idempotent.PendingRecord) ([]byte, error) {
	stored := r.Stored()
	v := view.Of(&stored)
	if err := v.AddStepResults(ctx, p.guard, &stored); err != nil {
		return nil, err
	}
	var question bytes.Buffer
	json.NewEncoder(&question).Encode(v) // its types can be encoded
	cmd := exec.CommandContext(ctx, "sh", "-c", p.command)
	stopWithChildren(cmd)
	cmd.WaitDelay = killDelay
	said := &limited{left: operate.MaxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &question, said, p.env.Stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the program took too long and was stopped")
	case said.left < 0:
		return nil, fmt.Errorf("the program wrote more than %s", output.Size(operate.MaxAnswer))
	case err != nil:
		return nil, fmt.Errorf("the program failed: %w", err)
	}
	return said.buf.Bytes(), nil
}

// killDelay is how long a stopped program may hold its output open. It is shorter than the
// second after which a run leaves a call behind.
const killDelay = time.Second / 2

// limited is a buffer with a maximum size.
type limited struct {
	buf  bytes.Buffer
	left int
}

// Write stores data, or fails if the buffer would become too large, which ends the
// program's output.
func (l *limited) Write(data []byte) (int, error) {
	if l.left -= len(data); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return l.buf.Write(data)
}

// journal is the guard's observer. It prints the events of a run as they arrive,
// and audits those that settle a record.
type journal struct {
	env   *operate.Env
	store operate.Store
	dry   bool
	done  func(records int)
	audit *operate.Auditor // nil: this run settles no record

	mu      sync.Mutex
	entries []entry
	answers map[string]operate.Piece // by record, until they are written
	failed  error                    // error of the audit
}

// entry is one event of a record.
type entry struct {
	Record string `json:"record,omitempty"` // the operation, # and 12 characters; none if a list failed
	What   string `json:"what"`
	Error  string `json:"error,omitempty"`
}

func (j *journal) note(record, what string, err error) {
	en := entry{Record: record, What: what}
	if err != nil {
		en.Error = err.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, en)
	if j.env.JSON {
		return
	}
	line := strings.TrimSpace(record + "  " + what)
	if err != nil {
		line += ": " + en.Error
	}
	fmt.Fprintln(j.env.Stdout, output.OneLine(line))
}

// eventTexts has the events that are printed.
//
//lint:ignore exhaustive only what an operator has to know while records are settled
var eventTexts = map[event.Kind]string{
	event.MarkedUnknown:      "its lease ended without an outcome: unknown",
	event.Retryable:          "its lease ended without an outcome: retryable",
	event.Contradicted:       "its outcome contradicts the answer",
	event.ReleasedGivenUp:    "given up: no request continued it; the next request still can",
	event.ReconcileExhausted: "given up: settle it by hand (once list --exhausted)",
	event.ReconcileFailed:    "no answer",
	event.StoreError:         "the store failed",
}

// Observe prints and audits an event. In a dry run there are no events.
func (j *journal) Observe(ctx context.Context, e event.Event) {
	record := ""
	if e.Operation != "" {
		record = output.OneLine(e.Operation) + "#" + e.KeyHash
	}
	if what := eventTexts[e.Kind]; what != "" {
		j.note(record, what, e.Err)
	}
	switch {
	case e.Kind == event.Resolved:
		j.written(ctx, record)
	case j.audit == nil && (e.Kind == event.MarkedUnknown || e.Kind == event.Retryable):
		j.done(1) // no program is asked about it
	}
}

// answered stores the program's answer about a record.
func (j *journal) answered(r *driver.Record, ev *operate.Evidence) {
	j.note(output.Short(r.ID), ev.Text, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[output.Short(r.ID)] = operate.Piece{Record: r, Evidence: ev}
}

// written audits that the answer about a record was written.
func (j *journal) written(ctx context.Context, record string) {
	j.mu.Lock()
	a := j.answers[record]
	delete(j.answers, record)
	j.mu.Unlock()
	line := a.Wrote(ctx, j.store, "reconcile", "the answer of --exec", true, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = errors.Join(j.failed, j.audit.Write(line))
}
