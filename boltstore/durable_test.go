package boltstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent/driver"
)

// Open syncs the directory of a new file before it writes to the file. It does so
// too if the creator of the file died before that.
func TestOpenSyncsTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "once.db")
	synced := 0
	count := boltstore.SyncDir(func(d string) error {
		db, err := os.ReadFile(path)
		if d != dir || err != nil || strings.Contains(string(db), string(boltstore.Bucket)) {
			t.Errorf("synced %s, and the file has %d bytes, %v", d, len(db), err)
		}
		synced++
		return nil
	})
	failure := errors.New("the disk is gone")
	if s, err := boltstore.Open(path, boltstore.SyncDir(func(string) error { return failure })); s != nil || !errors.Is(err, failure) {
		t.Fatalf("Open: %v, %v; want the error of the directory", s, err)
	}
	open(t, path, count).Close()
	open(t, path, count).Close()
	if synced != 1 {
		t.Errorf("the directory was synced %d times, want once", synced)
	}
}

// TestLockTimeout: Open waits for another process for LockTimeout, by default for
// a second.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	open(t, path)
	for timeout, want := range map[time.Duration]time.Duration{0: time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
		began := time.Now()
		_, err := boltstore.Open(path, func(o *boltstore.Options) { o.LockTimeout = timeout })
		took := time.Since(began)
		wantError(t, err, "was not released within "+want.String())
		if took < want-100*time.Millisecond || took > want+5*time.Second {
			t.Errorf("it waited for %s, want %s", took, want)
		}
	}
}

// Errors of the disk and the file name the file and what to do.
func TestTransactionErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	full := boltstore.Explain(s, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	wantError(t, full, path, "the disk is full", "free some space", "no space left on device")
	if !errors.Is(full, syscall.ENOSPC) {
		t.Errorf("%v does not match its cause", full)
	}
	wantError(t, boltstore.Explain(s, berrors.ErrDatabaseNotOpen), path, "the store is closed")
	wantError(t, boltstore.Explain(s, syscall.EIO), path, "input/output error")
	if err := boltstore.Explain(s, berrors.ErrValueTooLarge); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}
