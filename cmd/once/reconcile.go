package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
)

type reconcileCmd struct {
	DryRun    bool     `help:"Write nothing: print what would be done. The program of --exec runs anyway."`
	Exec      string   `placeholder:"COMMAND" help:"Ask this program about each record, through sh: see above. Without it only ended leases are processed."`
	Operation []string `sep:"none" help:"Only records of this operation. Repeatable."`

	MaxAttempts int           `default:"10" help:"Give a record up after this many attempts without an answer. Default: ${default}."`
	Backoff     time.Duration `default:"1m" help:"Pause after the first such attempt; it doubles up to --max-backoff. Default: ${default}."`
	MaxBackoff  time.Duration `default:"1h" help:"The longest pause. Default: ${default}."`
	Timeout     time.Duration `default:"10s" help:"How long the program may run for a record. Default: ${default}."`
	Concurrency int           `default:"8" help:"How many records are processed in parallel. Default: ${default}."`

	auditFlags
}

// Help returns the additional text of once reconcile --help.
func (*reconcileCmd) Help() string {
	return `A record whose lease ended without an outcome becomes unknown, or retryable if its operation declares so. Then --exec asks its program about each record that is due. The program reads the record as JSON from standard input, in the form of once show --json --result, and writes one of these answers to standard output:

    {"completed": RESULT}
    {"completed_base64": "…"}        for an operation's own codec
    {"response": {"status": 201, "header": {…}, "body": "…"}}
    {"without_result": true}         done, and the result is not known
    {"final": {"code": "…", "message": "…"}}
    {"step": {"name": "…", "result": RESULT}}
    {"corrected_step": {"name": "…", "result": RESULT}}
    {"not_executed": "TOKEN"}        the record's "token": this attempt
    {"later": "5m"}

A result is stored in the form and for the time that the record declares; another form is refused. If the program fails or writes another answer, that counts as {"later": …}, and the program is asked again later. Its standard error is passed on.`
}

// Run reconciles the records that are due.
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

// failures returns an error if a run did not succeed for every record.
func failures(r idempotent.Report) error {
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%s of %s failed and will be retried", count(r.Failed, "record"), grouped(r.Due))
	case r.Incomplete:
		return errors.New("interrupted before the end of the list")
	}
	return nil
}

// reportView is the report in the form of --json.
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
	Oldest        stamp   `json:"oldest,omitzero"` // the oldest record with an unknown outcome
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
