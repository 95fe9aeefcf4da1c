// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// requeueCmd is the command once requeue.
type requeueCmd struct {
	*env
	target
	writing
	exhausted  bool
	operations []string
}

func requeueCommand(e *env) *cobra.Command {
	c := &requeueCmd{env: e}
	cmd := &cobra.Command{
		Use:   "requeue {RECORD | --exhausted} --reason TEXT",
		Short: "Let reconciliation ask about records again, after an outage",
		Long: recordHelp + `

The record is due at once, its pauses begin anew, and reconciliation gives it up
only after another 7 days (or GiveUpAfter of your reconciler). Nothing runs, and
no outcome is stored. Only a record that waits for evidence can be requeued. A
run whose lease has ended without an outcome becomes unknown or retryable, as
its operation declares.

With --exhausted, it requeues every record that reconciliation has given up. A
record that fails does not stop the others, and it is safe to repeat the
command. The exit code is 1 if a write failed or was not tried, and otherwise 4
if a record was refused.`,
		Example: `  once requeue '#Xvk3zSc6bVqW' --reason 'the bank answers again'
  once requeue --exhausted --dry-run --reason 'outage of 21 November'
  once requeue --exhausted --operation refund --reason 'outage of 21 November'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case !c.exhausted && len(args) == 0:
				return errors.New("want one RECORD, or --exhausted")
			case !c.exhausted:
				return oneRecord(cmd, args)
			case len(args) > 0:
				return errors.New("--exhausted selects the records; omit RECORD")
			}
			return nil
		},
		RunE: e.command(c.run),
	}
	f := cmd.Flags()
	f.BoolVar(&c.exhausted, "exhausted", false, "all records that reconciliation has given up")
	f.StringArrayVar(&c.operations, "operation", nil, "with --exhausted: only records of this\n`OPERATION` (repeatable)")
	c.target.flags(cmd)
	c.writing.flags(cmd, "print what would be requeued, and write nothing", "why; the audit contains this `TEXT`", "with --exhausted: write without asking")
	for _, one := range []string{"key", "scope", "global", "path", "scan"} {
		cmd.MarkFlagsMutuallyExclusive("exhausted", one)
	}
	return exits(cmd, exitOK, exitFailure, exitUsage, exitNotFound, exitRefused)
}

func (c *requeueCmd) run(ctx context.Context, args []string) error {
	if !c.exhausted && len(c.operations) > 0 {
		return usage("--operation is for --exhausted")
	}
	c.yes = c.yes || !c.exhausted // one record needs no confirmation: nothing runs
	if err := c.ready(c.env); err != nil {
		return err
	}
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	list := make([]*driver.Record, 1)
	if c.exhausted {
		list, err = c.given(ctx, o)
	} else {
		list[0], err = c.find(ctx, c.env, o, args[0])
	}
	if err != nil {
		return err
	}
	if c.dryRun {
		return c.requeue(ctx, o.rehearse(), list, nil, c.results(false, true))
	}
	c.yes = c.yes || len(list) == 0
	a, err := c.begin(ctx, c.env, o, c.question(o, list))
	if err != nil {
		return err
	}
	return c.requeue(ctx, o, list, a, c.results(false, false))
}

// given returns the records that reconciliation has given up.
func (c *requeueCmd) given(ctx context.Context, o *opened) (list []*driver.Record, err error) {
	for r, err := range o.exhausted(ctx, c.operations) {
		if err != nil {
			return nil, err
		}
		list = append(list, &r)
	}
	return list, o.alien(ctx)
}

// question returns what will be requeued. The answer is the number of records.
func (c *requeueCmd) question(o *opened, list []*driver.Record) question {
	of := map[string]int{}
	var operations []string
	for _, r := range list {
		if of[r.ID.Operation()]++; of[r.ID.Operation()] == 1 {
			operations = append(operations, r.ID.Operation())
		}
	}
	facts := [][2]string{{"in", oneLine(o.name)}, {"requeue", count(len(list), "record")}}
	for _, name := range operations {
		facts = append(facts, [2]string{"", fmt.Sprintf("%s: %s", oneLine(name), grouped(of[name]))})
	}
	return question{facts, "Reconciliation asks about them again. Nothing runs, and no outcome is stored.", fmt.Sprint(len(list))}
}

// requeue requeues the records and adds up the results. Without an auditor it is a
// dry run.
func (c *requeueCmd) requeue(ctx context.Context, o *opened, list []*driver.Record, a *auditor, all *results) error {
	var tasks []*task
	for _, r := range list {
		tasks = append(tasks, &task{id: r.ID, piece: piece{record: r}, line: auditLine{From: r.State.String()}})
	}
	audit := all.carryOut(ctx, tasks, a, func(t *task) { t.line, _ = c.requeueOne(ctx, o, t.record) })
	return errors.Join(audit, all.end())
}

// requeueOne requeues a record, and returns its line for the audit.
func (c *requeueCmd) requeueOne(ctx context.Context, o *opened, r *driver.Record) (auditLine, error) {
	state := r.State.String()
	line := auditLine{Action: "requeue", Record: r.ID, From: state, To: state, Reason: c.reason}
	written := false
	g := c.guard(o, func(opts *idempotent.Options) {
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
	return line.ended(written, err), err
}
