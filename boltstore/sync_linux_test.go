// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// A write whose sync fails is not acknowledged. The test replaces the descriptor
// of the open file by that of /dev/null, which accepts every write and refuses to
// sync. Without a sync in each commit the writes would succeed.
func TestFailedSyncIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	s, path := newStore(t)
	// Free pages, so that no write has to make the file larger.
	fill(t, s, 200, func(int) time.Time { return at.AddDate(-1, 0, 0) })
	if n, err := s.Purge(t.Context(), at); n != 200 || err != nil {
		t.Fatal(n, err)
	}
	old, kept := record(1, at.AddDate(-1, 0, 0)), record(2, time.Time{})
	insert(t, s, old)
	insert(t, s, kept)
	blackHole(t, path)

	if _, err := s.Insert(t.Context(), record(3, time.Time{}), at); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Insert: %v, want the error of the sync", err)
	}
	next := kept
	next.Version = version(9)
	if _, err := s.Replace(t.Context(), next, kept.Version); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Replace: %v, want the error of the sync", err)
	}
	if _, err := s.Delete(t.Context(), kept.ID, kept.Version); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Delete: %v, want the error of the sync", err)
	}
	if n, err := s.Purge(t.Context(), at); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Purge: %d, %v, want the error of the sync", n, err)
	}
	// A write that was not acknowledged is not stored.
	if got, err := s.Get(t.Context(), kept.ID); err != nil || got.Version != kept.Version {
		t.Errorf("Get: %v, %v", got, err)
	}
	if _, err := s.Get(t.Context(), record(3, time.Time{}).ID); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("Get of a refused insert: %v", err)
	}
}

// blackHole replaces the descriptor of the open file path by one of /dev/null.
func blackHole(t *testing.T, path string) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	replaced := 0
	for _, e := range entries {
		if target, _ := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); target != path {
			continue
		}
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		replaced++
	}
	if replaced != 1 {
		t.Fatalf("%d descriptors of %s were replaced, want one", replaced, path)
	}
}
