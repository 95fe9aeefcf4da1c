// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/view"
)

// forgetCmd is the command once forget.
type forgetCmd struct {
	*env
	target
	writing
	token string
}

func forgetCommand(e *env) *cobra.Command {
	c := &forgetCmd{env: e}
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
		RunE: e.command(c.run),
	}
	c.target.flags(cmd)
	cmd.Flags().StringVar(&c.token, "token", "", "the `TOKEN` of the attempt, as once show printed\nit; required with --yes")
	c.writing.flags(cmd, checkAndWrite, "how you know that the outcome is wrong; the\naudit contains this `TEXT`", "write without asking")
	return exits(cmd, exitOK, exitFailure, exitUsage, exitNotFound, exitRefused)
}

func (c *forgetCmd) run(ctx context.Context, args []string) error {
	if err := c.ready(c.env); err != nil {
		return err
	}
	if c.yes && c.token == "" {
		return usage("--yes needs --token: the token that once show printed with the wrong outcome")
	}
	o, r, err := c.openRecord(ctx, c.env, args[0])
	if err != nil {
		return err
	}
	defer o.close()
	token := cmp.Or(c.token, r.Token())
	written, err := c.forget(ctx, o.rehearse(), r, token)
	if c.dryRun || !c.yes && !written {
		return c.print(r, written, err, "would be discarded; nothing was written", outcomeWouldWrite)
	}
	a, err := c.begin(ctx, c.env, o, c.question(o, r))
	if err != nil {
		return err
	}
	line, err := c.audited(ctx, o, r, token)
	return errors.Join(c.print(r, line.Outcome == outcomeWritten, err, "is discarded; the next request runs", outcomeWritten), a.write(line))
}

// audited discards the outcome, and returns the line for the audit.
func (c *forgetCmd) audited(ctx context.Context, o *opened, r *driver.Record, token string) (auditLine, error) {
	written, err := c.forget(ctx, o, r, token)
	line := auditLine{Action: "forget", Record: r.ID, From: r.State.String(), To: r.State.String(), Token: token, Reason: c.reason}
	if written {
		line.To = driver.StateRetryable.String()
	}
	return line.ended(written, err), err
}

// forget lets the guard check and discard the outcome, and reports whether it did.
func (c *forgetCmd) forget(ctx context.Context, o *opened, r *driver.Record, token string) (written bool, err error) {
	g := c.guard(o, func(opts *idempotent.Options) {
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) { written = written || e.Kind == event.Forgotten })
	})
	err = g.Forget(ctx, r.ID, idempotent.Correction{Token: token, Actor: c.actor(), Reason: c.reason})
	return written, refusal(stale(r.ID, err, ""))
}

// question returns what will be discarded. The answer is the hash of the record.
func (c *forgetCmd) question(o *opened, r *driver.Record) question {
	facts := append(about(o, r, "since "+when(r.Since, c.now())),
		[2]string{"result", describeResult(view.Of(r))}, [2]string{"becomes", "retryable: the outcome is discarded"})
	return question{facts, "The next request with this key runs. If the effect did happen, it happens twice:\nundo it at the provider first.", r.ID.KeyHash()}
}

// print prints the outcome of the command, or returns its error.
func (c *forgetCmd) print(r *driver.Record, written bool, err error, text, outcome string) error {
	if err != nil {
		return err
	}
	to := r.State.String()
	if written {
		to = driver.StateRetryable.String()
	} else {
		text, outcome = "no outcome is stored; the next request runs", outcomeUnchanged
	}
	if c.json {
		return c.document(result{Record: r.ID, From: r.State.String(), To: to, Outcome: outcome})
	}
	if written {
		text = "the outcome " + text
	}
	_, err = fmt.Fprintf(c.stdout, "%s: %s\n", short(r.ID), text)
	return err
}
