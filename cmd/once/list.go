// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// listCmd is the command once list.
type listCmd struct {
	*operate.Env
	states, operations []string
	due, exhausted     bool
	noScan             bool
	limit              int
	full               bool
	ref                string
}

// states are the states of records in lists and counts.
var states = []string{"in_progress", "completed", "retryable", view.StateResumable, "unknown"}

func listCommand(e *operate.Env) *cobra.Command {
	c := &listCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List records, for example those that are unknown, due or given up",
		Long: `The oldest records come first. A record is resumable if its attempt ended under
Resume after some of its effects: the next request continues it, and until then
reconciliation asks about it. The column AGE shows for how long the record has
been in its state, and NEXT what will end the state: the end of the lease, the
time when reconciliation is due, or the expiry of the stored outcome; or it
shows how long ago reconciliation gave up.

Lists of unknown, resumable or exhausted records read the index, other lists the
whole table: half a read unit for each 4 KB, about $0.02 for each GB. --due does
so to find abandoned runs, which are not in the index; --no-scan leaves them
out.

To print a record, run once show with the text of the column RECORD.`,
		Example: `  once list --state unknown
  once list --state in_progress --operation 'POST /charges' --limit 20
  once list --ref order-1033
  once list --limit 0 --json`,
		RunE: command(e, c.run),
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.states, "state", nil, "only records in this `STATE` (repeatable):\n"+strings.Join(states[:3], ", ")+",\n"+strings.Join(states[3:], ", "))
	f.StringArrayVar(&c.operations, "operation", nil, "only records of this `OPERATION` (repeatable)")
	f.BoolVar(&c.due, "due", false, "only records that reconciliation would process now")
	f.StringVar(&c.ref, "ref", "", "only records whose reference contains `TEXT`")
	noScanFlag(cmd, &c.noScan)
	f.BoolVar(&c.exhausted, "exhausted", false, "only records that reconciliation has given up:\nsettle or requeue them")
	f.IntVar(&c.limit, "limit", 100, "list the oldest `N` records; 0: all, in the order\nin which they are read")
	f.BoolVar(&c.full, "full", false, "print full record ids, even if the lines get long")
	cmd.MarkFlagsMutuallyExclusive("due", "exhausted")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

func (c *listCmd) run(ctx context.Context, _ []string) error {
	if c.limit < 0 {
		return operate.Usage("invalid --limit %d: must not be negative", c.limit)
	}
	for _, s := range c.states {
		if !slices.Contains(states, s) {
			return operate.Usage("invalid --state %q: want one of %s", s, strings.Join(states, ", "))
		}
	}
	c.Progress = c.Progress && c.limit > 0 // without a limit the list itself shows it
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	t := c.table()
	oldest := &oldest{limit: c.limit}
	found, unreadable := 0, 0
	for r, err := range c.candidates(ctx, o) {
		switch {
		case r.ID == "":
			return errors.Join(err, t.Flush())
		case err != nil:
			fmt.Fprintf(c.Stderr, "once: %s: %s\n", output.Short(r.ID), output.Plain(err.Error()))
			unreadable++
		case !c.matches(&r):
		case c.limit == 0:
			found++
			if err := c.print(t, view.Of(&r)); err != nil {
				return err
			}
		default:
			found++
			oldest.add(&r)
		}
	}
	for _, v := range oldest.sorted() {
		if err := c.print(t, v); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case found == 0:
		if err := o.Alien(ctx); err != nil {
			return err
		}
		fmt.Fprintf(c.Stderr, "once: no such records in %s\n", output.OneLine(o.Name()))
		if slices.Equal(c.states, []string{"unknown"}) {
			fmt.Fprintln(c.Stderr, "once: a killed attempt is in_progress: see once list --state in_progress, and\nonce list --due when its lease has ended")
		}
	case c.limit > 0 && found > c.limit:
		fmt.Fprintf(c.Stderr, "once: %s of %s, the oldest; --limit 0 lists all\n", output.Grouped(c.limit), output.Count(found, "record"))
	}
	if unreadable > 0 {
		return fmt.Errorf("%s could not be read", output.Count(unreadable, "record"))
	}
	return nil
}

