// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"path/filepath"
	"testing"
	"time"
)

// Each write costs one fsync.
func BenchmarkInsert(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "once.db"))
	n := 0
	for b.Loop() {
		insert(b, s, record(n, time.Time{}))
		n++
	}
}

// The cost of a duplicate: no fsync.
func BenchmarkInsertRefused(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "once.db"))
	r := record(1, time.Time{})
	insert(b, s, r)
	for b.Loop() {
		if met, err := s.Insert(b.Context(), r, at); err != nil || met == nil {
			b.Fatal(met, err)
		}
	}
}
