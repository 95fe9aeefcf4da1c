package main

import (
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

// openFile opens a store file. It creates a missing file only if p is mayCreate,
// so that a mistyped name does not become an empty store.
func openFile(path string, p presence) (*opened, error) {
	if _, err := os.Stat(path); p == mustExist && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; correct the name, or create it with once table create --file %s", path, path)
	}
	s, err := boltstore.Open(path, func(o *boltstore.Options) { o.KeepExpired = true })
	if err != nil {
		return nil, err
	}
	return &opened{
		records: s,
		name:    "file " + path,
		all: func(ctx context.Context, _ func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
			return s.All(ctx)
		},
		items: func(context.Context) int { return 0 },
		who:   func(context.Context) string { return "" },
		check: func(context.Context) error { return nil }, // opening it has checked everything
		close: s.Close,
		// In a file every result is in its record, so there are no chunks.
		purgeChunks: func(context.Context, time.Time, []string, bool) (int, error) { return 0, nil },
	}, nil
}
