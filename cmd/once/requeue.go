// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
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
	if len(list) == 0 && len(c.operations) > 0 {
		fmt.Fprintf(c.Stderr, "once: reconciliation has given up no record of %s\n", output.OneLine(strings.Join(c.operations, ", ")))
	}
	c.Yes = c.Yes || len(list) == 0
	o, a, err := c.Begin(ctx, c.Env, o, operate.RequeueQuestion(o, list, c.Reason))
	if err != nil {
		return err
	}
	all, err := operate.RequeueAll(ctx, c.Env, o, list, c.Reason, a)
	return errors.Join(err, all.End())
}

// forgetCmd is the command once forget.
type forgetCmd struct {
	*operate.Env
	operate.Target
	operate.Writing
	token string
}

func forgetCommand(e *operate.Env) *cobra.Command {
	c := &forgetCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "forget RECORD --reason TEXT",
		Short: "Discard a stored outcome that is wrong, so that the key runs again",
		Long: recordHelp + `

The next request with the key and the same payload runs. If the effect did
happen, it happens twice, so undo it at the provider first. The run sends the
same downstream keys: a provider that still knows them may return the effect of
the first run instead.

The command refuses a record without a stored outcome, and one whose lease is
live. The token names the attempt whose outcome it is: if the key has run again
since, nothing is written. A function that caches outcomes in memory
(CacheEntries) can return the outcome until CacheAge has passed.

Every write, and every refusal by the record, adds a line to the audit.`,
		Example: `  once forget 'POST /charges' --scope acme --key KEY \
    --reason 'settled by mistake: ch_5 belongs to another key' --dry-run
  once forget transfer --scope acme --key t-17 --token TOKEN --yes \
    --reason 'tr_17 was refused by the bank a day later'`,
		RunE: command(e, c.run),
	}
	recordFlags(cmd, &c.Target)
	cmd.Flags().StringVar(&c.token, "token", "", "the `TOKEN` of the attempt, as once show printed\nit; required with --yes")
	writingFlags(cmd, &c.Writing, checkAndWrite, "how you know that the outcome is wrong; the\naudit contains this `TEXT`", "write without asking")
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound, operate.ExitRefused)
}

func (c *forgetCmd) run(ctx context.Context, args []string) error {
	if err := c.Ready(c.Env); err != nil {
		return err
	}
	if c.Yes && c.token == "" {
		return operate.Usage("--yes needs --token: the token that once show printed with the wrong outcome")
	}
	o, r, err := c.OpenRecord(ctx, c.Env, args[0])
	if err != nil {
		return err
	}
	defer o.Close()
	token := cmp.Or(c.token, r.Token())
	line, err := operate.Forget(ctx, c.Env, operate.Rehearse(o), r, token, c.Reason)
	if c.DryRun || !c.Yes && line.Outcome != operate.OutcomeWouldWrite {
		return c.print(line, err)
	}
	_, a, err := c.Begin(ctx, c.Env, o, operate.ForgetQuestion(c.Env, o, r, c.Reason))
	if err != nil {
		return err
	}
	line, err = operate.Forget(ctx, c.Env, o, r, token, c.Reason)
	return errors.Join(c.print(line, err), a.Write(line))
}

// forgotten are texts about the outcomes of the command.
var forgotten = map[string]string{
	operate.OutcomeWouldWrite: "the outcome would be discarded; nothing was written",
	operate.OutcomeWritten:    "the outcome is discarded; the next request runs",
	operate.OutcomeUnchanged:  "no outcome is stored; the next request runs",
}

// print prints the outcome of the command, or returns its error.
func (c *forgetCmd) print(line operate.AuditLine, err error) error {
	switch {
	case err != nil:
		return err
	case c.JSON:
		return c.Document(operate.Result{Record: line.Record, From: line.From, To: line.To, Outcome: line.Outcome})
	}
	_, err = fmt.Fprintf(c.Stdout, "%s: %s\n", output.Short(line.Record), forgotten[line.Outcome])
	return err
}
