// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
)

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
