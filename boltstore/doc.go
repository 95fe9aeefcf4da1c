// Package boltstore keeps records in one file on the local disk: the store for
// a laptop, a test that restarts its process, or a service on one machine.
// Functions on many machines want dynamostore.
//
//	store, err := boltstore.Open("/var/lib/charge/once.db")
//	if err != nil {
//		return err // says which file, what is wrong with it and what to do
//	}
//	defer store.Close()
//	guard, err := idempotent.New(store)
//
// The file is a bbolt database (go.etcd.io/bbolt) with one bucket. One process
// has it open at a time; within it a [Store] is safe for concurrent use.
//
// A write that was acknowledged is on the disk: every commit is one fsync, and
// bbolt's NoSync is never used. It survives a kill -9 at any moment, and a
// power cut as far as the disk keeps what it says. A request that is refused
// by a live record only reads and costs no fsync.
//
// Each record carries a checksum. A record, or a page of the file, that is
// damaged fails closed with an error and is never replayed, replaced or
// dropped. One damage cannot be told: where the page that names the newest
// commit is broken, bbolt takes it for a commit that a power cut interrupted
// and opens the file as it was one commit earlier.
//
// Back the file up by copying it while no process has it open. Do not restore
// an older copy while requests are still being retried that began after it.
package boltstore
