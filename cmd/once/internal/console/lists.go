// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/cmd/once/internal/operate"
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

// site is the console of one store.
type site struct {
	*operate.Env
	ctx   context.Context // of the command; a change does not end with the connection of a browser
	store operate.Store
	audit *operate.Auditor // nil: the console is read-only
	links links

	counting sync.Mutex // held while the whole store is read

	mu    sync.Mutex // held while the index is read
	last  *index
	scan  *pass // the last that has ended; nil: none
	found []row // by the last search
}

func newSite(ctx context.Context, e *operate.Env, o operate.Store, a *operate.Auditor, l links) *site {
	quiet := *e
	quiet.Progress = false // a meter would write between the lines of the audit
	return &site{Env: &quiet, ctx: ctx, store: o, audit: a, links: l}
}

// rowOf returns the row of a record that was read.
func (s *site) rowOf(r *driver.Record) row {
	v := view.Of(r)
	v.State, v.Since = v.StateName(), view.Time{Time: r.StateSince()}
	return row{viewed: *v, Version: versionOf(r), Links: s.links.of(v)}
}

// versionOf names the state of a record that a page shows.
func versionOf(r *driver.Record) string { return hex.EncodeToString(r.Version[:]) }

// outdate makes the next request read the index.
func (s *site) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// look returns what the index shows.
func (s *site) look(ctx context.Context) (*index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if s.last != nil && now.Sub(s.last.at) < listedFor {
		return s.last, nil
	}
	next := &index{at: now, complete: true, scans: s.store.Scheduled() != nil}
	for _, list := range []struct {
		exhausted bool
		entries   iter.Seq2[driver.Listed, error]
	}{{false, s.store.Due(ctx, time.Time{})}, {true, s.store.Exhausted(ctx)}} {
		if err := next.read(list.entries, list.exhausted); err != nil {
			return nil, err
		}
	}
	if next.scans {
		var err error
		if next.last, err = s.store.Scheduled().LastScan(ctx); err != nil {
			return nil, err
		}
	}
	if s.scan != nil {
		next.scanned, next.complete = s.scan.at, next.complete && s.scan.ended == len(s.scan.rows)
		next.rows = append(next.rows, s.scan.rows...)
	}
	// A record that moves from one list to the other meanwhile is in both. The index
	// knows more than an earlier scan.
	slices.SortFunc(next.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.Record, b.Record), b.Due.Compare(a.Due.Time))
	})
	next.rows = slices.CompactFunc(next.rows, func(a, b row) bool { return a.Record == b.Record })
	slices.SortFunc(next.rows, older)
	s.last = next
	return next, nil
}

// pass is what a read of the whole store found.
type pass struct {
	at    time.Time
	rows  []row // in progress, but the lease had ended
	ended int   // how many there were: rows has the first ones
}

