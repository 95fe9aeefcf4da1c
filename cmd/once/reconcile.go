// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
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
		return fmt.Errorf("%s of %s failed and will be retried", output.Count(r.Failed, "record"), output.Grouped(r.Due))
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
