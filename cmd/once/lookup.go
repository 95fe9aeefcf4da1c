// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/view"
)

// lookupCmd is the command once lookup.
type lookupCmd struct {
	*operate.Env
	operate.Target
}

func lookupCommand(e *operate.Env) *cobra.Command {
	c := &lookupCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "lookup RECORD",
		Short: "Print in one line what happened to a key",
		Long: recordHelp + `

The exit code is the state: 0 completed, 3 no record, 5 in progress, 6 unknown,
7 retryable (the next request runs), 8 resumable (the next request continues).
With --json, it prints the document of once show. It reads one record and
changes nothing.`,
		Example: `  once lookup 'POST /charges' --scope acme --key KEY
  once lookup transfer --scope acme --key t-17 >/dev/null && echo completed`,
		RunE: command(e, c.run),
	}
	recordFlags(cmd, &c.Target)
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound, exitInProgress, exitUnknown, exitRetryable, exitResumable)
}

func (c *lookupCmd) run(ctx context.Context, args []string) error {
	o, r, err := c.OpenRecord(ctx, c.Env, args[0])
	if err != nil {
		return err
	}
	defer o.Close()
	now := c.Now()
	if r.Expired(now) {
		return fmt.Errorf("%w: %s expired at %s, so the key is new", idempotent.ErrNoRecord, output.Short(r.ID), output.When(r.Expires, now))
	}
	if c.JSON {
		err = c.Encoder().Encode(view.Of(r))
	} else {
		_, err = fmt.Fprintf(c.Stdout, "%s %s (%s) since %s\n", output.Short(r.ID), view.StateOf(r), output.OneLine(string(r.Reason)), r.StateSince().Format("2006-01-02 15:04:05Z"))
	}
	if err == nil {
		err = operate.WithCode(errors.New(""), stateExits[view.StateOf(r)])
	}
	return err
}

// The exit codes that only once lookup returns, besides 0 for a completed record.
const (
	exitInProgress = 5
	exitUnknown    = 6
	exitRetryable  = 7
	exitResumable  = 8
)

// stateExits are the exit codes of states.
var stateExits = map[string]int{
	"in_progress": exitInProgress, "unknown": exitUnknown, "retryable": exitRetryable, view.StateResumable: exitResumable, "completed": operate.ExitOK,
}
