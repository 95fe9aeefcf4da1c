// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/pathkey"
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

// Target selects one record by the parts of its key. Without them the argument
// is its id or a shortened id.
type Target struct {
	Scope, Key, Path string
	Global, Scan     bool
	Ref              string // of the record, in place of its name
}

const (
	// minHash is the number of characters of a hash that select a record. Lists
	// and logs show as many.
	minHash = 12
	// HashLength is the length of a hash: SHA-256 in base64.
	HashLength = 43
)

// OpenRecord opens the store and returns it with the selected record.
func (t *Target) OpenRecord(ctx context.Context, e *Env, name string) (Store, *driver.Record, error) {
	o, err := e.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := t.Find(ctx, e, o, name)
	if err != nil {
		o.Close()
		return nil, nil, err
	}
	return o, r, nil
}

// Find returns the selected record.
func (t *Target) Find(ctx context.Context, e *Env, o Store, name string) (*driver.Record, error) {
	if t.Ref != "" {
		return t.byRef(ctx, e, o)
	}
	id, err := t.id(ctx, e, o, name)
	if err != nil {
		return nil, err
	}
	r, err := o.Get(ctx, id)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil, cmp.Or(o.Alien(ctx), t.missing(o))
	}
	return r, err
}

// byRef returns the record with the reference.
func (t *Target) byRef(ctx context.Context, e *Env, o Store) (*driver.Record, error) {
	waiting := Read(ctx, o, Waiting(ctx, o), nil, func(*driver.Record) bool { return true })
	matches := func(r *driver.Record) bool { return r.Ref == t.Ref } // a record that cannot be read has no reference here
	found, err := t.only(ctx, e, o, "reference", waiting, matches, "have that reference; give one of these ids")
	switch {
	case found != nil || err != nil:
		return found, err
	case t.Scan:
		return nil, fmt.Errorf("%w: no record in %s has that reference; once list --ref also finds a part of one", idempotent.ErrNoRecord, o.Name())
	}
	return nil, fmt.Errorf("%w: no record that waits for reconciliation has that reference; search all of %s with --scan: a killed run may not wait yet", idempotent.ErrNoRecord, o.Name())
}

// missing returns the error for a missing record, with possible reasons.
func (t *Target) missing(o Store) error {
	hint := "it was never claimed, or has expired and is gone, or its id is mistyped"
	if t.Key != "" {
		hint = "check that each part is as in the handler: operation, scope and key make the id together, and --path if the key of an HTTP request belongs to a path; " +
			"UUIDs are in lower case with the UUID profile"
		if strings.HasPrefix(t.Key, `"`) {
			hint = "the key has quotes here; a handler gets it without the quotes of the header"
		}
	}
	return fmt.Errorf("%w in %s (%s)", idempotent.ErrNoRecord, o.Name(), hint)
}

// id returns the id of the selected record.
func (t *Target) id(ctx context.Context, e *Env, o Store, name string) (idempotent.RecordID, error) {
	if t.Key != "" || t.Scope != "" || t.Global || t.Path != "" {
		return t.fromKey(name)
	}
	i := strings.LastIndexByte(name, '#')
	if i < 0 {
		return "", Usage("invalid record id %q; if it is an operation, add --key and --scope (or --global)", name)
	}
	operation, hash := name[:i], name[i+1:]
	whole := operation != "" && len(hash) == HashLength
	if !whole && len(hash) >= minHash && len(hash) <= HashLength {
		return t.search(ctx, e, o, operation, hash)
	}
	id, err := idempotent.ParseRecordID(name)
	if err != nil {
		return "", Usage("invalid record id %q: want OPERATION#HASH with %d characters after # (letters, digits, - and _), or # and at least the first %d of them", name, HashLength, minHash)
	}
	return id, nil
}

func (t *Target) fromKey(operation string) (idempotent.RecordID, error) {
	scope := t.Scope
	switch {
	case t.Key == "":
		return "", Usage("--scope, --global and --path need the client's key: add --key")
	case t.Global && scope != "":
		return "", Usage("--global means no scope, but --scope is set")
	case t.Global:
		scope = idempotent.Global
	case scope == "":
		return "", Usage("--key needs the scope: add --scope, or --global if the operation has none")
	}
	key := t.Key
	if t.Path != "" {
		key = pathkey.ID(t.Path, key)
	}
	id, err := idempotent.ParseRecordID(string(idempotent.Key{Operation: operation, Scope: scope, ID: key}.RecordID()))
	if err != nil {
		return "", Usage("%v", err)
	}
	return id, nil
}

// search returns the id of the only record that matches a shortened id. The operation may
// be missing.
func (t *Target) search(ctx context.Context, e *Env, o Store, operation, hash string) (idempotent.RecordID, error) {
	waiting := func(yield func(driver.Record, error) bool) {
		Waiting(ctx, o)(func(e driver.Listed, err error) bool { return yield(driver.Record{ID: e.ID}, err) })
	}
	matches := func(r *driver.Record) bool {
		of := r.ID.Operation()
		return (operation == "" || operation == of) && strings.HasPrefix(string(r.ID)[len(of):], "#"+hash)
	}
	found, err := t.only(ctx, e, o, "record", waiting, matches, "match; give one of these ids in full")
	switch {
	case err != nil:
		return "", err
	case found != nil:
		return found.ID, nil
	case t.Scan:
		return "", fmt.Errorf("%w: no record in %s has an id like %s", idempotent.ErrNoRecord, o.Name(), operation+"#"+hash)
	}
	return "", fmt.Errorf("%w: no record that waits for reconciliation has an id like %s; search all of %s with --scan, or use the full id or the key", idempotent.ErrNoRecord, operation+"#"+hash, o.Name())
}

// only returns the only record that matches, or nil, among those that wait or with Scan
// in the whole store.
func (t *Target) only(
	ctx context.Context, e *Env, o Store, what string, list iter.Seq2[driver.Record, error], matches func(*driver.Record) bool, both string,
) (found *driver.Record, err error) {
	if t.Scan {
		list, _ = ReadAll(ctx, e, o, "looking for the "+what)
	}
	for r, err := range list {
		switch {
		case r.ID == "":
			return nil, err
		case !matches(&r):
		case found != nil:
			return nil, Usage("%s and %s both %s", found.ID, r.ID, both)
		default:
			found = &r
		}
	}
	if found == nil {
		err = o.Alien(ctx)
	}
	return found, err
}

// AddResults reads the stored results of the record and its steps.
func AddResults(ctx context.Context, e *Env, o Store, r *driver.Record, v *view.Record) error {
	g := Guard(e, o)
	if err := v.AddStepResults(ctx, g, r); err != nil {
		return err
	}
	if r.State != driver.StateCompleted || v.Sealed {
		return nil
	}
	var err error
	v.Outcome, err = view.OutcomeOf(ctx, g, r)
	return err
}
