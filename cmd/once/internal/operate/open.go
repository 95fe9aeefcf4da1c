// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
)

// Choose returns the selected table or file: from the flags, or else from the
// environment.
func (f StoreFlags) Choose(getenv func(string) string) (table, file string, err error) {
	table, file = f.Table, f.File
	if f.Name != "" && (table != "" || file != "") {
		return "", "", Usage("--store %s names the variables of a store, so --table and --file are not allowed", f.Name)
	}
	inTable, inFile := f.Variable("ONCE_TABLE"), f.Variable("ONCE_FILE")
	if table == "" && file == "" {
		table, file = getenv(inTable), getenv(inFile)
	}
	switch {
	case table != "" && file != "":
		return "", "", Usage("both a table (%s) and a file (%s) are named; name one store", table, file)
	case table == "" && file == "":
		return "", "", Usage("no store is named; use --table NAME or --file PATH, or set %s or %s", inTable, inFile)
	case file != "" && cmp.Or(f.Region, f.Profile, f.Endpoint, f.ChunkTable, f.PartitionKey, f.SortKey, f.Prefix, f.TTLAttribute, f.Consistency) != "":
		return "", "", Usage("%s is a file; --region, --profile, --endpoint, --chunk-table, --partition-key, --sort-key, --prefix, --ttl-attribute and --consistency are for a table", file)
	}
	return table, file, nil
}

// Open opens the selected store, which has to exist.
func (e *Env) Open(ctx context.Context) (Store, error) { return e.OpenStore(ctx, false) }

// OpenStore opens the selected store. With create a file may be missing.
func (e *Env) OpenStore(ctx context.Context, create bool) (Store, error) {
	table, file, err := e.Flags.Choose(e.Getenv)
	if err != nil {
		return nil, err
	}
	if file != "" {
		return OpenFile(file, create)
	}
	return e.openTable(ctx, table)
}

// OpenFile opens a store file. It creates a missing file only if create is set, so
// that a mistyped name does not become an empty store.
func OpenFile(path string, create bool) (Store, error) {
	info, err := os.Stat(path)
	switch {
	case create:
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s; correct the name, or create it with once table create --file %s", path, path)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0:
		return nil, fmt.Errorf("%s is empty, so it is not a store; correct the name, or make it one with once table create --file %s", path, path)
	}
	s, err := boltstore.Open(path, func(o *boltstore.Options) { o.KeepExpired = true })
	if err != nil {
		return nil, err
	}
	return file{s, path}, nil
}

// file is the store in a file.
type file struct {
	*boltstore.Store
	path string
}

// Scan lists every record.
func (f file) Scan(ctx context.Context, _ ...func(*dynamostore.ScanOptions)) iter.Seq2[driver.Record, error] {
	return f.All(ctx)
}

// PurgeChunks returns 0: in a file every result is in its record.
func (file) PurgeChunks(context.Context, time.Time, ...func(*dynamostore.PurgeOptions)) (int, error) {
	return 0, nil
}

func (f file) Name() string { return "file " + f.path }

func (file) Size(context.Context) (int, int) { return 0, 0 }

func (file) Caller(context.Context) string { return "" }

func (file) Alien(context.Context) error { return nil }

func (f file) Whole() Store { return f }

func (file) Scheduled() *dynamostore.Store { return nil }
