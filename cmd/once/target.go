package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// target names one record: by its id, by the beginning of it, or by the parts of
// its key.
type target struct {
	Record string `arg:"" help:"A record's id; or what lists and logs show of it, at least # and 12 characters; or an operation, with --key and --scope or --global."`
	Scope  string `help:"With an operation: for whom, the tenant or principal."`
	Global bool   `help:"With an operation: its scope is idempotent.Global (lambdahttp.SingleTenant)."`
	Key    string `help:"With an operation: the client's idempotency key, without quotes."`
	Scan   bool   `help:"Look for the beginning of an id in the whole table, not only among the records that wait for reconciliation."`
}

const (
	// minHash is how much of a hash names a record: what lists and logs show.
	minHash = 12
	// hashLength is how long a hash is: SHA-256 in base64.
	hashLength = 43
)

// find returns the record that is meant.
func (t *target) find(ctx context.Context, e *env, o *opened) (*driver.Record, error) {
	id, err := t.id(ctx, e, o)
	if err != nil {
		return nil, err
	}
	r, err := o.Get(ctx, id)
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil, t.missing(o)
	}
	return r, err
}

// missing says that there is no such record, and what it may be due to.
func (t *target) missing(o *opened) error {
	hint := "it was never claimed, or has expired and is gone"
	if t.Key != "" {
		hint = "is each part as the handler has it? Operation, scope and key make the id together"
		if strings.HasPrefix(t.Key, `"`) {
			hint = "the key has quotes here; a handler sees it without those of the header"
		}
	}
	return fmt.Errorf("%w in %s (%s)", idempotent.ErrNoRecord, o.name, hint)
}

// id returns the id of the record that is meant.
func (t *target) id(ctx context.Context, e *env, o *opened) (idempotent.RecordID, error) {
	if t.Key != "" || t.Scope != "" || t.Global {
		return t.fromKey()
	}
	operation, hash, found := cutLast(t.Record, '#')
	whole := operation != "" && !strings.HasSuffix(operation, cutMark) && len(hash) == hashLength
	switch {
	case !found:
		return "", usage("%q is no record id; if it is an operation, say --key and --scope (or --global) too", t.Record)
	case !whole && len(hash) >= minHash && len(hash) <= hashLength:
		return t.search(ctx, e, o, operation, hash)
	}
	id, err := idempotent.ParseRecordID(t.Record)
	if err != nil {
		return "", usage("%q names no record: it wants an operation, # and %d characters, or # and the first %d or more of them", t.Record, hashLength, minHash)
	}
	return id, nil
}

func (t *target) fromKey() (idempotent.RecordID, error) {
	scope := t.Scope
	switch {
	case t.Key == "":
		return "", usage("--scope and --global want the client's key beside them: --key")
	case t.Global && scope != "":
		return "", usage("--global says that there is no scope, and --scope names one")
	case t.Global:
		scope = idempotent.Global
	case scope == "":
		return "", usage("--key wants the scope beside it: --scope, or --global where the operation has none")
	}
	id, err := idempotent.ParseRecordID(string(idempotent.Key{Operation: t.Record, Scope: scope, ID: t.Key}.RecordID()))
	if err != nil {
		return "", usage("%v", err)
	}
	return id, nil
}

// search returns the one record that a shortened id means. Its operation may be
// missing, or cut as in a list.
func (t *target) search(ctx context.Context, e *env, o *opened, operation, hash string) (idempotent.RecordID, error) {
	list := o.waiting(ctx)
	if t.Scan {
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
			return "", usage("both %s and %s are meant by it; name one of them in full", found, r.ID)
		default:
			found = r.ID
		}
	}
	switch {
	case found != "":
		return found, nil
	case t.Scan:
		return "", fmt.Errorf("%w: none in %s has an id like %s", idempotent.ErrNoRecord, o.name, t.Record)
	}
	return "", fmt.Errorf("%w: none that waits for reconciliation has an id like %s; --scan looks at all of %s, and the whole id or the key need no looking", idempotent.ErrNoRecord, t.Record, o.name)
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