// candidates returns the shortest list that contains all matching records.
func (c *listCmd) candidates(ctx context.Context, o operate.Store) iter.Seq2[driver.Record, error] {
	now := c.Now()
	switch {
	case c.due:
		all := o
		if !c.noScan {
			all = o.Whole()
		}
		due := func(yield func(driver.Listed, error) bool) {
			for e, err := range all.Due(ctx, time.Time{}) {
				if e.Due.After(now) || !yield(e, err) {
					return
				}
			}
		}
		return operate.Read(ctx, o, due, c.operations, func(r *driver.Record) bool { return r.DueBy(now) })
	case c.exhausted:
		return operate.Exhausted(ctx, o, c.operations)
	case len(c.states) > 0 && !slices.ContainsFunc(c.states, func(s string) bool { return s != view.StateResumable && s != driver.StateUnknown.String() }):
		return operate.Read(ctx, o, operate.Waiting(ctx, o), c.operations, func(*driver.Record) bool { return true })
	}
	all, _ := operate.ReadAll(ctx, c.Env, o, "reading the table")
	return all
}

func (c *listCmd) matches(r *driver.Record) bool {
	return (len(c.states) == 0 || slices.Contains(c.states, view.StateOf(r))) && strings.Contains(r.Ref, c.ref) && operate.Selects(c.operations, r.ID)
}

// oldest holds the oldest records of a list, and at most twice as many as its
// limit, so that a long list needs little memory.
type oldest struct {
	limit int
	views []*view.Record
}

func (o *oldest) add(r *driver.Record) {
	if o.views = append(o.views, view.Of(r)); len(o.views) == 2*o.limit {
		o.views = o.sorted()
	}
}

// stateSince returns when the record entered its state, from which its age counts.
func stateSince(v *view.Record) time.Time { return cmp.Or(v.Since.Time, v.Created.Time) }

// sorted returns at most limit records, the oldest first.
func (o *oldest) sorted() []*view.Record {
	slices.SortFunc(o.views, func(a, b *view.Record) int {
		return cmp.Or(stateSince(a).Compare(stateSince(b)), cmp.Compare(a.Record, b.Record))
	})
	return o.views[:min(o.limit, len(o.views))]
}

// table returns the table of the list.
func (c *listCmd) table() *output.Table {
	t := c.Env.Table(3, "RECORD", "STATE", "AGE", "NEXT", "REASON", "TRY", "REF")
	if c.full {
		t.Width = 0
	}
	return t
}

// print prints a record in a line.
func (c *listCmd) print(t *output.Table, v *view.Record) error {
	id, now := output.Short(v.Record), c.Now()
	if c.full {
		id = output.OneLine(string(v.Record))
	}
	age, reason := output.Span(now.Sub(stateSince(v))), output.OneLine(string(v.Reason))
	return t.Add(v, id, v.StateName(), age, next(v, now), reason, fmt.Sprint(v.Attempt), output.OneLine(v.Ref))
}

// next returns what will end the state of a record by itself, and when.
func next(v *view.Record, now time.Time) string {
	at := func(t view.Time, ahead, past string) string {
		if t.After(now) {
			return ahead + " " + output.Span(t.Sub(now))
		}
		return past + " " + output.Span(now.Sub(t.Time))
	}
	switch {
	case v.Exhausted:
		return at(v.Due, "given up", "given up")
	case v.State == driver.StateInProgress.String():
		return at(v.LeaseEnd, "lease", "lease over")
	case !v.Due.IsZero():
		return at(v.Due, "due in", "due for")
	case !v.Expires.IsZero():
		return at(v.Expires, "kept", "expired")
	}
	return ""
}
