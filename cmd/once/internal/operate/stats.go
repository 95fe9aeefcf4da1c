// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// Stats are the counts, in the form of --json.
type Stats struct {
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

// CountAll reads the store, and calls visit for each record.
func CountAll(ctx context.Context, e *Env, o Store, visit func(*driver.Record)) (*Stats, error) {
	all, meter := ReadAll(ctx, e, o, "reading the table")
	s := &Stats{Groups: []*group{}, groups: map[[2]string]*group{}}
	var failed error
	for r, err := range all {
		switch {
		case r.ID == "":
			failed = err
		case err != nil:
			s.Unreadable++
		default:
			s.add(&r, e.Now())
			visit(&r)
		}
	}
	if failed != nil {
		return nil, failed
	}
	read := meter.Amount()
	s.Items, s.ReadUnits, s.USD = read.Items, read.ReadUnits, read.ReadUnits*ReadUnitUSD
	if err := o.Alien(ctx); err != nil {
		return nil, err
	}
	if o.Scheduled() != nil {
		last, err := o.Scheduled().LastScan(ctx)
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

func (s *Stats) add(r *driver.Record, now time.Time) {
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

// ReadUnitUSD is the price of a read unit, on demand in us-east-1 since November 2024.
const ReadUnitUSD = 0.125 / 1e6

// ScanUnits returns the read units of a scan, which is eventually consistent.
func ScanUnits(bytes float64) float64 { return bytes / 8192 }
