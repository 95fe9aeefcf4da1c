// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/idempotent/driver"
)

// requeueCmd is the command once requeue.
type requeueCmd struct {
	*operate.Env
	operate.Target
	operate.Writing
	exhausted  bool
	operations []string
}

func requeueCommand(e *operate.Env) *cobra.Command {
	c := &requeueCmd{Env: e}
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
		RunE: command(e, c.run),
	}
	f := cmd.Flags()
	f.BoolVar(&c.exhausted, "exhausted", false, "all records that reconciliation has given up")
	f.StringArrayVar(&c.operations, "operation", nil, "with --exhausted: only records of this\n`OPERATION` (repeatable)")
	recordFlags(cmd, &c.Target)
	writingFlags(cmd, &c.Writing, "print what would be requeued, and write nothing", "why; the audit contains this `TEXT`", "with --exhausted: write without asking")
	for _, one := range []string{"key", "scope", "global", "path", "scan"} {
		cmd.MarkFlagsMutuallyExclusive("exhausted", one)
	}
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound, operate.ExitRefused)
}

func (c *requeueCmd) run(ctx context.Context, args []string) error {
	if !c.exhausted && len(c.operations) > 0 {
		return operate.Usage("--operation is for --exhausted")
	}
	c.Yes = c.Yes || !c.exhausted // one record needs no confirmation: nothing runs
	if err := c.Ready(c.Env); err != nil {
		return err
	}
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	list := make([]*driver.Record, 1)
	if c.exhausted {
		list, err = operate.GivenUp(ctx, c.Env, o, c.operations)
	} else {
		list[0], err = c.Find(ctx, c.Env, o, args[0])
	}
	if err != nil {
		return err
	}
	c.Yes = c.Yes || len(list) == 0
	o, a, err := c.Begin(ctx, c.Env, o, operate.RequeueQuestion(o, list, c.Reason))
	if err != nil {
		return err
	}
	all, err := operate.RequeueAll(ctx, c.Env, o, list, c.Reason, a)
	return errors.Join(err, all.End())
}
