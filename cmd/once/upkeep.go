// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// statsCmd is the command once stats.
type statsCmd struct{ *env }

func statsCommand(e *env) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "stats",
		Short: "Count records and their sizes",
		Long: `It reads the whole table, including large results, and prints what the read
cost. To count only unknown or due records, use once list with --state unknown
or --due, which costs 64 queries.`,
		Example: `  once stats
  once stats --json`,
		RunE: e.onStore((&statsCmd{e}).run),
	}, exitOK, exitFailure, exitUsage)
}

// stats are the counts, in the form of --json.
type stats struct {
	Records    int      `json:"records"`
	Unreadable int      `json:"unreadable,omitempty"`
	Bytes      int      `json:"result_bytes"`
	Groups     []*group `json:"groups"`

	Unknown       int                 `json:"unknown"`
	OldestUnknown idempotent.RecordID `json:"oldest_unknown,omitempty"`
	OldestSince   view.Time           `json:"oldest_unknown_created,omitzero"`
	Resumable     int                 `json:"resumable"` // released under Resume, and still due
	Due           int                 `json:"due"`
	Exhausted     int                 `json:"exhausted"`
	Ended         int                 `json:"lease_ended"` // in progress, but the lease has ended
	Expired       int                 `json:"expired"`

	ScanBegan view.Time `json:"scan_began,omitzero"` // the last scan of a reconciler, of a table
	ScanEnded view.Time `json:"scan_ended,omitzero"`

	Items     int     `json:"items_read,omitempty"` // including the chunks of large results
	ReadUnits float64 `json:"read_units,omitempty"`
	USD       float64 `json:"read_usd,omitempty"`

	groups map[[2]string]*group // by operation and state
}

// group counts the records of one operation in one state.
type group struct {
	Operation string    `json:"operation"`
	State     string    `json:"state"`
	Records   int       `json:"records"`
	Bytes     int       `json:"result_bytes"`
	Oldest    view.Time `json:"oldest_created"`
}

func (c *statsCmd) run(ctx context.Context, o *opened) error {
	s, err := c.count(ctx, o, func(*driver.Record) {})
	if err != nil {
		return err
	}
	if c.json {
		err = c.document(s)
	} else {
		err = c.print(s, o.scans != nil)
	}
	if s.Unreadable > 0 {
		err = errors.Join(err, fmt.Errorf("%s could not be read; once list shows which", count(s.Unreadable, "record")))
	}
	return err
}

