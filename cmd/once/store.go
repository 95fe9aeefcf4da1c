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

// storeFlags name the store.
type storeFlags struct {
	Table    string `placeholder:"NAME" help:"DynamoDB table, by name or ARN. Default: ONCE_TABLE."`
	File     string `placeholder:"PATH" help:"File of package boltstore. Default: ONCE_FILE."`
	Region   string `help:"AWS region. Default: the environment's."`
	Profile  string `help:"AWS profile. Default: the environment's."`
	Endpoint string `placeholder:"URL" help:"Address of LocalStack or DynamoDB Local. Default: AWS."`
	NoIndex  bool   `help:"The table has no index \"recovery\": read all of it for every list."`
}

// records is what the commands need of a store.
type records interface {
	driver.Store
	driver.DueLister
	// Delete removes a settled record of that version.
	Delete(ctx context.Context, id idempotent.RecordID, was driver.Version) (current *driver.Record, err error)
}

// opened is a store that was found.
type opened struct {
	records
	name string // for people and the audit
	// all lists every record. A table tells progress how far it has come.
	all   func(ctx context.Context, progress func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error]
	items func(ctx context.Context) int    // about how many there are to read; 0: unknown
	who   func(ctx context.Context) string // as whom the store knows us
	check func(ctx context.Context) error  // whether it can serve as a store
	// purgeChunks removes, or counts, pieces of large results that outlived
	// their time and that no record names.
	purgeChunks func(ctx context.Context, before time.Time, operations []string, countOnly bool) (int, error)
	close       func() error
}

// choose returns the table or the file that is meant: what the flags say, or
// else the environment.
func (f storeFlags) choose(getenv func(string) string) (table, file string, err error) {
	table, file = f.Table, f.File
	if table == "" && file == "" {
		table, file = getenv("ONCE_TABLE"), getenv("ONCE_FILE")
	}
	switch {
	case table != "" && file != "":
		return "", "", usage("both a table (%s) and a file (%s) are named; name one store", table, file)
	case table == "" && file == "":
		return "", "", usage("no store is named; say --table NAME or --file PATH, or set ONCE_TABLE or ONCE_FILE")
	case file != "" && cmp.Or(f.Region, f.Profile, f.Endpoint) != "":
		return "", "", usage("--region, --profile and --endpoint are for a table, and %s is a file", file)
	}
	return table, file, nil
}

// open opens the store that the command line names, which has to be there.
func (e *env) open(ctx context.Context) (*opened, error) { return e.openStore(ctx, mustExist) }

// presence says what to do where there is no store yet.
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

// guard returns a guard over the store: the one judge of what may be written.
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

// waiting lists the records that wait for reconciliation, whether they are due
// or not, and those that were given up: every unknown record is among them. A
// record that moves from the one list to the other is listed once.
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
