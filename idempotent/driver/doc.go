// SPDX-License-Identifier: Apache-2.0

// Package driver defines the contract between package idempotent and its stores:
// the stored record and the interfaces that a store implements. It is for authors
// of stores and tools. Authors of handlers need only package idempotent.
//
// A store implements [Store] and, if it can, [ChunkStore], [DueLister] and
// [AbandonedLister]. The test suite in package idempotenttest checks an implementation.
package driver