// count reads the store, and calls visit for each record.
func (c *statsCmd) count(ctx context.Context, o *opened, visit func(*driver.Record)) (*stats, error) {
	m := c.meter("reading the table", o.items(ctx))
	s := &stats{Groups: []*group{}, groups: map[[2]string]*group{}}
	var failed error
	for r, err := range o.all(ctx, m.read) {
		switch {
		case r.ID == "":
			failed = err
		case err != nil:
			s.Unreadable++
		default:
			s.add(&r, c.now())
			visit(&r)
		}
	}
	if s.cost(m.end()); failed != nil {
		return nil, failed
	}
	if err := o.alien(ctx); err != nil {
		return nil, err
	}
	if o.scans != nil {
		last, err := o.scans.LastScan(ctx)
		if err != nil {
			return nil, err
		}
		s.ScanBegan, s.ScanEnded = view.Time{Time: last.Began}, view.Time{Time: last.Ended}
	}
	slices.SortFunc(s.Groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	return s, nil
}

func (s *stats) add(r *driver.Record, now time.Time) {
	key := [2]string{r.ID.Operation(), view.StateOf(r)}
	g := s.groups[key]
	if g == nil {
		g = &group{Operation: key[0], State: key[1], Oldest: view.Time{Time: r.Created}}
		s.groups[key] = g
		s.Groups = append(s.Groups, g)
	}
	n := view.ResultBytes(r)
	g.Records, g.Bytes = g.Records+1, g.Bytes+n
	s.Records, s.Bytes = s.Records+1, s.Bytes+n
	if r.Created.Before(g.Oldest.Time) {
		g.Oldest = view.Time{Time: r.Created}
	}
	if r.State == driver.StateUnknown {
		s.Unknown++
		if s.OldestUnknown == "" || r.Created.Before(s.OldestSince.Time) {
			s.OldestUnknown, s.OldestSince = r.ID, view.Time{Time: r.Created}
		}
	}
	for _, c := range []struct {
		count *int
		is    bool
	}{
		{&s.Resumable, r.Resumable()},
		{&s.Exhausted, r.Exhausted},
		{&s.Due, r.DueBy(now)},
		{&s.Ended, r.Abandoned(now)},
		{&s.Expired, r.Expired(now)},
	} {
		if c.is {
			*c.count++
		}
	}
}

func (s *stats) cost(read dynamostore.ScanProgress) {
	s.Items, s.ReadUnits, s.USD = read.Items, read.ReadUnits, read.ReadUnits*readUnitUSD
}

func (c *statsCmd) print(s *stats, scans bool) error {
	now := c.now()
	if len(s.Groups) > 0 {
		t := c.table(0, "OPERATION", "STATE", "RECORDS", "OLDEST", "RESULTS")
		for _, g := range s.Groups {
			t.add(nil, oneLine(g.Operation), g.State, grouped(g.Records), span(now.Sub(g.Oldest.Time)), size(g.Bytes))
		}
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(c.stdout)
	}
	unknown := grouped(s.Unknown)
	if s.Unknown > 0 {
		unknown += fmt.Sprintf("\nthe oldest is %s\ncreated %s", short(s.OldestUnknown), when(s.OldestSince.Time, now))
	}
	facts := [][2]string{
		{"records", fmt.Sprintf("%s, with results of %s", grouped(s.Records), size(s.Bytes))},
		{"unknown", unknown},
		{"resumable", grouped(s.Resumable)},
		{"due", fmt.Sprintf("%s now, and %s given up", grouped(s.Due), grouped(s.Exhausted))},
		{"lease over", fmt.Sprintf("%s in progress without an outcome", grouped(s.Ended))},
		{"expired", grouped(s.Expired)},
	}
	if scans {
		facts = append(facts, [2]string{"last scan", lastScan(s.ScanBegan.Time, s.ScanEnded.Time, now)})
	}
	if s.ReadUnits > 0 {
		facts = append(facts, [2]string{"this read", fmt.Sprintf("%s, %.1f read units, about $%.6f (on demand, us-east-1)", count(s.Items, "item"), s.ReadUnits, s.USD)})
	}
	_, err := fmt.Fprint(c.stdout, labelled(facts))
	return err
}

// lastScan describes the last scan for abandoned runs.
func lastScan(began, ended, now time.Time) string {
	switch {
	case began.IsZero():
		return "none has begun: a reconciler makes them"
	case ended.IsZero():
		return "none has ended; the first one began " + when(began, now)
	case began.After(ended):
		return "ended " + when(ended, now) + "\nthe next one began " + when(began, now)
	default:
		return "ended " + when(ended, now)
	}
}

// scanCommand returns the command once scan.
func scanCommand(e *env) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "scan",
		Short: "Let the reconciler look for abandoned runs now",
		Long: `The next run of the reconciler begins a scan of the table, without waiting for
the time of the next one. The scan finds runs whose process ended without a
warning, and reads the whole table. A run that was killed at its deadline is
found without a scan. Use it after processes ended without a warning, for
example for lack of memory. It needs a reconciler whose scans are not off.`,
		Example: `  once scan`,
		RunE: e.onStore(func(ctx context.Context, o *opened) error {
			if o.scans == nil {
				return usage("%s needs no scans: its list of due records shows abandoned runs", o.name)
			}
			if err := o.alien(ctx); err != nil {
				return err
			}
			begins, err := o.scans.BeginScan(ctx, e.now())
			if err != nil {
				return err
			}
			if e.json {
				return e.document(map[string]bool{"begins": begins})
			}
			text := "The next run of the reconciler begins a scan."
			if !begins {
				text = "A scan is under way already: once stats shows when it began."
			}
			_, err = fmt.Fprintln(e.stdout, text)
			return err
		}),
	}, exitOK, exitFailure, exitUsage)
}

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
		RunE: e.command(c.run),
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.operations, "operation", nil, "only records of this `OPERATION` (repeatable)")
	f.StringVar(&c.before, "before", "", "only records settled before this `TIME` (RFC 3339),\nor at least this long ago (720h)")
	f.BoolVar(&c.yes, "yes", false, "remove the records; without it they are only\ncounted")
	auditFlag(cmd, &c.audit)
	return exits(cmd, exitOK, exitFailure, exitUsage)
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
		p.from = o
	}
	m := c.meter("reading the table", o.items(ctx))
	err = p.walk(ctx, o.all(ctx, m.read), func(r *driver.Record) bool {
		return purgeable(r, c.now()) && r.Since.Before(before) && selects(c.operations, r.ID)
	})
	m.end()
	if err == nil {
		p.chunks, err = o.purgeChunks(ctx, before, c.operations, !c.yes)
	}
	if c.yes { // also after an interruption
		err = errors.Join(err, a.write(auditLine{Action: "purge", Count: p.total, Outcome: "written"}))
	}
	return errors.Join(err, c.print(p))
}