// wholeStore reads the whole store as once stats does, and keeps the ended leases for
// the lists. It calls visit for each record.
func (s *site) wholeStore(ctx context.Context, visit func(*driver.Record)) (*operate.Stats, error) {
	if !s.counting.TryLock() {
		return nil, operate.Refuse("the console is reading the whole store already")
	}
	defer s.counting.Unlock()
	p := &pass{at: s.Now()}
	counted, err := operate.CountAll(ctx, s.Env, s.store, func(r *driver.Record) {
		if r.Abandoned(p.at) {
			if p.ended++; p.ended <= listedAtMost {
				p.rows = append(p.rows, entryOf(r.Listed(), false))
			}
		}
		visit(r)
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scan, s.last = p, nil
	return counted, nil
}

// listQuery selects a part of a list.
type listQuery struct {
	list, operation string
	from, to        time.Time // when the record entered its state; zero: any time
	newest          bool      // first
	offset          int
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

// page returns a part of a list, and reads its records.
func (s *site) page(ctx context.Context, q listQuery) (listPage, error) {
	w, err := s.look(ctx)
	if err != nil {
		return listPage{}, err
	}
	p := listPage{At: view.Time{Time: w.at}, List: q.list, Rows: []row{}, Offset: q.offset, Complete: w.complete, PerPage: rowsPerPage}
	rows := w.rows
	switch q.list {
	case listFound:
		s.mu.Lock()
		rows, p.Complete = s.found, true
		s.mu.Unlock()
	case listEnded:
		p.Complete = w.complete && (!w.scans || !w.scanned.IsZero())
	}
	var selected []row
	for _, r := range rows {
		if (q.list == listFound || r.in(q.list, w.at)) && (q.operation == "" || r.Operation == q.operation) &&
			!r.Since.Before(q.from) && (q.to.IsZero() || !r.Since.After(q.to)) {
			selected = append(selected, r)
		}
	}
	if q.newest {
		slices.Reverse(selected)
	}
	p.Total = len(selected)
	from := min(q.offset, p.Total)
	p.Rows = append(p.Rows, selected[from:min(from+rowsPerPage, p.Total)]...)
	s.fill(ctx, p.Rows)
	return p, nil
}

// fill reads the records of rows. A row whose record cannot be read has the problem.
func (s *site) fill(ctx context.Context, rows []row) {
	operate.Parallel(slices.All(rows), operate.ReadParallel, func(i int, was row) {
		r, err := s.store.Get(ctx, was.Record)
		gone := errors.Is(err, idempotent.ErrNoRecord)
		switch {
		case gone:
			rows[i] = row{viewed: was.viewed, Problem: "the record is gone"}
		case err != nil:
			rows[i] = row{viewed: was.viewed, Problem: err.Error()}
		default:
			rows[i] = s.rowOf(r)
		}
		if gone || err == nil && !r.Abandoned(s.Now()) {
			s.settled(was.Record)
		}
	})
}

// settled removes a record from the ended leases of the last scan.
func (s *site) settled(id idempotent.RecordID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scan == nil {
		return
	}
	is := func(r row) bool { return r.Record == id }
	if slices.ContainsFunc(s.scan.rows, is) {
		s.scan.rows, s.scan.ended = slices.DeleteFunc(s.scan.rows, is), s.scan.ended-1
		s.last = nil
	}
}

// search is what an operator knows of a record: its reference, or a part of it, or the
// reason of its state.
type search struct {
	Ref    string        `json:"ref"`
	Reason driver.Reason `json:"reason"`
	Whole  bool          `json:"whole"` // search the whole store, not only what waits
}

// searched is the answer to a search. Its records are the list of what was found.
type searched struct {
	Found    int                 `json:"found"`
	Exact    bool                `json:"exact"`                // the records have this reference, not only a part of it
	Complete bool                `json:"complete"`             // false: more records wait than were searched, or were found than are listed
	Record   idempotent.RecordID `json:"record,omitempty"`     // the only one
	Damaged  int                 `json:"unreadable,omitempty"` // records that cannot be read
}

// search finds records and makes them the list of what was found. Records with exactly the
// reference hide those that only contain it.
func (s *site) search(ctx context.Context, in search) (*searched, error) {
	out := &searched{Complete: true}
	var exact, part []row
	match := func(r *driver.Record) {
		list := &part
		switch {
		case in.Reason != "" && r.Reason != in.Reason, !strings.Contains(r.Ref, in.Ref):
			return
		case in.Ref != "" && r.Ref == in.Ref:
			list = &exact
		}
		if len(*list) == listedAtMost {
			out.Complete = false
			return
		}
		*list = append(*list, s.rowOf(r))
	}
	if in.Whole {
		counted, err := s.wholeStore(ctx, match)
		if err != nil {
			return nil, err
		}
		out.Damaged = counted.Unreadable
	} else {
		w, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		out.Complete = w.complete
		records, errs := make([]*driver.Record, len(w.rows)), make([]error, len(w.rows))
		operate.Parallel(slices.All(w.rows), operate.ReadParallel, func(i int, r row) { records[i], errs[i] = s.store.Get(ctx, r.Record) })
		for i, err := range errs {
			switch {
			case err == nil:
				match(records[i])
			case !errors.Is(err, idempotent.ErrNoRecord):
				out.Damaged++
			}
		}
	}
	found := part
	if out.Exact = len(exact) > 0; out.Exact {
		found = exact
	}
	slices.SortFunc(found, older)
	if out.Found = len(found); out.Found == 1 {
		out.Record = found[0].Record
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = found
	return out, nil
}

// The lists of the console.
const (
	listUnknown   = "unknown"   // the outcome is unknown, given up or not
	listExhausted = "exhausted" // given up by reconciliation
	listResumable = "resumable"
	listDue       = "due"   // reconciliation would process them now
	listEnded     = "ended" // in progress, but the lease has ended
	listFound     = "found" // by the last search, in any state
)

var lists = []string{listUnknown, listExhausted, listResumable, listDue, listEnded, listFound}

// index is what the index shows at one time, with the ended leases of the last
// scan.
type index struct {
	at       time.Time
	rows     []row // the oldest first
	complete bool  // there are no more
	damaged  int   // entries that cannot be read
	scanned  time.Time
	last     driver.Scanned // the last scan of a reconciler
	scans    bool           // reconcilers scan this store
}

// row is an entry of the index, as the page gets it.
type row struct {
	viewed
	Version string   `json:"version,omitempty"` // a change names it
	Links   []anchor `json:"links,omitempty"`
	Problem string   `json:"problem,omitempty"` // why the record was not read
}

// viewed is the record of a row. Before it was read, it has what the index shows. Its
// state is resumable if it is.
type viewed = view.Record

// entryOf returns the row of an entry of the index.
func entryOf(e driver.Listed, exhausted bool) row {
	r := driver.Record{State: e.State, Due: e.Due}
	return row{viewed: viewed{
		Record: e.ID, Operation: e.ID.Operation(), KeyHash: e.ID.KeyHash(), State: view.StateOf(&r), Exhausted: exhausted,
		Since: view.Time{Time: cmp.Or(e.Since, e.LeaseEnd)}, Due: view.Time{Time: e.Due}, LeaseEnd: view.Time{Time: e.LeaseEnd},
	}}
}

// in reports whether the row belongs to a list at the time now.
func (r *row) in(list string, now time.Time) bool {
	switch list {
	case listExhausted:
		return r.Exhausted
	case listResumable:
		return r.State == view.StateResumable
	case listDue:
		return !r.Exhausted && !r.Due.After(now)
	case listEnded:
		return r.State == driver.StateInProgress.String() && !r.LeaseEnd.After(now)
	}
	return r.State == driver.StateUnknown.String()
}

// older orders rows from the oldest to the newest.
func older(a, b row) int {
	return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Record, b.Record))
}

// read adds the entries of a list.
func (w *index) read(entries iter.Seq2[driver.Listed, error], exhausted bool) error {
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
			w.rows = append(w.rows, entryOf(e, exhausted))
		}
	}
	return nil
}

