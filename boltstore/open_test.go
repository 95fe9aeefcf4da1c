// SPDX-License-Identifier: Apache-2.0

package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// paths maps a store of the suite to its file.
type paths struct{ of sync.Map }

func (p *paths) open(t testing.TB) driver.Store {
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	p.of.Store(s, path)
	return s
}

func (p *paths) reopen(t testing.TB, s driver.Store) driver.Store {
	t.Helper()
	if err := s.(*boltstore.Store).Close(); err != nil {
		t.Fatal(err)
	}
	path, _ := p.of.Load(s)
	return open(t, path.(string))
}

func open(t testing.TB, path string, optFns ...func(*boltstore.Options)) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(path, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func fixture() idempotenttest.Fixture {
	p := &paths{}
	return idempotenttest.Fixture{
		Open:   p.open,
		Reopen: p.reopen,
		Remove: func(ctx context.Context, s driver.Store, id idempotent.RecordID) error {
			return boltstore.Remove(ctx, s.(*boltstore.Store), id)
		},
		Damage: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			return boltstore.Put(s.(*boltstore.Store), map[idempotent.RecordID][]byte{id: boltstore.Later(id)})
		},
	}
}

func TestConformance(t *testing.T) { idempotenttest.RunStore(t, fixture()) }

// G13: a store in one file keeps the guarantees of a guard.
func TestFailureModes(t *testing.T) { idempotenttest.RunFailureModes(t, fixture()) }

func TestFailureModesUnderFaults(t *testing.T) {
	idempotenttest.RunFailureModesUnderFaults(t, fixture(), func(o *idempotenttest.FaultOptions) { o.Seeds = 5 })
}

var at = time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC)

// record returns a completed record of the n-th key that expires at expires.
func record(n int, expires time.Time) driver.Record {
	key := idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: fmt.Sprint("order-", n)}
	return driver.Record{
		ID:          key.RecordID(),
		State:       driver.StateCompleted,
		Reason:      driver.ReasonResult,
		Version:     version(byte(n)),
		Attempt:     1,
		Fingerprint: idempotent.FingerprintBytes(nil),
		LeaseEnd:    at,
		Expires:     expires,
		Created:     at,
		Since:       at,
		Encoding:    "json",
		Result:      []byte(`"the result"`),
	}
}

func version(b byte) (v driver.Version) {
	v[0], v[15] = b, 1
	return v
}

func insert(t testing.TB, s *boltstore.Store, r driver.Record) {
	t.Helper()
	if met, err := s.Insert(t.Context(), r, at); err != nil || met != nil {
		t.Fatalf("Insert: got %v, %v", met, err)
	}
}

// TestRefusalDoesNotSync: a request that finds a live record writes nothing. Every
// commit would give the file a new transaction id.
func TestRefusalDoesNotSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s := open(t, path)
	r := record(1, time.Time{})
	insert(t, s, r)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if met, err := s.Insert(t.Context(), r, at); err != nil || met == nil {
			t.Fatalf("Insert over a live record: got %v, %v", met, err)
		}
		if met, err := s.Replace(t.Context(), r, version(9)); err != nil || met == nil {
			t.Fatalf("Replace of another version: got %v, %v", met, err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("refusals changed the file")
	}
}

// Open waits for another process to release the file, for a second by default.
func TestHeldFileIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	open(t, path)
	began := time.Now()
	_, err := boltstore.Open(path)
	wantError(t, err, path, "held by another process", "within 1s")
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("Open waited for %s, want 1s", took)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	err := boltstore.Fail(open(t, path), &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	wantError(t, err, path, "the disk is full", "free some space")
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got error %v, want one that matches ENOSPC", err)
	}
}

func TestHeldFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	first := open(t, path)
	_, err := boltstore.Open(path, func(o *boltstore.Options) { o.LockTimeout = time.Millisecond })
	wantError(t, err, path, "held by another process", "1ms")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		path      func(t *testing.T, dir string) string
		want      []string
		notAsRoot bool
	}{
		{name: "no path", path: func(*testing.T, string) string { return "" }, want: []string{"missing path"}},
		{name: "no directory", want: []string{"does not exist", "mkdir -p"}, path: func(_ *testing.T, dir string) string {
			return filepath.Join(dir, "missing", "once.db")
		}},
		{name: "a directory", want: []string{"is a directory", "name a file in it"}, path: func(_ *testing.T, dir string) string { return dir }},
		{name: "below a file", want: []string{"cannot open"}, path: func(t *testing.T, dir string) string {
			return filepath.Join(write(t, dir, "x"), "once.db")
		}},
		{name: "a text", want: []string{"is not a bbolt file", "was not changed"}, path: func(t *testing.T, dir string) string {
			return write(t, dir, "dear diary\n")
		}},
		{name: "a long text", want: []string{"is not a bbolt file"}, path: func(t *testing.T, dir string) string {
			return write(t, dir, strings.Repeat("dear diary\n", 10_000))
		}},
		{name: "another program's", want: []string{"another program", "choose another path"}, path: func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "once.db")
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.Update(func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("theirs"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{name: "no permission", notAsRoot: true, want: []string{"no permission", "change the permissions"}, path: func(t *testing.T, dir string) string {
			path := write(t, dir, "")
			if err := os.Chmod(path, 0); err != nil {
				t.Fatal(err)
			}
			return path
		}},
	}
	for _, tt := range tests {
		if tt.notAsRoot && os.Getuid() == 0 {
			continue // root has every permission; TestOpenErrors checks the text
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := tt.path(t, t.TempDir())
			before, _ := os.ReadFile(path)
			s, err := boltstore.Open(path)
			if s != nil {
				t.Error("Open returned a store")
			}
			wantError(t, err, append(tt.want, path)...)
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
	t.Run("lock timeout", func(t *testing.T) {
		t.Parallel()
		_, err := boltstore.Open("once.db", func(o *boltstore.Options) { o.LockTimeout = -1 })
		wantError(t, err, "LockTimeout", "must be positive")
	})
}

// write puts text into a new file in dir and returns its path.
func write(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got the error %q, want %q in it", err, part)
		}
	}
}

func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	open(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %o, want 600: results may be private", mode)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := record(1, time.Time{})
	_, err := s.Insert(t.Context(), r, at)
	wantError(t, err, "the store is closed")
	_, err = s.Replace(t.Context(), r, r.Version)
	wantError(t, err, "the store is closed")
	_, err = s.Get(t.Context(), r.ID)
	wantError(t, err, "the store is closed")
	_, err = s.Purge(t.Context(), at)
	wantError(t, err, "the store is closed")
}

// TestContextEndsWhileWaiting: a waiting writer waits only until its context ends.
func TestContextEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	release := boltstore.HoldWriter(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Insert(ctx, record(1, time.Time{}), at)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	release()
	insert(t, s, record(1, time.Time{}))
}

func TestEmptyID(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "once.db"))
	if _, err := s.Insert(t.Context(), driver.Record{State: driver.StateInProgress}, at); err == nil {
		t.Error("a record without an id was written")
	}
}

// TestOpenErrors: errors that root cannot cause in a test, and errors of bbolt.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no permission to read and write": &fs.PathError{Op: "open", Path: "once.db", Err: syscall.EACCES},
		"change the permissions":          &fs.PathError{Op: "open", Path: "once.db", Err: syscall.EROFS},
		"cannot open":                     syscall.EIO,
		"is damaged":                      errors.New("file size too small"),
	} {
		wantError(t, boltstore.OpenError("once.db", err), want, "once.db")
	}
}

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
