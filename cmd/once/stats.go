package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// statsCmd is the command once stats.
type statsCmd struct{ *env }

func statsCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count records and their sizes",
		Long: `It reads the whole table, including large results, and prints what the read
cost. To count only unknown or due records, use once list with --state unknown
or --due, which costs 64 queries.`,
		Example: `  once stats
  once stats --json`,
		Args: cobra.NoArgs,
		RunE: e.command((&statsCmd{e}).run),
	}
}

// readUnitUSD is the price of a read unit, on demand in us-east-1 since
// November 2024.
const readUnitUSD = 0.125 / 1e6

// stats are the counts, in the form of --json.
type stats struct {
	Records    int      `json:"records"`
	Unreadable int      `json:"unreadable,omitempty"`
	Bytes      int      `json:"result_bytes"`
	Groups     []*group `json:"groups"`

	Unknown       int                 `json:"unknown"`
	OldestUnknown idempotent.RecordID `json:"oldest_unknown,omitempty"`
	OldestSince   stamp               `json:"oldest_unknown_created,omitzero"`
	Resumable     int                 `json:"resumable"` // released under Resume, and still due
	Due           int                 `json:"due"`
	Exhausted     int                 `json:"exhausted"`
	Ended         int                 `json:"lease_ended"` // in progress, but the lease has ended
	Expired       int                 `json:"expired"`

	Items     int     `json:"items_read,omitempty"` // including the chunks of large results
	ReadUnits float64 `json:"read_units,omitempty"`
	USD       float64 `json:"read_usd,omitempty"`
}

// group counts the records of one operation in one state.
type group struct {
	Operation string `json:"operation"`
	State     string `json:"state"`
	Records   int    `json:"records"`
	Bytes     int    `json:"result_bytes"`
	Oldest    stamp  `json:"oldest_created"`
}

func (c *statsCmd) run(ctx context.Context, _ []string) error {
	o, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	m := c.meter("reading the table", o.items(ctx))
	s := &stats{Groups: []*group{}}
	groups := map[[2]string]*group{}
	for r, err := range o.all(ctx, m.read) {
		switch {
		case err != nil && r.ID == "":
			m.end()
			return err
		case err != nil:
			s.Unreadable++
		default:
			s.add(groups, &r, c.now())
		}
	}
	s.cost(m.end())
	slices.SortFunc(s.Groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	if c.json {
		err = c.document(s)
	} else {
		err = c.print(s)
	}
	if err == nil && s.Unreadable > 0 {
		err = fmt.Errorf("%s could not be read; once list shows which", count(s.Unreadable, "record"))
	}
	return err
}

func (s *stats) add(groups map[[2]string]*group, r *driver.Record, now time.Time) {
	key := [2]string{r.ID.Operation(), stateOf(r)}
	g := groups[key]
	if g == nil {
		g = &group{Operation: key[0], State: key[1], Oldest: stamp{r.Created}}
		groups[key] = g
		s.Groups = append(s.Groups, g)
	}
	n := resultBytes(r)
	g.Records, g.Bytes = g.Records+1, g.Bytes+n
	s.Records, s.Bytes = s.Records+1, s.Bytes+n
	if r.Created.Before(g.Oldest.Time) {
		g.Oldest = stamp{r.Created}
	}
	if r.State == driver.StateUnknown {
		s.Unknown++
		if s.OldestUnknown == "" || r.Created.Before(s.OldestSince.Time) {
			s.OldestUnknown, s.OldestSince = r.ID, stamp{r.Created}
		}
	}
	for _, c := range []struct {
		count *int
		is    bool
	}{
		{&s.Resumable, resumable(r)},
		{&s.Exhausted, r.Exhausted},
		{&s.Due, !r.Exhausted && !r.Due.IsZero() && !r.Due.After(now)},
		{&s.Ended, r.State == driver.StateInProgress && !now.Before(r.LeaseEnd)},
		{&s.Expired, !r.Expires.IsZero() && !now.Before(r.Expires)},
	} {
		if c.is {
			*c.count++
		}
	}
}

func (s *stats) cost(read dynamostore.ScanProgress) {
	s.Items, s.ReadUnits, s.USD = read.Items, read.ReadUnits, read.ReadUnits*readUnitUSD
}

func (c *statsCmd) print(s *stats) error {
	now := c.now()
	if len(s.Groups) > 0 {
		t := &table{w: c.stdout, width: c.width, titles: []string{"OPERATION", "STATE", "RECORDS", "OLDEST", "RESULTS"}}
		for _, g := range s.Groups {
			if err := t.add(oneLine(g.Operation), g.State, grouped(g.Records), span(now.Sub(g.Oldest.Time)), size(g.Bytes)); err != nil {
				return err
			}
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
	if s.ReadUnits > 0 {
		facts = append(facts, [2]string{"this read", fmt.Sprintf("%s, %.1f read units, about $%.6f (on demand, us-east-1)", count(s.Items, "item"), s.ReadUnits, s.USD)})
	}
	return writeFacts(c.stdout, facts)
}
