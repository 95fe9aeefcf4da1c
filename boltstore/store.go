package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/once-lambda/once/idempotent/driver"
)

// Options are given to [Open]. The zero value of each field is its default.
type Options struct {
	// LockTimeout is how long Open waits for another process to let go of the
	// file. Default: 1 s.
	LockTimeout time.Duration

	// KeepExpired makes Open leave expired records where they are: a tool that
	// looks changes nothing. Default: Open drops them.
	KeepExpired bool

	// syncDir makes the entry of a new file durable; tests replace it.
	syncDir func(dir string) error
}

// Store is an [driver.Store] in one file. Make one with [Open]; it is safe
// for concurrent use.
type Store struct {
	path string
	db   *bbolt.DB

	// write holds one token: bbolt lets one writer in at a time and waits for
	// it without a look at the context, so the waiting is done here.
	write chan struct{}

	// broken is set once bbolt panicked. Its locks may be held for ever then,
	// and what it has in memory is not what the file says: nobody calls it
	// again.
	broken atomic.Pointer[damagedError]

	close    sync.Once
	closeErr error
}

var _ driver.Store = (*Store)(nil)

// bucket holds all records: record id -> encoded record.
var bucket = []byte("once.records")

const (
	// fileMode keeps results, which may be private, to their owner.
	fileMode = 0o600
	// closeTimeout bounds the closing of a store that bbolt panicked in.
	closeTimeout = time.Second
)

