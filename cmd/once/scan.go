// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// scanCommand returns the command once scan.
func scanCommand(e *operate.Env) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "scan",
		Short: "Let the reconciler look for abandoned runs now",
		Long: `The next run of the reconciler begins a scan of the table, without waiting for
the time of the next one. The scan finds runs whose process ended without a
warning, and reads the whole table. A run that was killed at its deadline is
found without a scan. Use it after processes ended without a warning, for
example for lack of memory. It needs a reconciler whose scans are not off.`,
		Example: `  once scan`,
		RunE: onStore(e, func(ctx context.Context, o operate.Store) error {
			if o.Scheduled() == nil {
				return operate.Usage("%s needs no scans: its list of due records shows abandoned runs", o.Name())
			}
			if err := o.Alien(ctx); err != nil {
				return err
			}
			begins, err := o.Scheduled().BeginScan(ctx, e.Now())
			if err != nil {
				return err
			}
			if e.JSON {
				return e.Document(map[string]bool{"begins": begins})
			}
			text := "The next run of the reconciler begins a scan."
			if !begins {
				text = "A scan is under way already: once stats shows when it began."
			}
			_, err = fmt.Fprintln(e.Stdout, text)
			return err
		}),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

// purgeCmd is the command once purge.
type purgeCmd struct {
	*operate.Env
	operations []string
	before     string
	yes        bool
	audit      string
}

func purgeCommand(e *operate.Env) *cobra.Command {
	c := &purgeCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove settled records that have expired",
		Long: `It removes completed and retryable records that expired more than an hour ago,
with their large results, and chunks of large results that no record refers to;
for that it reads a table twice. It never removes records that are in progress
or unknown, or that a request claims during the purge. DynamoDB's time to live
does the same within days and at no cost. Use purge for a table without time to
live, or to remove records earlier.`,
		Example: `  once purge --before 720h
  once purge --before 720h --yes`,
		RunE: command(e, c.run),
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.operations, "operation", nil, "only records of this `OPERATION` (repeatable)")
	f.StringVar(&c.before, "before", "", "only records settled before this `TIME` (RFC 3339),\nor at least this long ago (720h)")
	f.BoolVar(&c.yes, "yes", false, "remove the records; without it they are only\ncounted")
	auditFlag(cmd, &c.audit)
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

const (
	// purgeGrace is how long an expired record stays, as in the stores: a worker
	// whose clock is slow still finds it.
	purgeGrace = time.Hour
	// purgeParallel is how many records are removed in parallel.
	purgeParallel = 8
)

func (c *purgeCmd) run(ctx context.Context, _ []string) error {
	before, err := c.settledBefore()
	if err != nil {
		return err
	}
	o, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	p := &purge{removed: map[string]*purged{}}
	var a *operate.Auditor
	if c.yes {
		if a, err = c.OpenAudit(ctx, c.audit, o); err != nil {
			return err
		}
		p.from = o
	}
	all, _ := operate.ReadAll(ctx, c.Env, o, "reading the table")
	err = p.walk(ctx, all, func(r *driver.Record) bool {
		return purgeable(r, c.Now()) && r.Since.Before(before) && operate.Selects(c.operations, r.ID)
	})
	if err == nil {
		p.chunks, err = o.PurgeChunks(ctx, before, func(opts *dynamostore.PurgeOptions) { opts.Operations, opts.DryRun = c.operations, !c.yes })
	}
	if c.yes { // also after an interruption
		err = errors.Join(err, a.Write(operate.AuditLine{Action: "purge", Count: p.total, Outcome: "written"}))
	}
	return errors.Join(err, c.print(p))
}

// settledBefore parses --before. The default, and the latest time, is now.
func (c *purgeCmd) settledBefore() (time.Time, error) {
	now := c.Now()
	if c.before == "" {
		return now, nil
	}
	if d, err := time.ParseDuration(c.before); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, c.before)
	if t.After(now) {
		t = now
	}
	if err != nil {
		return t, operate.Usage("invalid --before %q: want a time like 2026-01-31T00:00:00Z, or a duration like 720h", c.before)
	}
	return t, nil
}

// purgeable reports whether the record cannot be needed any more.
func purgeable(r *driver.Record, now time.Time) bool {
	return r.Deletable() && r.ExpiredBefore(now, purgeGrace)
}

// purge is one pass over the records.
type purge struct {
	from operate.Store // nil: only count

	mu      sync.Mutex
	removed map[string]*purged // by operation
	total   int
	moved   int // changed during the purge
	chunks  int // chunks of large results that no record refers to
	failed  error
}

// purged counts the removed records of one operation.
type purged struct {
	Operation string `json:"operation"`
	Records   int    `json:"records"`
	Bytes     int    `json:"result_bytes"`
}

func (p *purge) walk(ctx context.Context, list func(func(driver.Record, error) bool), match func(*driver.Record) bool) (failure error) {
	matching := func(yield func(int, driver.Record) bool) {
		for r, err := range list {
			if r.ID == "" {
				failure = err
			} else if match(&r) && !yield(0, r) { // an unreadable record has no state, and stays
				return
			}
		}
	}
	operate.Parallel(matching, purgeParallel, func(_ int, r driver.Record) {
		if p.from != nil {
			p.remove(ctx, &r)
		} else {
			p.count(&r)
		}
	})
	return errors.Join(failure, p.failed)
}

func (p *purge) remove(ctx context.Context, r *driver.Record) {
	current, err := p.from.Delete(ctx, r.ID, r.Version)
	p.mu.Lock()
	switch {
	case errors.Is(err, idempotent.ErrNoRecord) || current != nil:
		p.moved++
	case err != nil:
		p.failed = fmt.Errorf("%s: %w", output.Short(r.ID), err)
	}
	p.mu.Unlock()
	if err == nil && current == nil {
		p.count(r)
	}
}

func (p *purge) count(r *driver.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	operation := r.ID.Operation()
	of := p.removed[operation]
	if of == nil {
		of = &purged{Operation: operation}
		p.removed[operation] = of
	}
	of.Records, p.total = of.Records+1, p.total+1
	of.Bytes += view.ResultBytes(r)
}

func (c *purgeCmd) print(p *purge) error {
	operations := []purged{}
	for _, name := range slices.Sorted(maps.Keys(p.removed)) {
		operations = append(operations, *p.removed[name])
	}
	if c.JSON {
		return c.Document(map[string]any{"removed": c.yes, "records": p.total, "changed_meanwhile": p.moved, "orphaned_chunks": p.chunks, "operations": operations})
	}
	t := c.Table(0, "OPERATION", "RECORDS", "RESULTS")
	for _, of := range operations {
		t.Add(nil, output.OneLine(of.Operation), output.Grouped(of.Records), output.Size(of.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text := output.Count(p.total, "record") + " removed"
	if !c.yes {
		text = output.Count(p.total, "record") + " would be removed; --yes removes them"
	}
	if p.chunks > 0 {
		text += fmt.Sprintf("; %s of large results without a record too", output.Count(p.chunks, "piece"))
	}
	if p.moved > 0 {
		text += fmt.Sprintf("; %s changed during the purge and stayed", output.Count(p.moved, "record"))
	}
	_, err := fmt.Fprintln(c.Stdout, text)
	return err
}