// settledBefore parses --before. The default, and the latest time, is now.
func (c *purgeCmd) settledBefore() (time.Time, error) {
	now := c.now()
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
		return t, usage("invalid --before %q: want a time like 2026-01-31T00:00:00Z, or a duration like 720h", c.before)
	}
	return t, nil
}

// purgeable reports whether the record cannot be needed any more.
func purgeable(r *driver.Record, now time.Time) bool {
	return r.Deletable() && r.ExpiredBefore(now, purgeGrace)
}

// purge is one pass over the records.
type purge struct {
	from *opened // nil: only count

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
	parallel(matching, purgeParallel, func(_ int, r driver.Record) {
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
	of.Records, p.total = of.Records+1, p.total+1
	of.Bytes += view.ResultBytes(r)
}

func (c *purgeCmd) print(p *purge) error {
	operations := []purged{}
	for _, name := range slices.Sorted(maps.Keys(p.removed)) {
		operations = append(operations, *p.removed[name])
	}
	if c.json {
		return c.document(map[string]any{"removed": c.yes, "records": p.total, "changed_meanwhile": p.moved, "orphaned_chunks": p.chunks, "operations": operations})
	}
	t := c.table(0, "OPERATION", "RECORDS", "RESULTS")
	for _, of := range operations {
		t.add(nil, oneLine(of.Operation), grouped(of.Records), size(of.Bytes))
	}
	if err := t.flush(); err != nil {
		return err
	}
	text := count(p.total, "record") + " removed"
	if !c.yes {
		text = count(p.total, "record") + " would be removed; --yes removes them"
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

// tableCmd is the commands once table create and once table check.
type tableCmd struct {
	*env
	replicas []string
	witness  string
}

func tableCommand(e *env) *cobra.Command {
	c := &tableCmd{env: e}
	cmd := &cobra.Command{
		Use:     "table",
		Short:   "Create or check the table, or the file",
		Example: "  once table check",
		Args:    cobra.ArbitraryArgs, // cobra prints the help for a mistyped one, and succeeds
		RunE: e.command(func(context.Context, []string) error {
			return usage("missing or unknown command: want once table create or once table check")
		}),
	}
	create := exits(&cobra.Command{
		Use:   "create",
		Short: "Create the table, or the file",
		Long: `A table gets its index and its time to live. An existing table or file is
checked and not changed.

With --consistency strong the table is in three regions: the one of --region and
those of two --replica, or of one --replica and a --witness. It has no time to
live; the scans of a reconciler delete expired records. Creating it takes
minutes.

The command is for tests and local use. In production create the table with
infrastructure code, where backups, deletion protection and encryption are
decided.`,
		Example: `  once table create --table once-records --endpoint http://127.0.0.1:4566
  once table create --table once-records --region eu-central-1 \
    --consistency strong --replica eu-west-1 --replica eu-west-3`,
		RunE: e.command(c.create),
	}, exitOK, exitFailure, exitUsage)
	create.Flags().StringArrayVar(&c.replicas, "replica", nil, "another `REGION` of a table with --consistency strong\n(repeatable)")
	create.Flags().StringVar(&c.witness, "witness", "", "`REGION` of its witness, in place of a replica")
	cmd.AddCommand(create, exits(&cobra.Command{
		Use:   "check",
		Short: "Check whether the table, or the file, can be used as a store",
		Long: `It reads how the table is described, and then does what functions do: it claims
a record, on a condition that is false, so that nothing is written, and queries
the index. Set the variables of your functions (ONCE_TABLE and the others), so
that it uses their table. Without permission to write, the claim is denied, and
the rest is checked.`,
		Example: "  once table check --table once-records",
		RunE:    e.onStore(c.check),
	}, exitOK, exitFailure, exitUsage))
	return cmd
}

func (c *tableCmd) create(ctx context.Context, _ []string) error {
	_, file, _ := c.store.choose(c.getenv) // openStore returns its error
	info, err := os.Stat(file)
	existed := err == nil && info.Size() > 0
	o, err := c.openStore(ctx, true)
	if err != nil {
		return err
	}
	defer o.close()
	if err := c.checkRegions(o.scans != nil); err != nil {
		return err
	}
	if o.scans != nil {
		existed = o.check(ctx) == nil
		err = o.scans.CreateTable(ctx, func(opts *dynamostore.CreateOptions) { opts.Replicas, opts.Witness = c.replicas, c.witness }) // also checks the table
	}
	text := "was created and can be used as a store"
	if existed {
		text = "exists and can be used as a store; nothing was changed"
	}
	return c.verdict(o, err, text)
}

// checkRegions returns an error if the regions do not fit the consistency.
func (c *tableCmd) checkRegions(isTable bool) error {
	witnesses := 0
	if c.witness != "" {
		witnesses = 1
	}
	switch strong := isTable && c.setting(c.store.variable("ONCE_CONSISTENCY")) == string(dynamostore.Strong); {
	case !strong && len(c.replicas)+witnesses > 0:
		return usage("--replica and --witness are for a table with --consistency strong")
	case strong && len(c.replicas)+witnesses != 2:
		return usage("a table with strong consistency is in three regions: besides --region, name two with --replica, or one with --replica and one with --witness")
	}
	return nil
}

func (c *tableCmd) check(ctx context.Context, o *opened) error {
	return c.verdict(o, o.check(ctx), "can be used as a store")
}

// verdict prints the text if the store can be used, and otherwise its problems, one
// per line. A denied claim alone is not a problem of the table.
func (c *tableCmd) verdict(o *opened, err error, text string) error {
	schema, wrong := errors.AsType[*dynamostore.SchemaError](err)
	if err != nil && !wrong {
		return err
	}
	problems := []string{}
	if wrong {
		for _, p := range schema.Problems {
			problems = append(problems, p.Error())
		}
		op, _ := errors.AsType[*smithy.OperationError](schema.Problems[0])
		api, _ := errors.AsType[smithy.APIError](schema.Problems[0])
		wrong = len(problems) > 1 || op == nil || op.OperationName != "PutItem" || api == nil || api.ErrorCode() != "AccessDeniedException"
	}
	if c.json {
		if err := c.document(map[string]any{"store": o.name, "ok": !wrong, "problems": problems}); err != nil {
			return err
		}
	}
	switch {
	case wrong && c.json:
		return fmt.Errorf("%s cannot be used as a store", o.name)
	case wrong:
		return err
	case c.json:
		return nil
	case len(problems) > 0:
		_, err = fmt.Fprintf(c.stdout, "%s has what a store needs; %s\n", oneLine(o.name), oneLine(problems[0]))
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s %s\n", oneLine(o.name), text)
	return err
}