// counts are the first screen.
type counts struct {
	At        view.Time    `json:"at"`
	Complete  bool         `json:"complete"` // false: there are more
	Damaged   int          `json:"unreadable,omitempty"`
	Unknown   int          `json:"unknown"`
	Exhausted int          `json:"exhausted"`
	Resumable int          `json:"resumable"`
	Due       int          `json:"due"`         // now
	Ended     int          `json:"lease_ended"` // in progress, but the lease has ended
	Oldest    view.Time    `json:"oldest_unknown,omitzero"`
	Groups    []*countedAs `json:"groups"`
	Ages      []ageCount   `json:"ages"`    // of unknown records
	Hours     [24]int      `json:"hours"`   // unknown records by the hour before At in which they became unknown; the last hour is the last one
	Earlier   int          `json:"earlier"` // unknown for longer

	Scans     bool      `json:"scans"`               // only a read of the whole store finds all ended leases
	Scanned   view.Time `json:"scanned_at,omitzero"` // by this console
	ScanBegan view.Time `json:"scan_began,omitzero"` // the last scan of a reconciler
	ScanEnded view.Time `json:"scan_ended,omitzero"`
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
func (w *index) counts() *counts {
	c := &counts{
		At: view.Time{Time: w.at}, Complete: w.complete, Damaged: w.damaged, Groups: []*countedAs{},
		Scans: w.scans, Scanned: view.Time{Time: w.scanned}, ScanBegan: view.Time{Time: w.last.Began}, ScanEnded: view.Time{Time: w.last.Ended},
	}
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
		for _, n := range []struct {
			list          string
			group, screen *int
		}{
			{listExhausted, &g.Exhausted, &c.Exhausted}, {listDue, &g.Due, &c.Due}, {listResumable, nil, &c.Resumable}, {listEnded, nil, &c.Ended},
		} {
			if !r.in(n.list, w.at) {
				continue
			}
			*n.screen++
			if n.group != nil {
				*n.group++
			}
		}
		if r.in(listUnknown, w.at) {
			if c.Unknown++; c.Unknown == 1 {
				c.Oldest = r.Since
			}
			age, bound := w.at.Sub(r.Since.Time), 0
			for age >= ageBounds[bound].under {
				bound++
			}
			c.Ages[bound].Records++
			if hours := int(max(age, 0) / time.Hour); hours < len(c.Hours) {
				c.Hours[len(c.Hours)-1-hours]++
			} else {
				c.Earlier++
			}
		}
	}
	slices.SortFunc(c.Groups, func(a, b *countedAs) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.State, b.State))
	})
	return c
}