// Open opens the store in the file path, and makes the file if there is none;
// its directory must exist. It reads the whole file once, finds what is damaged,
// and drops the records that expired more than an hour ago. The error says what is wrong with the file and what to do about it.
func Open(path string, optFns ...func(*Options)) (*Store, error) {
	o := Options{syncDir: syncDir}
	for _, f := range optFns {
		f(&o)
	}
	switch {
	case path == "":
		return nil, errors.New("boltstore: Open wants the path of a file, got an empty string")
	case o.LockTimeout < 0:
		return nil, fmt.Errorf("boltstore: Options.LockTimeout is %s; it must be positive (or zero for the default)", o.LockTimeout)
	case o.LockTimeout == 0:
		o.LockTimeout = time.Second
	}
	db, err := openDB(path, o.LockTimeout)
	if err != nil {
		return nil, openError(path, o.LockTimeout, err)
	}
	s := &Store{path: path, db: db, write: make(chan struct{}, 1)}
	err = s.prepare(o.syncDir)
	if err == nil && !o.KeepExpired {
		_, err = s.Purge(context.Background(), time.Now())
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// openDB is bbolt.Open, with the panics that damaged pages cause as errors.
func openDB(path string, lockTimeout time.Duration) (db *bbolt.DB, err error) {
	var file *os.File
	defer recoverDamage(func(e *damagedError) {
		// bbolt has lost its handle of the mapping, and with it the file's lock
		// stays until the process ends. The descriptor need not.
		file.Close()
		db, err = nil, e
	})()
	return bbolt.Open(path, fileMode, &bbolt.Options{
		Timeout:      lockTimeout,
		FreelistType: bbolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
}

// prepare makes the bucket in a new file, after the file's entry in its directory
// is durable. A file without a bucket is new, or its creator died in between.
func (s *Store) prepare(syncDir func(dir string) error) error {
	found, err := s.check()
	if err != nil || found {
		return err
	}
	if err := syncDir(filepath.Dir(s.path)); err != nil {
		return err
	}
	return s.update(context.Background(), func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
}

// Close waits for the calls that are running and closes the file. Later calls
// return an error; closing again returns the first Close's answer.
func (s *Store) Close() error {
	s.close.Do(func() {
		done := make(chan error, 1)
		go func() { done <- s.db.Close() }()
		var late <-chan time.Time // never, unless bbolt may be holding its own locks
		if s.broken.Load() != nil {
			late = time.After(closeTimeout)
		}
		select {
		case s.closeErr = <-done:
			if s.closeErr != nil {
				s.closeErr = fmt.Errorf("boltstore: close %s: %w", s.path, s.closeErr)
			}
		case <-late:
			s.closeErr = fmt.Errorf("boltstore: close %s: the file is damaged and stays locked until this process ends", s.path)
		}
	})
	return s.closeErr
}

// view runs fn in a transaction that reads.
func (s *Store) view(fn func(*bbolt.Tx) error) error {
	return s.transaction(s.db.View, fn)
}

// update runs fn in the one transaction that may write, and commits it. It
// waits for its turn no longer than ctx.
func (s *Store) update(ctx context.Context, fn func(*bbolt.Tx) error) error {
	select {
	case s.write <- struct{}{}:
		defer func() { <-s.write }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.transaction(s.db.Update, fn)
}

// transaction runs fn in begin. It turns the panics and the memory faults that
// damaged pages cause into an error, and then lets nobody in again.
func (s *Store) transaction(begin func(func(*bbolt.Tx) error) error, fn func(*bbolt.Tx) error) (err error) {
	if e := s.broken.Load(); e != nil {
		return e
	}
	defer recoverDamage(func(e *damagedError) {
		e.path = s.path
		s.broken.CompareAndSwap(nil, e)
		err = e
	})()
	err = begin(fn)
	var damaged *damagedError
	switch {
	case err == nil, errors.Is(err, driver.ErrNoRecord), errors.Is(err, errRefused):
		return err
	case errors.As(err, &damaged):
		return &damagedError{path: s.path, what: damaged.what}
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return fmt.Errorf("boltstore: %s: the store is closed", s.path)
	case errors.Is(err, berrors.ErrValueTooLarge):
		return driver.ErrTooLarge
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("boltstore: %s: the disk is full; make room for it: %w", s.path, err)
	}
	return fmt.Errorf("boltstore: %s: %w", s.path, err)
}

// recoverDamage makes this goroutine panic, not crash, when it reads beyond
// the end of a file that was cut off. The function it returns is deferred: it
// recovers and hands the damage to report.
func recoverDamage(report func(*damagedError)) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			// Some of bbolt's texts list every free page.
			report(&damagedError{what: fmt.Sprintf("%.120s", fmt.Sprint(p))})
		}
	}
}

// openError says what to do about a file that bbolt.Open refused.
func openError(path string, lockTimeout time.Duration, err error) error {
	var damaged *damagedError
	switch {
	case errors.As(err, &damaged):
		damaged.path = path
		return damaged
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("boltstore: %s is held by another process (or another Store of this one) and was not let go within %s; stop that process or name another path", path, lockTimeout)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("boltstore: the directory of %s does not exist; make it first (mkdir -p %s)", path, filepath.Dir(path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("boltstore: no permission to read and write %s; change the permissions of the file and its directory, or name another path: %w", path, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("boltstore: %s is a directory; name a file in it", path)
	case errors.Is(err, berrors.ErrInvalid):
		return fmt.Errorf("boltstore: %s is not a bbolt file, or its beginning is damaged; it has not been changed. Name another path, or restore it from a copy", path)
	case errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("boltstore: %s is a bbolt file of another format version; it has not been changed. Open it with the program that wrote it, or name another path", path)
	case errors.Is(err, berrors.ErrChecksum):
		return &damagedError{path: path, what: "the checksum of its first pages is wrong"}
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return fmt.Errorf("boltstore: cannot open %s: %w", path, err)
	}
	// What is left are bbolt's own findings, such as a file shorter than its
	// first pages.
	return &damagedError{path: path, what: err.Error()}
}

// syncDir makes the entry of a new file durable: without it a power cut could
// take the file away, and every acknowledged record with it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("boltstore: %w", err)
	}
	defer d.Close()
	// Some systems, Windows among them, cannot sync a directory: they have no
	// need to.
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("boltstore: %s: %w", dir, err)
	}
	return nil
}
