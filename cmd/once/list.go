package main

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type listCmd struct {
	State     []string `enum:"in_progress,completed,retryable,resumable,unknown" placeholder:"STATE" help:"Only records in this state: in_progress, completed, retryable, resumable, unknown. Repeatable. For unknown and resumable the index is read; for the others the whole table."`
	Operation []string `sep:"none" help:"Only records of this operation. Repeatable."`
	Due       bool     `xor:"list" help:"Only records that reconciliation would process now."`
	Exhausted bool     `xor:"list" help:"Only records that reconciliation has given up: settle them by hand."`
	Limit     int      `default:"100" help:"Maximum number of records, the oldest. 0: all. Default: ${default}."`
	Full      bool     `help:"Print full record ids, even if the lines get long."`
}

// Help returns the additional text of once list --help.
func (*listCmd) Help() string {
	return `The oldest records come first. A record is resumable if its attempt ended under Resume after some of its effects: the next request continues it, and until then reconciliation asks about it. The column NEXT shows what will end the state: the end of the lease, the time when reconciliation is due, or the expiry of the stored outcome; or it shows how long ago reconciliation gave up.

To print a record, run once show with the text of the column RECORD.`
}

// Run lists records.
func (c *listCmd) Run(ctx context.Context, e *env) error {
	if c.Limit < 0 {
		return usage("invalid --limit %d: must not be negative", c.Limit)
	}
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	oldest := &selection{limit: c.Limit}
	unreadable := 0
	for r, err := range c.candidates(ctx, e, o) {
		switch {
		case err != nil && r.ID == "":
			return err
		case err != nil:
			fmt.Fprintf(e.stderr, "once: %s: %s\n", short(r.ID), plain(err.Error()))
			unreadable++
		case c.matches(&r):
			oldest.add(&r)
		}
	}
	if err := e.printList(oldest.sorted(), c.Full); err != nil {
		return err
	}
	switch n := len(oldest.views); {
	case n == 0:
		fmt.Fprintln(e.stderr, "once: no such records")
	case n < oldest.total:
		fmt.Fprintf(e.stderr, "once: %s of %s, the oldest; --limit 0 lists all\n", grouped(n), count(oldest.total, "record"))
	}
	if unreadable > 0 {
		return fmt.Errorf("%s could not be read", count(unreadable, "record"))
	}
	return nil
}

// candidates returns the shortest list that contains all matching records.
func (c *listCmd) candidates(ctx context.Context, e *env, o *opened) iter.Seq2[driver.Record, error] {
	switch {
	case c.Due:
		return o.Due(ctx, e.now())
	case c.Exhausted:
		return o.Exhausted(ctx)
	case len(c.State) > 0 && !slices.ContainsFunc(c.State, func(s string) bool { return s != stateResumable && s != driver.StateUnknown.String() }):
		return o.waiting(ctx)
	}
	return func(yield func(driver.Record, error) bool) {
		m := e.meter("reading the table", o.items(ctx))
		defer m.end()
		o.all(ctx, m.read)(yield)
	}
}

func (c *listCmd) matches(r *driver.Record) bool {
	return (len(c.State) == 0 || slices.Contains(c.State, stateOf(r))) &&
		(len(c.Operation) == 0 || slices.Contains(c.Operation, r.ID.Operation()))
}

// selection holds the oldest records of a list, and only those, to limit memory.
type selection struct {
	limit int // 0: all
	total int
	views []*view // a heap, the youngest on top
}

func (s *selection) add(r *driver.Record) {
	s.total++
	switch {
	case s.limit == 0 || len(s.views) < s.limit:
		heap.Push(s, viewOf(r))
	case older(r.Created, r.ID, s.views[0]) < 0:
		s.views[0] = viewOf(r)
		heap.Fix(s, 0)
	}
}

// older compares a record with v: a negative result means that the record is
// older.
func older(created time.Time, id idempotent.RecordID, v *view) int {
	return cmp.Or(created.Compare(v.Created.Time), cmp.Compare(id, v.Record))
}

// The methods of heap.Interface.

func (s *selection) Len() int      { return len(s.views) }
func (s *selection) Swap(i, j int) { s.views[i], s.views[j] = s.views[j], s.views[i] }
func (s *selection) Push(v any)    { s.views = append(s.views, v.(*view)) }
func (s *selection) Pop() any      { panic("nothing is ever popped") }
func (s *selection) Less(i, j int) bool {
	return older(s.views[i].Created.Time, s.views[i].Record, s.views[j]) > 0
}

func (s *selection) sorted() []*view {
	slices.SortFunc(s.views, func(a, b *view) int { return older(a.Created.Time, a.Record, b) })
	return s.views
}

var listColumns = []column{
	{title: "RECORD", keep: 20, cut: cutID},
	{title: "STATE"},
	{title: "REASON", keep: 8, cut: cutEnd, spare: true},
	{title: "AGE", right: true},
	{title: "NEXT"},
	{title: "TRY", right: true, spare: true},
	{title: "REF", keep: 6, cut: cutEnd, spare: true},
}

// printList prints records, one per line.
func (e *env) printList(list []*view, full bool) error {
	if e.json {
		out := json.NewEncoder(e.stdout)
		out.SetEscapeHTML(false)
		for _, v := range list {
			if err := out.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	now, width := e.now(), e.width
	rows := make([][]string, len(list))
	for i, v := range list {
		id := short(v.Record)
		if full {
			id, width = oneLine(string(v.Record)), 0
		}
		rows[i] = []string{
			id, v.state(), oneLine(string(v.Reason)), span(now.Sub(v.Created.Time)), v.next(now), fmt.Sprint(v.Attempt), oneLine(v.Ref),
		}
	}
	return writeTable(e.stdout, width, listColumns, rows)
}

// next returns what will end the state of a record by itself, and when.
func (v *view) next(now time.Time) string {
	at := func(t stamp, ahead, past string) string {
		if t.After(now) {
			return ahead + " " + span(t.Sub(now))
		}
		return past + " " + span(now.Sub(t.Time))
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
