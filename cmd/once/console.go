// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// consoleCmd is the command once console.
type consoleCmd struct {
	*env
	port         int
	allowResolve bool
	audit        string
	links        []string
}

func consoleCommand(e *env) *cobra.Command {
	c := &consoleCmd{env: e}
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
		RunE: e.command(c.run),
	}
	f := cmd.Flags()
	f.IntVar(&c.port, "port", 0, "`PORT` on 127.0.0.1; 0: any that is free")
	f.BoolVar(&c.allowResolve, "allow-resolve", false, "the page can change records")
	f.StringArrayVar(&c.links, "link", nil, "show the link `NAME=URL` for each record\n(repeatable)")
	auditFlag(cmd, &c.audit)
	return exits(cmd, exitOK, exitFailure, exitUsage)
}

const (
	// headerTimeout limits how long a browser may take to send the headers of a
	// request, and requestTimeout the whole request.
	headerTimeout  = 10 * time.Second
	requestTimeout = time.Minute
	// endTimeout is how long requests may take to end after Ctrl-C. Their contexts
	// end at once.
	endTimeout = 5 * time.Second
)

func (c *consoleCmd) run(ctx context.Context, _ []string) error {
	switch {
	case c.store.NoIndex:
		return usage("once console reads the index of the table; without one, use once list --no-index")
	case c.port < 0 || c.port > 65535:
		return usage("invalid --port %d: want 0 to 65535", c.port)
	}
	l, err := parseLinks(c.links)
	if err != nil {
		return err
	}
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	var a *auditor
	if c.allowResolve {
		if a, err = c.openAudit(ctx, c.audit, o); err != nil {
			return err
		}
	}
	s := newSite(ctx, c.env, o, a, l)
	if _, err := s.look(ctx); err != nil { // whether the lists can be read
		return err
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		return fmt.Errorf("the console cannot listen: %w", err)
	}
	d, ticket := newDoor(listener.Addr().String())
	if err := c.announce(o, "http://"+d.host+"/#"+ticket); err != nil {
		return errors.Join(err, listener.Close())
	}
	return c.serve(ctx, listener, s.handler(d))
}

// announce prints the address of the page.
func (c *consoleCmd) announce(o *opened, address string) error {
	if c.json {
		return c.encoder().Encode(map[string]any{"url": address, "store": o.name, "allow_resolve": c.allowResolve})
	}
	mode := "read-only"
	if c.allowResolve {
		mode = "it can change records"
	}
	fmt.Fprintf(c.stderr, "once: the console of %s (%s); Ctrl-C ends it. Open this address, which works once:\n", oneLine(o.name), mode)
	_, err := fmt.Fprintln(c.stdout, address)
	return err
}

// serve serves the console until ctx ends.
func (c *consoleCmd) serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		ErrorLog:          log.New(c.stderr, "once: ", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the console ended: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return errors.Join(fmt.Errorf("a request did not end: %w", err), server.Close())
	}
	return nil
}
