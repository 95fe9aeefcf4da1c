// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

const (
	// listedAtMost is how many entries of each list of the index the console reads:
	// those that are due first. It bounds what a table with very many unknown
	// records costs, and how long the first screen takes.
	listedAtMost = 5000
	// listedFor is how long the console shows what it has read before it reads the
	// index again.
	listedFor = 2 * time.Second
	// rowsPerPage is how many entries a page of a list has.
	rowsPerPage = 20
)

// The lists of the console.
const (
	listUnknown   = "unknown"   // the outcome is unknown, given up or not
	listExhausted = "exhausted" // given up by reconciliation
	listResumable = "resumable"
)

// waiting is what the index shows at one time.
type waiting struct {
	at       time.Time
	rows     []row // the oldest first
	complete bool  // there are no more
	damaged  int   // entries that cannot be read
}

// row is an entry of the index, as the page gets it.
type row struct {
	Record    idempotent.RecordID `json:"record"`
	Operation string              `json:"operation"`
	KeyHash   string              `json:"key_hash"`
	State     string              `json:"state"`
	Exhausted bool                `json:"exhausted,omitempty"`
	Since     view.Time           `json:"since,omitzero"`
	Due       view.Time           `json:"due,omitzero"`
}

// in reports whether the row belongs to a list.
func (r *row) in(list string) bool {
	switch list {
	case listExhausted:
		return r.Exhausted
	case listResumable:
		return r.State == view.StateResumable
	}
	return r.State == driver.StateUnknown.String()
}

// site is the console of one store.
type site struct {
	*env
	ctx   context.Context // of the command; a change does not end with the connection of a browser
	store *opened
	audit *auditor // nil: the console is read-only

	counting sync.Mutex // held during a count of all records

	mu   sync.Mutex // held while the index is read
	last *waiting
}

func newSite(ctx context.Context, e *env, o *opened, a *auditor) *site {
	quiet := *e
	quiet.progress = false // a meter would write between the lines of the audit
	return &site{env: &quiet, ctx: ctx, store: o, audit: a}
}

// outdate makes the next request read the index.
func (s *site) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// look returns what the index shows.
func (s *site) look(ctx context.Context) (*waiting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.last != nil && now.Sub(s.last.at) < listedFor {
		return s.last, nil
	}
	next := &waiting{at: now, complete: true}
	for _, list := range []struct {
		exhausted bool
		entries   iter.Seq2[driver.Listed, error]
	}{{false, s.store.Due(ctx)}, {true, s.store.Exhausted(ctx)}} {
		if err := next.read(list.entries, list.exhausted); err != nil {
			return nil, err
		}
	}
	// A record that moves from one list to the other meanwhile is in both.
	slices.SortFunc(next.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Record, b.Record), b.Due.Compare(a.Due.Time))
	})
	next.rows = slices.CompactFunc(next.rows, func(a, b row) bool { return a.Record == b.Record })
	slices.SortFunc(next.rows, func(a, b row) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Record, b.Record))
	})
	s.last = next
	return next, nil
}

// read adds the entries of a list.
func (w *waiting) read(entries iter.Seq2[driver.Listed, error], exhausted bool) error {
	read := 0
	for e, err := range entries {
		switch {
		case e.ID == "":
			return err
		case err != nil:
			w.damaged++
		case read == listedAtMost:
			w.complete = false
			return nil
		default:
			read++
			r := driver.Record{State: e.State, Due: e.Due}
			w.rows = append(w.rows, row{
				Record: e.ID, Operation: e.ID.Operation(), KeyHash: e.ID.KeyHash(), State: view.StateOf(&r),
				Exhausted: exhausted, Since: view.Time{Time: e.Since}, Due: view.Time{Time: e.Due},
			})
		}
	}
	return nil
}

// listPage is a part of a list.
type listPage struct {
	At       view.Time `json:"at"`
	List     string    `json:"list"`
	Rows     []row     `json:"rows"`
	Offset   int       `json:"offset"`
	Total    int       `json:"total"`
	Complete bool      `json:"complete"` // false: the list has more than Total
	PerPage  int       `json:"per_page"`
}

// page returns the rows of a list from offset on, of all operations or one.
func (w *waiting) page(list, operation string, offset int) listPage {
	p := listPage{At: view.Time{Time: w.at}, List: list, Rows: []row{}, Offset: offset, Complete: w.complete, PerPage: rowsPerPage}
	for i := range w.rows {
		r := &w.rows[i]
		if !r.in(list) || operation != "" && r.Operation != operation {
			continue
		}
		if p.Total >= offset && len(p.Rows) < rowsPerPage {
			p.Rows = append(p.Rows, *r)
		}
		p.Total++
	}
	return p
}

// counts are the first screen.
type counts struct {
	At        view.Time    `json:"at"`
	Complete  bool         `json:"complete"` // false: there are more
	Damaged   int          `json:"unreadable,omitempty"`
	Unknown   int          `json:"unknown"`
	Exhausted int          `json:"exhausted"`
	Resumable int          `json:"resumable"`
	Due       int          `json:"due"` // now
	Oldest    view.Time    `json:"oldest_unknown,omitzero"`
	Groups    []*countedAs `json:"groups"`
	Ages      []ageCount   `json:"ages"` // of unknown records
}

// countedAs counts the entries of one operation in one state.
type countedAs struct {
	Operation string    `json:"operation"`
	State     string    `json:"state"`
	Records   int       `json:"records"`
	Exhausted int       `json:"exhausted"`
	Due       int       `json:"due"`
	Oldest    view.Time `json:"oldest,omitzero"`
}

// ageCount counts the unknown records whose outcome is unknown for less than Under,
// and not for less than the bound before it. The last one has no bound.
type ageCount struct {
	Under   string `json:"under,omitempty"`
	Records int    `json:"records"`
}

// ageBounds are the bounds of the histogram of ages.
var ageBounds = []struct {
	text  string
	under time.Duration
}{{"5m", 5 * time.Minute}, {"1h", time.Hour}, {"6h", 6 * time.Hour}, {"1d", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"", math.MaxInt64}}

// counts returns the first screen of the rows.
func (w *waiting) counts() *counts {
	c := &counts{At: view.Time{Time: w.at}, Complete: w.complete, Damaged: w.damaged, Groups: []*countedAs{}}
	for _, b := range ageBounds {
		c.Ages = append(c.Ages, ageCount{Under: b.text})
	}
	groups := map[[2]string]*countedAs{}
	for i := range w.rows {
		r := &w.rows[i]
		key := [2]string{r.Operation, r.State}
		g := groups[key]
		if g == nil {
			g = &countedAs{Operation: r.Operation, State: r.State, Oldest: r.Since}
			groups[key] = g
			c.Groups = append(c.Groups, g)
		}
		g.Records++
		if r.in(listExhausted) {
			g.Exhausted++
			c.Exhausted++
		} else if !r.Due.After(w.at) {
			g.Due++
			c.Due++
		}
		if r.in(listResumable) {
			c.Resumable++
		}
		if r.in(listUnknown) {
			if c.Unknown++; c.Unknown == 1 {
				c.Oldest = r.Since
			}
			age, bound := w.at.Sub(r.Since.Time), 0
			for age >= ageBounds[bound].under {
				bound++
			}
			c.Ages[bound].Records++
		}
	}
	slices.SortFunc(c.Groups, func(a, b *countedAs) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	return c
}
