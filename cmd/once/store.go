package main

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// records is the interface of a store that the commands need.
type records interface {
	driver.Store
	driver.DueLister
	// Delete removes a completed or retryable record of that version.
	Delete(ctx context.Context, id idempotent.RecordID, was driver.Version) (current *driver.Record, err error)
}

// opened is an open store.
type opened struct {
	records
	name string // for output and the audit
	// all lists every record. For a table it calls progress after each page.
	all   func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error]
	items func(ctx context.Context) int    // approximate number of items to read; 0: unknown
	who   func(ctx context.Context) string // the caller's identity in the store
	check func(ctx context.Context) error  // whether it can be used as a store
	// purgeChunks removes, or counts, chunks of large results that are past their
	// time and that no record refers to.
	purgeChunks func(ctx context.Context, before time.Time, operations []string, countOnly bool) (int, error)
	close       func() error
}

// choose returns the selected table or file: from the flags, or else from the
// environment.
func (f storeFlags) choose(getenv func(string) string) (table, file string, err error) {
	table, file = f.Table, f.File
	if table == "" && file == "" {
		table, file = getenv("ONCE_TABLE"), getenv("ONCE_FILE")
	}
	switch {
	case table != "" && file != "":
		return "", "", usage("both a table (%s) and a file (%s) are named; name one store", table, file)
	case table == "" && file == "":
		return "", "", usage("no store is named; use --table NAME or --file PATH, or set ONCE_TABLE or ONCE_FILE")
	case file != "" && cmp.Or(f.Region, f.Profile, f.Endpoint) != "":
		return "", "", usage("--region, --profile and --endpoint are for a table, and %s is a file", file)
	}
	return table, file, nil
}

// open opens the selected store, which has to exist.
func (e *env) open(ctx context.Context) (*opened, error) { return e.openStore(ctx, mustExist) }

// presence is whether the store has to exist.
type presence bool

const (
	mustExist presence = false
	mayCreate presence = true
)

func (e *env) openStore(ctx context.Context, p presence) (*opened, error) {
	table, file, err := e.store.choose(e.getenv)
	switch {
	case err != nil:
		return nil, err
	case file != "":
		return openFile(file, p)
	default:
		return e.openTable(ctx, table)
	}
}

// guard returns a guard over the store. Only the guard decides what may be
// written.
func (e *env) guard(o *opened, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	g, err := idempotent.New(o.records, append([]func(*idempotent.Options){func(opts *idempotent.Options) {
		opts.Now = e.now
		opts.Logger = slog.New(slog.DiscardHandler)
	}}, optFns...)...)
	if err != nil {
		return nil, usage("%v", err)
	}
	return g, nil
}

// always is later than every time in a record.
const always = 253402300799999

// waiting lists the records that wait for reconciliation, due or not, and those
// that were given up. Every unknown record is among them. A record that moves
// between the two lists meanwhile is listed once.
func (o *opened) waiting(ctx context.Context) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		seen := map[idempotent.RecordID]bool{}
		for _, list := range []iter.Seq2[driver.Record, error]{o.Due(ctx, millis(always)), o.Exhausted(ctx)} {
			for r, err := range list {
				if r.ID != "" && seen[r.ID] {
					continue
				}
				seen[r.ID] = true
				if !yield(r, err) || err != nil && r.ID == "" {
					return
				}
			}
		}
	}
}
