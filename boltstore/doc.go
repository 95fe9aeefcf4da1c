// SPDX-License-Identifier: Apache-2.0

// Package boltstore is a store in one file on the local disk: for a laptop, for a
// test that restarts its process, or for a service on one machine. For functions
// on many machines use dynamostore.
//
//	store, err := boltstore.Open("/var/lib/charge/once.db")
//	if err != nil {
//		return err // names the file, the problem and what to do
//	}
//	defer store.Close()
//	guard, err := idempotent.New(store)
//
// The file is a bbolt database (go.etcd.io/bbolt) with one bucket. Only one
// process can have it open at a time. Within that process a [Store] is safe for
// concurrent use.
//
// An acknowledged write is on the disk: every commit makes one fsync, and bbolt's
// NoSync is never used. The write survives a kill -9 at any moment, and a power
// failure if the disk itself does not lose synced data. A request that a live
// record refuses only reads and makes no fsync.
//
// Each record has a checksum. A damaged record, or a damaged page of the file,
// causes an error; it is never replayed, replaced or removed. One kind of damage
// cannot be detected: if the page of the newest commit is damaged, bbolt treats
// that commit as interrupted by a power failure and opens the file as it was one
// commit earlier.
//
// To back up the file, copy it while no process has it open. Do not restore an
// older copy while event sources still retry requests that began after it.
package boltstore

// Chapters, each of which refers only to those below it:
//
//	open.go     Open, which checks the file, and Close
//	records.go  due and exhausted records; Get, Insert, Replace, Delete, Purge
//	file.go     transactions on the file
//	record.go   a record as bytes, and back; what Open checks of it
