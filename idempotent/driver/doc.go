// Package driver is the contract between package idempotent and its stores: the
// stored record and the methods that a store implements. It is for authors of
// stores and tools. Authors of handlers need package idempotent only.
//
// A store implements [Store], and [ChunkStore] and [DueLister] if it can. The
// suite in package idempotenttest checks an implementation.
package driver
