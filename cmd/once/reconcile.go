package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
)

type reconcileCmd struct {
	DryRun    bool     `help:"Write nothing: tell what would be done. With --exec the program is asked all the same."`
	Exec      string   `placeholder:"COMMAND" help:"Ask this program about each record, through sh: see above. Without it only ended leases are dealt with, and nobody is asked."`
	Operation []string `sep:"none" help:"Only records of this operation. Repeatable."`

	MaxAttempts int           `default:"10" help:"Give a record up after so many attempts without an answer. Default: ${default}."`
	Backoff     time.Duration `default:"1m" help:"Pause after the first of them; it doubles up to --max-backoff. Default: ${default}."`
	MaxBackoff  time.Duration `default:"1h" help:"The longest pause. Default: ${default}."`
	Timeout     time.Duration `default:"10s" help:"How long the program may take for a record. Default: ${default}."`
	Concurrency int           `default:"8" help:"How many records are worked on side by side. Default: ${default}."`

	auditFlags
}

// Help is what once reconcile --help says besides the flags.
func (*reconcileCmd) Help() string {
	return `A record whose lease ended without an outcome becomes unknown, or retryable where its operation declares so. Then the program, if there is one, finds out what became of each record that is due. It reads the record as JSON from standard input, as once show --json --result prints it, and writes one of these to standard output:

    {"completed": RESULT}
    {"completed_base64": "…"}        for a codec of the operation's own
    {"response": {"status": 201, "header": {…}, "body": "…"}}
    {"without_result": true}         done, and the result is not known
    {"final": {"code": "…", "message": "…"}}
    {"step": {"name": "…", "result": RESULT}}
    {"corrected_step": {"name": "…", "result": RESULT}}
    {"not_executed": "TOKEN"}        the record's "token": this attempt
    {"later": "5m"}

A result is stored in the form and for the time that the record declares; another form is refused. A program that fails, or says something else, counts as {"later": …}: the record is asked about again. What it writes to standard error is passed on.`
}

// Run reconciles what is due.
func (c *reconcileCmd) Run(ctx context.Context, e *env) error {
	if c.MaxAttempts < 1 || c.Concurrency < 1 || c.Timeout < time.Millisecond || c.Backoff < time.Millisecond || c.MaxBackoff < c.Backoff {
		return usage("--max-attempts and --concurrency must be at least 1, --timeout and --backoff at least 1ms, and --max-backoff not below --backoff")
	}
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	j := &journal{env: e, store: o, dry: c.DryRun}
	if !c.DryRun && c.Exec != "" {
		if j.audit, err = e.audit(ctx, c.auditFlags, o); err != nil {
			return err
		}
		defer j.audit.close()
	}
	g, err := e.guard(o, func(opts *idempotent.Options) {
		opts.Observer = j
	})
	if err != nil {
		return err
	}
	var resolve idempotent.ResolveFunc
	if c.Exec != "" {
		resolve = (&program{command: c.Exec, env: e, guard: g, journal: j}).resolve
	}
	report, err := idempotent.ReconcileDue(ctx, g, resolve, func(opts *idempotent.ReconcileOptions) {
		opts.MaxAttempts, opts.Backoff, opts.MaxBackoff = c.MaxAttempts, c.Backoff, c.MaxBackoff
		opts.Timeout, opts.Concurrency, opts.Operations = c.Timeout, c.Concurrency, c.Operation
		opts.DryRun, opts.SweepOnly = c.DryRun, c.Exec == ""
	})
	if err != nil {
		return err
	}
	return errors.Join(c.print(e, j, report), j.failure(), failures(report))
}

// failures is the error of a run that did not succeed with every record.
func failures(r idempotent.Report) error {
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%s of %s failed; those are asked about again", count(r.Failed, "record"), grouped(r.Due))
	case r.Incomplete:
		return errors.New("interrupted before the end of the list")
	}
	return nil
}

// reportView is the report as --json prints it.
type reportView struct {
	DryRun        bool    `json:"dry_run"`
	Due           int     `json:"due"`
	MarkedUnknown int     `json:"marked_unknown"`
	Released      int     `json:"released"`
	Completed     int     `json:"completed"`
	NotExecuted   int     `json:"not_executed"`
	Steps         int     `json:"steps"`
	Postponed     int     `json:"postponed"`
	Exhausted     int     `json:"exhausted"`
	Stale         int     `json:"stale"`
	Failed        int     `json:"failed"`
	Oldest        stamp   `json:"oldest,omitzero"` // of those whose outcome is still unknown
	OldestRelease stamp   `json:"oldest_released,omitzero"`
	Incomplete    bool    `json:"incomplete"`
	Records       []entry `json:"records"`
}

func (c *reconcileCmd) print(e *env, j *journal, r idempotent.Report) error {
	if e.json {
		return e.document(reportView{
			c.DryRun, r.Due, r.MarkedUnknown, r.Released, r.Completed, r.NotExecuted, r.Steps, r.Postponed, r.Exhausted, r.Stale, r.Failed,
			stamp{r.Oldest}, stamp{r.OldestReleased}, r.Incomplete, append([]entry{}, j.entries...),
		})
	}
	text := r.String()
	if c.DryRun {
		text += "; nothing was written"
	}
	if !r.Oldest.IsZero() {
		text += fmt.Sprintf("\nthe oldest whose outcome is unknown was created %s", when(r.Oldest, e.now()))
	}
	if !r.OldestReleased.IsZero() {
		text += fmt.Sprintf("\nthe oldest that waits to be continued was created %s", when(r.OldestReleased, e.now()))
	}
	_, err := fmt.Fprintln(e.stdout, text)
	return err
}
