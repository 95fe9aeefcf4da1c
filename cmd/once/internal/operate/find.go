// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/pathkey"
	"github.com/once-lambda/once/internal/view"
)

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
	hint := "it was never claimed, or has expired and is gone"
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
		return "", Usage("invalid record id %q: want OPERATION#HASH with %d characters after #, or # and at least the first %d of them", name, HashLength, minHash)
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
