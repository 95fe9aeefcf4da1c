package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// target selects one record by the parts of its key. Without them the argument
// is its id or a shortened id.
type target struct {
	scope, key   string
	global, scan bool
}

// recordHelp describes the argument RECORD.
const recordHelp = `RECORD is a record id; or a shortened id from a list or a log, at least # and
12 characters; or an operation, with --key and --scope or --global.`

// oneRecord checks the arguments of a command about one record.
func oneRecord(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one RECORD, got %d arguments; quote a record that contains spaces", len(args))
	}
	return nil
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.scope, "scope", "", "with an operation: the `SCOPE` of the key, a\ntenant or principal")
	f.BoolVar(&t.global, "global", false, "with an operation: its scope is\nidempotent.Global (lambdahttp.SingleTenant)")
	f.StringVar(&t.key, "key", "", "with an operation: the client's idempotency\n`KEY`, without quotes")
	f.BoolVar(&t.scan, "scan", false, "search the whole table for a shortened id, not\nonly the records that wait for reconciliation")
}

const (
	// minHash is the number of characters of a hash that select a record. Lists
	// and logs show as many.
	minHash = 12
	// hashLength is the length of a hash: SHA-256 in base64.
	hashLength = 43
)

// find returns the selected record.
func (t *target) find(ctx context.Context, e *env, o *opened, name string) (*driver.Record, error) {
	id, err := t.id(ctx, e, o, name)
	if err != nil {
		return nil, err
	}
	r, err := o.Get(ctx, id)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil, t.missing(o)
	}
	return r, err
}

// missing returns the error for a missing record, with possible reasons.
func (t *target) missing(o *opened) error {
	hint := "it was never claimed, or has expired and is gone"
	if t.key != "" {
		hint = "check that each part is as in the handler: operation, scope and key make the id together"
		if strings.HasPrefix(t.key, `"`) {
			hint = "the key has quotes here; a handler gets it without the quotes of the header"
		}
	}
	return fmt.Errorf("%w in %s (%s)", idempotent.ErrNoRecord, o.name, hint)
}

// id returns the id of the selected record.
func (t *target) id(ctx context.Context, e *env, o *opened, name string) (idempotent.RecordID, error) {
	if t.key != "" || t.scope != "" || t.global {
		return t.fromKey(name)
	}
	operation, hash, found := cutLast(name, '#')
	whole := operation != "" && !strings.HasSuffix(operation, cutMark) && len(hash) == hashLength
	switch {
	case !found:
		return "", usage("invalid record id %q; if it is an operation, add --key and --scope (or --global)", name)
	case !whole && len(hash) >= minHash && len(hash) <= hashLength:
		return t.search(ctx, e, o, operation, hash)
	}
	id, err := idempotent.ParseRecordID(name)
	if err != nil {
		return "", usage("invalid record id %q: want OPERATION#HASH with %d characters after #, or # and at least the first %d of them", name, hashLength, minHash)
	}
	return id, nil
}

func (t *target) fromKey(operation string) (idempotent.RecordID, error) {
	scope := t.scope
	switch {
	case t.key == "":
		return "", usage("--scope and --global need the client's key: add --key")
	case t.global && scope != "":
		return "", usage("--global means no scope, but --scope is set")
	case t.global:
		scope = idempotent.Global
	case scope == "":
		return "", usage("--key needs the scope: add --scope, or --global if the operation has none")
	}
	id, err := idempotent.ParseRecordID(string(idempotent.Key{Operation: operation, Scope: scope, ID: t.key}.RecordID()))
	if err != nil {
		return "", usage("%v", err)
	}
	return id, nil
}

// search returns the only record that matches a shortened id. The operation may be
// missing, or shortened as in a list.
func (t *target) search(ctx context.Context, e *env, o *opened, operation, hash string) (idempotent.RecordID, error) {
	list := o.waiting(ctx)
	if t.scan {
		m := e.meter("looking for the record", o.items(ctx))
		defer m.end()
		list = o.all(ctx, m.read)
	}
	beginning, cut := strings.CutSuffix(operation, cutMark)
	var found idempotent.RecordID
	for r, err := range list {
		of, itsHash, _ := cutLast(string(r.ID), '#')
		switch {
		case err != nil && r.ID == "":
			return "", err
		case !strings.HasPrefix(itsHash, hash),
			operation != "" && of != operation && !(cut && strings.HasPrefix(of, beginning)):
		case found != "" && found != r.ID:
			return "", usage("%s and %s both match; give one of these ids in full", found, r.ID)
		default:
			found = r.ID
		}
	}
	switch {
	case found != "":
		return found, nil
	case t.scan:
		return "", fmt.Errorf("%w: no record in %s has an id like %s", idempotent.ErrNoRecord, o.name, operation+"#"+hash)
	}
	return "", fmt.Errorf("%w: no record that waits for reconciliation has an id like %s; search all of %s with --scan, or use the full id or the key", idempotent.ErrNoRecord, operation+"#"+hash, o.name)
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
