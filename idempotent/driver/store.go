package driver

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store keeps records. Its three methods are the only effects of the protocol,
// and each is one atomic step. A Store is safe for concurrent use.
//
// A Store never judges a record: it compares the two things named below and
// leaves every other question to the guard. It keeps each field of a [Record]
// exactly; the records it returns and is given share no memory with what it
// keeps. It ends with the context. Its errors hold no result and no key.
//
// The package idempotenttest has the conformance suite for this contract.
type Store interface {
	// Insert writes r if there is no record of that id, or one whose Expires is
	// set and not after now. Otherwise it writes nothing and returns the record
	// that stands, as it was in the moment of the refusal.
	//
	// A Store that retries a request whose reply was lost may meet its own
	// write. It returns that record like any other; the guard knows its Version.
	//
	// An error means that the write may or may not have happened, except for
	// [ErrTooLarge].
	Insert(ctx context.Context, r Record, now time.Time) (existing *Record, err error)

	// Replace writes all of r in place of the record of that id if its Version
	// is was. Otherwise it writes nothing and returns the record that stands,
	// or [ErrNoRecord] if there is none: Replace never creates. Expiry plays no
	// part.
	//
	// As for Insert, the record returned may be r itself, and an error other
	// than ErrNoRecord and ErrTooLarge leaves open whether the write happened.
	Replace(ctx context.Context, r Record, was Version) (current *Record, err error)

	// Get returns the record of that id, expired or not, and every write that
	// was acknowledged before. It returns [ErrNoRecord] if there is none.
	Get(ctx context.Context, id RecordID) (*Record, error)
}

// ChunkStore is what a [Store] is besides, if it keeps large results beside
// their records: because a record cannot hold them, or because it would make
// every look at the record expensive. The guard then hands it every result
// above 4 KB. A chunk is written once, under a write id that never recurs, and
// never changed.
type ChunkStore interface {
	// PutChunks keeps data under (id, v), for at least an hour longer than
	// until expires, and returns in how many pieces. The record that will refer
	// to it is written afterwards, or never: what is left then expires by
	// itself. An error leaves open what was written.
	PutChunks(ctx context.Context, id RecordID, v Version, data []byte, expires time.Time) (count int, err error)

	// GetChunks returns the data that was kept under (id, v) in count pieces.
	// It returns [ErrNoRecord] if a piece is missing. The guard checks length
	// and sum.
	GetChunks(ctx context.Context, id RecordID, v Version, count int) ([]byte, error)
}

// DueLister is what a [Store] is besides, if it can list the records that wait
// for reconciliation. The lists are hints: they may be older than the records,
// and every action re-checks. An error that comes with a record's ID is about
// that record alone, which cannot be read; one without ends the list.
type DueLister interface {
	// Due lists the records whose Due is set and not after before, without the
	// exhausted ones.
	Due(ctx context.Context, before time.Time) iter.Seq2[Record, error]
	// Exhausted lists the records that reconciliation has given up.
	Exhausted(ctx context.Context) iter.Seq2[Record, error]
}

// Transaction writes next in place of the record whose Version is was, as
// [Store.Replace] does, and with it, all or nothing, writes of the caller's. A
// package that knows a store's transactions hands one to [idempotent.Execution.Commit].
//
// It returns the record that stands if that has another Version; nothing was
// written then. An error that matches [ErrNotApplied] or [ErrTooLarge] says that
// nothing was written, and that nothing will be. Any other error leaves open
// whether the transaction was applied, or will be.
type Transaction func(ctx context.Context, next Record, was Version) (current *Record, err error)

// ErrNoRecord is returned by a [Store], and by [idempotent.Guard.Resolve], where there is
// no record of that id.
var ErrNoRecord = errors.New("idempotent: no such record")

// ErrTooLarge is returned by a [Store] that cannot hold a record of that size.
// Nothing was written. The guard then stores the outcome without its result.
var ErrTooLarge = errors.New("idempotent: the record is larger than the store can hold")

// ErrNotApplied matches the error of a [Transaction] that was refused as a
// whole: nothing was written.
var ErrNotApplied = errors.New("idempotent: nothing was written")

// Op names what a store was asked to do.
type Op string

// The operations of a store, as an error names them.
const (
	OpInsert     Op = "insert"
	OpReplace    Op = "replace"
	OpGet        Op = "get"
	OpTransact   Op = "transact"
	OpPutChunks  Op = "put_chunks"
	OpGetChunks  Op = "get_chunks"
	OpListDue    Op = "list_due"
	OpUnreadable Op = "read" // the store answered with a record of an unknown state
)
