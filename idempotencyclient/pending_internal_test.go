// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The folder is synced before a key is used, also a key that another process may have
// stored a moment ago. Without the sync, the key is not used. It is synced after a key
// is forgotten, also if an earlier Forget removed it, and the sync failed.
func TestPending_Syncs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pending")
	var synced []string
	var failure error
	p := pending{dir, time.Hour, func(d string) error {
		synced = append(synced, d)
		return failure
	}}
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.key("order"); err != nil {
			t.Fatal(err)
		}
	}
	failure = errors.New("disk failure")
	if err := p.forget("order"); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	failure = nil
	if err := p.forget("order"); err != nil {
		t.Error(err)
	}
	if want := []string{filepath.Dir(dir), dir, dir, dir, dir}; !slices.Equal(synced, want) {
		t.Errorf("synced %v, want %v", synced, want)
	}
	failure = errors.New("disk failure")
	if _, err := p.key("order"); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if err := p.open(); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if err := syncDir(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that is missing was synced")
	}
}
