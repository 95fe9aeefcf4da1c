package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type purgeCmd struct {
	Operation []string `sep:"none" help:"Only records of this operation. Repeatable."`
	Before    string   `placeholder:"TIME" help:"Only records settled before this time (RFC 3339), or at least this long ago (720h)."`
	Yes       bool     `help:"Remove the records. Without it they are only counted."`
	auditFlags
}

// Help returns the additional text of once purge --help.
func (*purgeCmd) Help() string {
	return `It removes completed and retryable records that expired more than an hour ago, with their large results, and chunks of large results that no record refers to; for that it reads a table twice. It never removes records that are in progress or unknown, or that a request claims during the purge. DynamoDB's time to live does the same within days and at no cost. Use purge for a table without time to live, or to remove records earlier.`
}

const (
	// purgeGrace is how long an expired record stays, as in the stores: a worker
	// whose clock is slow still finds it.
	purgeGrace = time.Hour
	// purgeParallel is how many records are removed in parallel.
	purgeParallel = 8
)

// Run counts the records, and removes them with --yes.
func (c *purgeCmd) Run(ctx context.Context, e *env) error {
	before, err := c.before(e.now())
	if err != nil {
		return err
	}
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	p := &purge{removed: map[string]*purged{}}
	var a *auditor
	if c.Yes {
		if a, err = e.audit(ctx, c.auditFlags, o); err != nil {
			return err
		}
		defer a.close()
		p.from = o
	}
	m := e.meter("reading the table", o.items(ctx))
	err = p.walk(ctx, o.all(ctx, m.read), func(r *driver.Record) bool {
		return purgeable(r, e.now()) && (before.IsZero() || r.Settled.Before(before)) &&
			(len(c.Operation) == 0 || slices.Contains(c.Operation, r.ID.Operation()))
	})
	m.end()
	if err == nil {
		end := e.now()
		if !before.IsZero() && before.Before(end) {
			end = before
		}
		p.chunks, err = o.purgeChunks(ctx, end, c.Operation, !c.Yes)
	}
	if c.Yes { // also after an interruption
		err = errors.Join(err, a.write(auditLine{Action: "purge", Count: p.total(), Outcome: "written"}))
	}
	return errors.Join(err, c.print(e, p))
}

// before parses --before.
func (c *purgeCmd) before(now time.Time) (time.Time, error) {
	if c.Before == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(c.Before); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, c.Before)
	if err != nil {
		return t, usage("invalid --before %q: want a time like 2026-01-31T00:00:00Z, or a duration like 720h", c.Before)
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

func (c *purgeCmd) print(e *env, p *purge) error {
	operations := []purged{}
	rows := [][]string{}
	for _, name := range slices.Sorted(maps.Keys(p.removed)) {
		of := p.removed[name]
		operations = append(operations, *of)
		rows = append(rows, []string{oneLine(name), grouped(of.Records), size(of.Bytes)})
	}
	if e.json {
		return e.document(map[string]any{"removed": c.Yes, "records": p.total(), "changed_meanwhile": p.moved, "orphaned_chunks": p.chunks, "operations": operations})
	}
	if len(rows) > 0 {
		columns := []column{{title: "OPERATION", keep: 20, cut: cutEnd}, {title: "RECORDS", right: true}, {title: "RESULTS", right: true}}
		if err := writeTable(e.stdout, e.width, columns, rows); err != nil {
			return err
		}
	}
	text := count(p.total(), "record") + " removed"
	if !c.Yes {
		text = count(p.total(), "record") + " would be removed; --yes removes them"
	}
	if p.chunks > 0 {
		text += fmt.Sprintf("; %s of large results without a record too", count(p.chunks, "piece"))
	}
	if p.moved > 0 {
		text += fmt.Sprintf("; %s changed during the purge and stayed", count(p.moved, "record"))
	}
	_, err := fmt.Fprintln(e.stdout, text)
	return err
}
