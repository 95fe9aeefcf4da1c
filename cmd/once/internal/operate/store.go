// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Store is an open store.
type Store interface {
	driver.Store
	driver.DueLister
	// Delete removes a completed or retryable record of that version.
	Delete(ctx context.Context, id idempotent.RecordID, was driver.Version) (current *driver.Record, err error)
	// Scan lists every record. Only a table uses the options.
	Scan(ctx context.Context, optFns ...func(*dynamostore.ScanOptions)) iter.Seq2[driver.Record, error]
	// PurgeChunks removes, or counts, chunks of large results that are past their time
	// and that no record refers to.
	PurgeChunks(ctx context.Context, before time.Time, optFns ...func(*dynamostore.PurgeOptions)) (int, error)

	// Name returns the store's name for output and the audit.
	Name() string
	// Size returns the approximate number of items to read, and their bytes; 0: unknown.
	Size(ctx context.Context) (items, bytes int)
	// Caller returns the caller's identity in the store, or "".
	Caller(ctx context.Context) string
	// Alien returns an error if the store is not one of once, although it can be
	// read. Commands call it before they report that there is nothing.
	Alien(ctx context.Context) error
	// Whole returns the store with a list of due records that has those in progress, too.
	Whole() Store
	// Scheduled returns the table whose scans for abandoned runs a reconciler makes, or
	// nil: a file needs none.
	Scheduled() *dynamostore.Store
	Close() error
}

// Guard returns a guard over the store, with options that are valid.
func Guard(e *Env, o Store, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	g, _ := newGuard(e, o, optFns...)
	return g
}

// newGuard returns a guard over the store. Only the guard decides what may be written.
func newGuard(e *Env, o Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	return idempotent.New(o, append([]func(*idempotent.Options){func(opts *idempotent.Options) { opts.Now = e.Now }}, optFns...)...)
}

// Rehearse returns the store without its writes: each one succeeds and changes
// nothing. A guard over it judges evidence as it does when it writes.
func Rehearse(o Store) Store { return rehearsal{o} }

// rehearsal is a store that writes nothing. A guard leaves large results in their
// records, because it is no [driver.ChunkStore].
type rehearsal struct{ Store }

// Replace reports success.
func (rehearsal) Replace(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
	return nil, nil
}

// ReadAll lists every record, and returns the meter of what is read.
func ReadAll(ctx context.Context, e *Env, o Store, what string) (iter.Seq2[driver.Record, error], *output.Meter) {
	items, _ := o.Size(ctx)
	m := e.reading(what, items)
	return o.Scan(ctx, func(opts *dynamostore.ScanOptions) { opts.Progress = m.Read }), m
}

// Waiting lists the records that wait for reconciliation, due or not, and those
// that were given up. Every unknown record is among them. A record that moves
// between the two lists meanwhile is listed once.
func Waiting(ctx context.Context, o Store) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		seen := map[idempotent.RecordID]bool{}
		for _, list := range []iter.Seq2[driver.Listed, error]{o.Due(ctx, time.Time{}), o.Exhausted(ctx)} {
			for e, err := range list {
				if seen[e.ID] {
					continue
				}
				seen[e.ID] = true
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

// Exhausted yields the records of the operations that reconciliation has given up.
func Exhausted(ctx context.Context, o Store, operations []string) iter.Seq2[driver.Record, error] {
	return Read(ctx, o, o.Exhausted(ctx), operations, func(r *driver.Record) bool { return r.Exhausted })
}

// Read yields the records of the operations that a list names, in its order, if still
// holds for the record. An entry may be outdated, and its record may be gone.
func Read(
	ctx context.Context, o Store, list iter.Seq2[driver.Listed, error], operations []string, still func(*driver.Record) bool,
) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var batch []driver.Listed
		flush := func() bool {
			records, errs := make([]*driver.Record, len(batch)), make([]error, len(batch))
			Parallel(slices.All(batch), ReadParallel, func(i int, e driver.Listed) { records[i], errs[i] = o.Get(ctx, e.ID) })
			for i, e := range batch {
				switch {
				case errors.Is(errs[i], idempotent.ErrNoRecord):
				case errs[i] != nil:
					if !yield(driver.Record{ID: e.ID}, errs[i]) {
						return false
					}
				case still(records[i]) && !yield(*records[i], nil):
					return false
				}
			}
			batch = batch[:0]
			return true
		}
		for e, err := range list {
			switch {
			case e.ID == "":
				if flush() {
					yield(driver.Record{}, err)
				}
				return
			case Selects(operations, e.ID):
				batch = append(batch, e)
			}
			if len(batch) == ReadParallel && !flush() {
				return
			}
		}
		flush()
	}
}

// ReadParallel is how many records of a list are read at the same time.
const ReadParallel = 16

// Parallel calls f for every task, some of them at the same time.
func Parallel[T any](tasks iter.Seq2[int, T], limit int, f func(i int, t T)) {
	var workers sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i, t := range tasks {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			f(i, t)
		})
	}
	workers.Wait()
}

// Selects reports whether id belongs to one of the operations. No operations select
// every id.
func Selects(operations []string, id idempotent.RecordID) bool {
	return len(operations) == 0 || slices.Contains(operations, id.Operation())
}