// link is a template for the address of a record elsewhere, such as at the provider.
type link struct{ name, template string }

type links []link

// anchor is a link of one record.
type anchor struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// placeholders are the values of a record that a template can contain, by their names
// in braces.
var placeholders = map[string]func(*view.Record) string{
	"ref":             func(v *view.Record) string { return v.Ref },
	"record":          func(v *view.Record) string { return string(v.Record) },
	"operation":       func(v *view.Record) string { return v.Operation },
	"key_hash":        func(v *view.Record) string { return v.KeyHash },
	"downstream_key":  func(v *view.Record) string { return v.DownstreamKey },
	"downstream_uuid": func(v *view.Record) string { return v.DownstreamUUID },
	"request_id":      func(v *view.Record) string { return v.RequestID },
	"trace_parent":    func(v *view.Record) string { return v.TraceParent },
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// ParseLinks parses the texts of --link.
func ParseLinks(texts []string) (l links, err error) {
	for _, text := range texts {
		name, template, found := strings.Cut(text, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, operate.Usage("invalid --link %q: want NAME=URL, such as provider=https://dashboard.example/search?q={ref}", text)
		}
		if slices.ContainsFunc(l, func(other link) bool { return other.name == name }) {
			return nil, operate.Usage("two --link have the name %q", name)
		}
		for _, p := range placeholder.FindAllString(template, -1) {
			if placeholders[strings.Trim(p, "{}")] == nil {
				return nil, operate.Usage("invalid --link %s: unknown placeholder %s: want one of {%s}", name, p, strings.Join(slices.Sorted(maps.Keys(placeholders)), "}, {"))
			}
		}
		if err := checkTemplate(template); err != nil {
			return nil, operate.Usage("invalid --link %s: %v", name, err)
		}
		l = append(l, link{name, template})
	}
	return l, nil
}

// checkTemplate returns an error unless each address that the template can become is of
// the same host.
func checkTemplate(template string) error {
	plain := placeholder.ReplaceAllString(template, "x")
	u, err := url.Parse(plain)
	switch {
	case strings.ContainsAny(plain, "{}"):
		return operate.Usage("a brace has no partner")
	case err != nil:
		return err
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.User != nil:
		return operate.Usage("want an address that begins with https:// or http:// and a host")
	case !strings.HasPrefix(strings.ToLower(template), strings.ToLower(u.Scheme+"://"+u.Host)):
		return operate.Usage("a placeholder can stand only after the host")
	}
	return nil
}

// of returns the links of a record: those whose values it all has.
func (l links) of(v *view.Record) (list []anchor) {
	for _, one := range l {
		complete := true
		address := placeholder.ReplaceAllStringFunc(one.template, func(p string) string {
			value := placeholders[strings.Trim(p, "{}")](v)
			complete = complete && value != ""
			return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") // in a path, too
		})
		if complete {
			list = append(list, anchor{one.name, address})
		}
	}
	return list
}
