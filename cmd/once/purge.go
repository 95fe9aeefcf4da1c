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

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// purgeCmd is the command once purge.
type purgeCmd struct {
	*env
	operations []string
	before     string
	yes        bool
	audit      string
}

func purgeCommand(e *env) *cobra.Command {
	c := &purgeCmd{env: e}
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
		Args: cobra.NoArgs,
		RunE: e.command(c.run),
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.operations, "operation", nil, "only records of this `OPERATION` (repeatable)")
	f.StringVar(&c.before, "before", "", "only records settled before this `TIME` (RFC 3339),\nor at least this long ago (720h)")
	f.BoolVar(&c.yes, "yes", false, "remove the records; without it they are only\ncounted")
	auditFlag(cmd, &c.audit)
	return cmd
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
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	p := &purge{removed: map[string]*purged{}}
	var a *auditor
	if c.yes {
		if a, err = c.openAudit(ctx, c.audit, o); err != nil {
			return err
		}
		defer a.close()
		p.from = o
	}
	m := c.meter("reading the table", o.items(ctx))
	err = p.walk(ctx, o.all(ctx, m.read), func(r *driver.Record) bool {
		return purgeable(r, c.now()) && (before.IsZero() || r.Settled.Before(before)) &&
			(len(c.operations) == 0 || slices.Contains(c.operations, r.ID.Operation()))
	})
	m.end()
	if err == nil {
		end := c.now()
		if !before.IsZero() && before.Before(end) {
			end = before
		}
		p.chunks, err = o.purgeChunks(ctx, end, c.operations, !c.yes)
	}
	if c.yes { // also after an interruption
		err = errors.Join(err, a.write(auditLine{Action: "purge", Count: p.total(), Outcome: "written"}))
	}
	return errors.Join(err, c.print(p))
}

// settledBefore parses --before.
func (c *purgeCmd) settledBefore() (time.Time, error) {
	if c.before == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(c.before); err == nil && d >= 0 {
		return c.now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, c.before)
	if err != nil {
		return t, usage("invalid --before %q: want a time like 2026-01-31T00:00:00Z, or a duration like 720h", c.before)
	}
	return t, nil
}

// purgeable reports whether the record cannot be needed any more.
func purgeable(r *driver.Record, now time.Time) bool {
	settled := r.State == driver.StateCompleted || r.State == driver.StateRetryable
	return settled && !r.Expires.IsZero() && r.Expires.Add(purgeGrace).Before(now)
}

// purge is one pass over the records.
type purge struct {
	from *opened // nil: only count

	mu      sync.Mutex
	removed map[string]*purged // by operation
	moved   int                // changed during the purge
	chunks  int                // chunks of large results that no record refers to
	failed  error
}

// purged counts the removed records of one operation.
type purged struct {
	Operation string `json:"operation"`
	Records   int    `json:"records"`
	Bytes     int    `json:"result_bytes"`
}

func (p *purge) walk(ctx context.Context, list func(func(driver.Record, error) bool), match func(*driver.Record) bool) error {
	var workers sync.WaitGroup
	slots := make(chan struct{}, purgeParallel)
	var failure error
	for r, err := range list {
		switch {
		case err != nil && r.ID == "":
			failure = err
		case err != nil || !match(&r): // an unreadable record stays
		case p.from == nil:
			p.count(&r)
		default:
			slots <- struct{}{}
			workers.Go(func() {
				defer func() { <-slots }()
				p.remove(ctx, &r)
			})
		}
	}
	workers.Wait()
	return errors.Join(failure, p.failed)
}

func (p *purge) remove(ctx context.Context, r *driver.Record) {
	current, err := p.from.Delete(ctx, r.ID, r.Version)
	p.mu.Lock()
	switch {
	case errors.Is(err, idempotent.ErrNoRecord) || err == nil && current != nil:
		p.moved++
	case err != nil && p.failed == nil:
		p.failed = fmt.Errorf("%s: %w", short(r.ID), err)
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
	of.Records++
	of.Bytes += resultBytes(r)
}

func (p *purge) total() (n int) {
	for _, of := range p.removed {
		n += of.Records
	}
	return n
}

func (c *purgeCmd) print(p *purge) error {
	operations := []purged{}
	t := &table{w: c.stdout, width: c.width, titles: []string{"OPERATION", "RECORDS", "RESULTS"}}
	for _, name := range slices.Sorted(maps.Keys(p.removed)) {
		of := p.removed[name]
		operations = append(operations, *of)
		if c.json {
			continue
		}
		if err := t.add(oneLine(name), grouped(of.Records), size(of.Bytes)); err != nil {
			return err
		}
	}
	if c.json {
		return c.document(map[string]any{"removed": c.yes, "records": p.total(), "changed_meanwhile": p.moved, "orphaned_chunks": p.chunks, "operations": operations})
	}
	if err := t.flush(); err != nil {
		return err
	}
	text := count(p.total(), "record") + " removed"
	if !c.yes {
		text = count(p.total(), "record") + " would be removed; --yes removes them"
	}
	if p.chunks > 0 {
		text += fmt.Sprintf("; %s of large results without a record too", count(p.chunks, "piece"))
	}
	if p.moved > 0 {
		text += fmt.Sprintf("; %s changed during the purge and stayed", count(p.moved, "record"))
	}
	_, err := fmt.Fprintln(c.stdout, text)
	return err
}
