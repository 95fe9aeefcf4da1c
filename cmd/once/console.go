// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/console"
	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
)

// consoleCmd is the command once console.
type consoleCmd struct {
	*operate.Env
	port         int
	allowResolve bool
	audit        string
	links        []string
}

func consoleCommand(e *operate.Env) *cobra.Command {
	c := &consoleCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve a page that shows the records and settles them",
		Long: `It prints an address of this machine. Open it in a browser: the address works
once, and only from this machine. The console ends with Ctrl-C.

The page shows which outcomes are unknown, since when, and what reconciliation
has given up; it finds a record by its reference, its id or its key, and shows
its downstream keys. It reads the index of the table and single records. Only if
you ask it to read the whole table, it does so, and shows the price first.

With --allow-resolve, the page settles, requeues and forgets records, with the
checks of once resolve, requeue and forget. Each change needs a reason and a
confirmation, and adds a line to the audit. Your user name and your identity in
AWS are in that line.

With --link, each record has a link to its page elsewhere, such as at the
provider or in the logs. After its host, the address can contain {ref},
{record}, {operation}, {key_hash}, {downstream_key}, {downstream_uuid},
{request_id} and {trace_parent}. A record without such a value has no link.

A file can be open in one process at a time: the console holds it until it ends.`,
		Example: `  once console --table once-records
  once console --file once.db --allow-resolve --audit audit.jsonl
  once console --link 'provider=https://dashboard.example/search?q={ref}'`,
		RunE: command(e, c.run),
	}
	f := cmd.Flags()
	f.IntVar(&c.port, "port", 0, "`PORT` on 127.0.0.1; 0: any that is free")
	f.BoolVar(&c.allowResolve, "allow-resolve", false, "the page can change records")
	f.StringArrayVar(&c.links, "link", nil, "show the link `NAME=URL` for each record\n(repeatable)")
	auditFlag(cmd, &c.audit)
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

func (c *consoleCmd) run(ctx context.Context, _ []string) error {
	switch {
	case c.Flags.NoIndex:
		return operate.Usage("once console reads the index of the table; without one, use once list --no-index")
	case c.port < 0 || c.port > 65535:
		return operate.Usage("invalid --port %d: want 0 to 65535", c.port)
	}
	l, err := console.ParseLinks(c.links)
	if err != nil {
		return err
	}
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	var a *operate.Auditor
	if c.allowResolve {
		if a, err = c.OpenAudit(ctx, c.audit, o); err != nil {
			return err
		}
	}
	return console.Serve(ctx, c.Env, o, a, l, c.port, func(address string) error { return c.announce(o, address) })
}

// announce prints the address of the page.
func (c *consoleCmd) announce(o operate.Store, address string) error {
	if c.JSON {
		return c.Encoder().Encode(map[string]any{"url": address, "store": o.Name(), "allow_resolve": c.allowResolve})
	}
	mode := "read-only"
	if c.allowResolve {
		mode = "it can change records"
	}
	fmt.Fprintf(c.Stderr, "once: the console of %s (%s); Ctrl-C ends it. Open this address, which works once:\n", output.OneLine(o.Name()), mode)
	_, err := fmt.Fprintln(c.Stdout, address)
	return err
}
