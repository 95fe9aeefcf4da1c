// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/view"
)

// lookupCmd is the command once lookup.
type lookupCmd struct {
	*env
	target
}

func lookupCommand(e *env) *cobra.Command {
	c := &lookupCmd{env: e}
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
		RunE: e.command(c.run),
	}
	c.target.flags(cmd)
	return exits(cmd, exitOK, exitFailure, exitUsage, exitNotFound, exitInProgress, exitUnknown, exitRetryable, exitResumable)
}

func (c *lookupCmd) run(ctx context.Context, args []string) error {
	o, r, err := c.openRecord(ctx, c.env, args[0])
	if err != nil {
		return err
	}
	defer o.close()
	now := c.now()
	if r.Expired(now) {
		return fmt.Errorf("%w: %s expired at %s, so the key is new", idempotent.ErrNoRecord, short(r.ID), when(r.Expires, now))
	}
	if c.json {
		err = c.encoder().Encode(view.Of(r))
	} else {
		_, err = fmt.Fprintf(c.stdout, "%s %s (%s) since %s\n", short(r.ID), view.StateOf(r), oneLine(string(r.Reason)), r.StateSince().Format("2006-01-02 15:04:05Z"))
	}
	if err == nil {
		err = &coded{errors.New(""), stateExits[view.StateOf(r)]}
	}
	return err
}

// stateExits are the exit codes of states.
var stateExits = map[string]int{
	"in_progress": exitInProgress, "unknown": exitUnknown, "retryable": exitRetryable, view.StateResumable: exitResumable, "completed": exitOK,
}
