// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store stores records. The protocol has no other effects than these three
// methods, and each of them is atomic. A Store is safe for concurrent use.
//
// A Store only makes the comparisons described below; the guard makes all other
// decisions. It stores each field of a [Record] exactly. The records it receives
// and returns share no memory with what it holds. Its methods return when the
// context ends. Its errors contain no result and no key.
//
// The conformance suite for this contract is in package idempotenttest.
type Store interface {
	// Insert writes r if no record with that id exists, or if the existing record's
	// Expires is set and not after now. Otherwise it writes nothing and returns the
	// current record, as it was at the moment of the refusal.
	//
	// A Store that retries a request after a lost reply may find its own write. It
	// returns that record like any other; the guard recognizes its Version.
	//
	// After an error other than [ErrTooLarge], the write may or may not have
	// happened.
	Insert(ctx context.Context, r Record, now time.Time) (existing *Record, err error)

	// Replace overwrites the record that has the id of r with all of r, if its Version
	// is was. Otherwise it writes nothing and returns the current record, or
	// [ErrNoRecord] if no such record exists: Replace never creates a record. It
	// ignores Expires.
	//
	// As with Insert, the returned record may be r itself. After an error other than
	// ErrNoRecord and ErrTooLarge, the write may or may not have happened.
	Replace(ctx context.Context, r Record, was Version) (current *Record, err error)

	// Get returns the record with that id, expired or not. It sees every write that
	// was acknowledged before. It returns [ErrNoRecord] if there is no such record.
	Get(ctx context.Context, id RecordID) (*Record, error)
}

// ChunkStore is an optional interface of a [Store] that stores large results
// beside their records: because a record cannot hold them, or because they would
// make every read of the record expensive. The guard then passes it every result
// above 4 KB. A chunk is written once, under a write id that is never reused, and
// never changes.
type ChunkStore interface {
	// PutChunks stores data under (id, v) until at least one hour after expires, and
	// returns the number of chunks. The record that refers to the chunks is written
	// afterwards, or never; chunks without a record expire by themselves. After an
	// error, some chunks may have been written.
	PutChunks(ctx context.Context, id RecordID, v Version, data []byte, expires time.Time) (count int, err error)

	// GetChunks returns the data stored under (id, v) in count chunks. It returns
	// [ErrNoRecord] if a chunk is missing. The guard checks the length and the sum.
	GetChunks(ctx context.Context, id RecordID, v Version, count int) ([]byte, error)
}

// DueLister is an optional interface of a [Store] that can list the records
// waiting for reconciliation, without reading them. The lists are hints: an entry
// may be older than its record, and a record that is written meanwhile may be
// listed twice or not at all. Every action reads the record first. An error
// yielded with an ID means that this record cannot be read; an error without an ID
// ends the list.
type DueLister interface {
	// Due lists the records whose Due is set and after a time, except the exhausted
	// ones: those that are due and those that will be, the earliest Due first. The zero
	// time lists all. A store that is an [AbandonedLister] may leave out records in
	// progress that are not Announced.
	Due(ctx context.Context, after time.Time) iter.Seq2[Listed, error]
	// Exhausted lists the records that reconciliation gave up, the earliest first.
	Exhausted(ctx context.Context) iter.Seq2[Listed, error]
}

// AbandonedLister is an optional interface of a [DueLister] that finds records in
// progress by reading the whole store, because listing each run would make every
// run more expensive. A process that ends without a warning leaves such a record.
type AbandonedLister interface {
	DueLister
	// Running lists the records in progress whose Due is set and that Due does not
	// list, in no order. It reads the whole store.
	Running(ctx context.Context) iter.Seq2[Listed, error]
	// Abandoned reads a part of the store and passes the records that Running would
	// list, and that are due by now, to handle: in pages, one call at a time. If a
	// record cannot be read, only its ID is certainly set. The next call continues where
	// this one ended, in whatever process. A pass over the whole store begins when the
	// pause that the store decides on has passed since the end of the last one; until then
	// Abandoned does nothing. Two calls at the same time do not read the same part.
	//
	// Abandoned ends before ctx does. A request to the store that the end of ctx cuts
	// off is no error. If handle returns false, Abandoned ends at once, and the next call
	// passes the same page again.
	Abandoned(ctx context.Context, now time.Time, handle func(page []Listed) bool) (Scanned, error)
}

// Scanned is what a call of [AbandonedLister.Abandoned] did.
type Scanned struct {
	Items     int     // items that were read
	ReadUnits float64 // read units consumed, of a store that has such units
	Deleted   int     // expired items that were deleted, of a store that does so itself
	// Began is when the current pass over the whole store began, or the last one if
	// there is no current pass; zero if none has begun.
	Began time.Time
	// Ended is when the last pass ended that read the whole store; zero if there is no
	// such pass.
	Ended time.Time
	// Late reports that the current pass has taken longer than the interval between
	// two passes.
	Late bool
	// Replaced is why the call began a new pass in place of one whose position could
	// not be used: the position was damaged, or its time was in the future. Empty if it
	// did not.
	Replaced string
}

// Listed is the entry of a [Record] in a list of a [DueLister]. Its fields are
// those of the record.
type Listed struct {
	ID       RecordID
	State    State
	Since    time.Time
	LeaseEnd time.Time
	Due      time.Time
}

// Transaction writes next over the record whose Version is was, as [Store.Replace]
// does, atomically with other writes of the caller. A package that supports a
// store's transactions passes one to idempotent.Execution.Commit.
//
// If the current record has another Version, it writes nothing and returns that
// record. An error that matches [ErrNotApplied] or [ErrTooLarge] means that
// nothing was written and that nothing will be. After any other error, the
// transaction may or may not have been applied, or may still be applied.
type Transaction func(ctx context.Context, next Record, was Version) (current *Record, err error)

// ErrNoRecord is returned by a [Store], and by idempotent.Guard.Resolve, if no
// record with the given id exists.
var ErrNoRecord = errors.New("idempotent: no such record")

// ErrTooLarge is returned by a [Store] that cannot hold a record of that size.
// Nothing was written. The guard then stores the outcome without its result.
var ErrTooLarge = errors.New("idempotent: the record is larger than the store can hold")

// ErrNotApplied matches the error of a [Transaction] that was refused as a whole:
// nothing was written.
var ErrNotApplied = errors.New("idempotent: nothing was written")

// Op names a store operation, one of an idempotent.Sealer, or OpPredecessor.
type Op string

// Operations, as errors name them.
const (
	OpInsert     Op = "insert"
	OpReplace    Op = "replace"
	OpGet        Op = "get"
	OpTransact   Op = "transact"
	OpPutChunks  Op = "put_chunks"
	OpGetChunks  Op = "get_chunks"
	OpListDue    Op = "list_due"
	OpUnreadable Op = "read" // the store returned a record with an unknown state
	OpSeal       Op = "seal"
	OpOpen       Op = "open"
	// OpPredecessor is a call of idempotent.Operation.Predecessor.
	OpPredecessor Op = "ask"
)
