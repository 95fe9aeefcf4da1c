package boltstore

import (
	"bytes"
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

// Options are the options of [Open]. The zero value of each field is its default.
type Options struct {
	// LockTimeout is how long Open waits for another process to release the file.
	// Default: 1 s.
	LockTimeout time.Duration

	// KeepExpired makes Open keep expired records, so that a tool that only reads
	// changes nothing. Default: Open removes them.
	KeepExpired bool

	// syncDir makes the directory entry of a new file durable; tests replace it.
	syncDir func(dir string) error
}

// Store is a [driver.Store] in one file. Make one with [Open]. It is safe for
// concurrent use.
type Store struct {
	path string
	db   *bbolt.DB

	// write holds one token. bbolt admits one writer at a time and ignores the
	// context while a writer waits, so writers wait here.
	write chan struct{}

	// broken is set once bbolt panicked. Then bbolt may hold its locks for ever,
	// and its memory may differ from the file, so it is not called again.
	broken atomic.Pointer[damagedError]

	close    sync.Once
	closeErr error
}

var _ driver.Store = (*Store)(nil)

const (
	// fileMode gives only the owner access: results may be private.
	fileMode = 0o600
	// closeTimeout limits the closing of a store after a panic of bbolt.
	closeTimeout = time.Second
)

// Open opens the store in the file path, and creates the file if it does not
// exist; its directory must exist. Open reads the whole file once to detect
// damage, and removes the records that expired more than an hour ago. Its errors
// name the file, the problem and what to do.
func Open(path string, optFns ...func(*Options)) (*Store, error) {
	o := Options{syncDir: syncDir}
	for _, f := range optFns {
		f(&o)
	}
	switch {
	case path == "":
		return nil, errors.New("boltstore: Open: missing path of the file")
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

// openDB calls bbolt.Open and turns the panics that damaged pages cause into
// errors.
func openDB(path string, lockTimeout time.Duration) (db *bbolt.DB, err error) {
	var file *os.File
	defer recoverDamage(func(e *damagedError) {
		// bbolt has lost its handle of the mapping, so the file's lock stays until
		// the process ends. The descriptor can be closed.
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

// prepare creates the bucket in a new file, after the file's directory entry is
// durable. A file without a bucket is new, or its creator died before creating it.
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

// Close waits for running calls and closes the file. Later calls return an error;
// a second Close returns the result of the first.
func (s *Store) Close() error {
	s.close.Do(func() {
		done := make(chan error, 1)
		go func() { done <- s.db.Close() }()
		var late <-chan time.Time // nil channel, unless bbolt may hold its own locks
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

// view runs fn in a read transaction.
func (s *Store) view(fn func(*bbolt.Tx) error) error {
	return s.transaction(s.db.View, fn)
}

// update runs fn in a write transaction and commits it. It waits for other writers
// until ctx ends.
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

// transaction runs fn in begin. It turns the panics and memory faults that damaged
// pages cause into an error, and then rejects all later transactions.
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
		return fmt.Errorf("boltstore: %s: the disk is full; free some space: %w", s.path, err)
	}
	return fmt.Errorf("boltstore: %s: %w", s.path, err)
}

// recoverDamage turns a memory fault of this goroutine into a panic: reading
// beyond the end of a truncated file would otherwise crash the process. Defer the
// returned function: it recovers and passes the damage to report.
func recoverDamage(report func(*damagedError)) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			// Some of bbolt's texts list every free page, so the text is
			// shortened.
			report(&damagedError{what: fmt.Sprintf("%.120s", fmt.Sprint(p))})
		}
	}
}

// openError adds to an error of bbolt.Open what to do about the file.
func openError(path string, lockTimeout time.Duration, err error) error {
	var damaged *damagedError
	switch {
	case errors.As(err, &damaged):
		damaged.path = path
		return damaged
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("boltstore: %s is held by another process (or another Store of this one) and was not released within %s; stop that process or choose another path", path, lockTimeout)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("boltstore: the directory of %s does not exist; create it first (mkdir -p %s)", path, filepath.Dir(path))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("boltstore: no permission to read and write %s; change the permissions of the file and its directory, or choose another path: %w", path, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("boltstore: %s is a directory; name a file in it", path)
	case errors.Is(err, berrors.ErrInvalid):
		return fmt.Errorf("boltstore: %s is not a bbolt file, or its beginning is damaged: it was not changed; choose another path, or restore it from a copy", path)
	case errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("boltstore: %s is a bbolt file of another format version: it was not changed; open it with the program that wrote it, or choose another path", path)
	case errors.Is(err, berrors.ErrChecksum):
		return &damagedError{path: path, what: "the checksum of its first pages is wrong"}
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return fmt.Errorf("boltstore: cannot open %s: %w", path, err)
	}
	// The remaining errors are bbolt's own, such as a file shorter than its first
	// pages.
	return &damagedError{path: path, what: err.Error()}
}

// syncDir makes the directory entry of a new file durable. Without it a power
// failure could remove the file with every acknowledged record.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("boltstore: %w", err)
	}
	defer d.Close()
	// Some systems, such as Windows, cannot sync a directory and do not need to.
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("boltstore: %s: %w", dir, err)
	}
	return nil
}

// check reads the whole file and reports whether the bucket exists. bbolt notices
// a damaged page only if it follows a damaged pointer. A record that is lost by
// damage would let its handler run again, so check looks for every way in which a
// record can be lost.
func (s *Store) check() (found bool, err error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return false, fmt.Errorf("boltstore: %w", err)
	}
	foreign := false
	err = s.view(func(tx *bbolt.Tx) error {
		if want := tx.Size(); info.Size() < want {
			return &damagedError{what: fmt.Sprintf("the file is truncated: %d of at least %d bytes exist", info.Size(), want)}
		}
		err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			ours := b != nil && bytes.Equal(name, bucket)
			found, foreign = found || ours, foreign || !ours
			return nil
		})
		switch {
		case err != nil || foreign:
			return err
		case found:
			if err := checkPages(tx); err != nil {
				return err
			}
			return checkRecords(tx.Bucket(bucket))
		case tx.Size() > emptyPages*int64(tx.DB().Info().PageSize):
			return &damagedError{what: "its records are missing"}
		}
		return nil
	})
	if err == nil && foreign {
		err = fmt.Errorf("boltstore: %s is the bbolt file of another program: it was not changed; choose another path", s.path)
	}
	return found, err
}

// Get returns the record, expired or not, or [idempotent.ErrNoRecord]. It checks
// the context before the transaction.
func (s *Store) Get(ctx context.Context, id driver.RecordID) (r *driver.Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.view(func(tx *bbolt.Tx) (err error) {
		r, err = read(tx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// read returns the record id in the view of tx.
func read(tx *bbolt.Tx, id driver.RecordID) (*driver.Record, error) {
	value := tx.Bucket(bucket).Get([]byte(id))
	if value == nil {
		return nil, driver.ErrNoRecord
	}
	return decode(id, value)
}

// errRefused rolls back a write transaction without a write, so that it makes no
// fsync.
var errRefused = errors.New("boltstore: refused")

// Insert writes r unless there is a record that has not expired at now; it then
// returns that record. It checks the context before the transaction and while it
// waits for another writer. A transaction that has begun is finished.
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (existing *driver.Record, err error) {
	// Most requests with a live record end here, without an fsync and without
	// waiting for a writer.
	existing, err = s.Get(ctx, r.ID)
	switch {
	case err == nil && live(existing, now):
		return existing, nil
	case err != nil && !errors.Is(err, driver.ErrNoRecord):
		return nil, err
	}
	value, err := encode(&r)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		// Another writer may have inserted a record since.
		existing, err = read(tx, r.ID)
		switch {
		case err == nil && live(existing, now):
			return errRefused
		case err != nil && !errors.Is(err, driver.ErrNoRecord):
			return err
		}
		b := tx.Bucket(bucket)
		if existing == nil {
			if err := added(b, 1); err != nil {
				return err
			}
		}
		existing = nil
		return b.Put([]byte(r.ID), value)
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return existing, nil
}

// live reports whether r prevents an insert at now.
func live(r *driver.Record, now time.Time) bool {
	return r.Expires.IsZero() || r.Expires.After(now)
}

// Replace writes r if the record has the version was. Otherwise it writes nothing
// and returns the current record, or [idempotent.ErrNoRecord]. It checks the
// context before the transaction and while it waits for another writer. A
// transaction that has begun is finished.
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (current *driver.Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := encode(&r)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		current, err = read(tx, r.ID)
		switch {
		case err != nil:
			return err
		case current.Version != was:
			return errRefused
		}
		current = nil
		return tx.Bucket(bucket).Put([]byte(r.ID), value)
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return current, nil
}

// Delete removes the record id if it has the version was and is completed or
// retryable. Otherwise it removes nothing and returns the current record, or
// [idempotent.ErrNoRecord].
//
// The key of a deleted record counts as new. So use Delete only for records past
// their Expires. Delete does not check Expires: the caller does, and the version
// ensures that the deleted record is the one that the caller read. [Store.Purge]
// removes all expired records.
func (s *Store) Delete(ctx context.Context, id driver.RecordID, was driver.Version) (current *driver.Record, err error) {
	err = s.update(ctx, func(tx *bbolt.Tx) (err error) {
		current, err = read(tx, id)
		switch {
		case err != nil:
			return err
		case current.Version != was,
			current.State != driver.StateCompleted && current.State != driver.StateRetryable:
			return errRefused
		}
		current = nil
		b := tx.Bucket(bucket)
		return errors.Join(b.Delete([]byte(id)), added(b, -1))
	})
	if err != nil && !errors.Is(err, errRefused) {
		return nil, err
	}
	return current, nil
}

const (
	// grace is how long an expired record stays, as in the other stores: a worker
	// whose clock is slow still finds it.
	grace = time.Hour
	// purgeBatch limits how many records one transaction reads. A long transaction
	// would prevent bbolt from reusing pages, and make writers wait.
	purgeBatch = 1000
)

// Purge removes the records that expired more than an hour before now and returns
// how many. A record of a later version stays; a damaged one ends the purge with
// an error. Open calls Purge once. A long-running process should call it from time
// to time, because otherwise the file grows. Purge checks the context between
// transactions of 1,000 records.
func (s *Store) Purge(ctx context.Context, now time.Time) (int, error) {
	dropped := 0
	after := []byte(nil) // the last key read
	for {
		if err := ctx.Err(); err != nil {
			return dropped, err
		}
		var expired [][]byte
		last, err := s.scan(after, now, &expired)
		if err != nil {
			return dropped, err
		}
		if len(expired) > 0 {
			n, err := s.drop(ctx, expired, now)
			dropped += n
			if err != nil {
				return dropped, err
			}
		}
		if last == nil {
			return dropped, nil
		}
		after = last
	}
}

// scan reads the next batch of records after the key after and collects the keys
// of those to remove. It returns the last key read, or nil at the end.
func (s *Store) scan(after []byte, now time.Time, expired *[][]byte) (last []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		key, value := c.Seek(after)
		if after != nil && string(key) == string(after) {
			key, value = c.Next()
		}
		for range purgeBatch {
			if key == nil {
				last = nil
				return nil
			}
			last = append(last[:0], key...)
			old, err := outlived(key, value, now)
			if err != nil {
				return err
			}
			if old {
				*expired = append(*expired, append([]byte{}, key...))
			}
			key, value = c.Next()
		}
		return nil
	})
	return last, err
}

// drop deletes the records keys, except those that were replaced since.
func (s *Store) drop(ctx context.Context, keys [][]byte, now time.Time) (n int, err error) {
	err = s.update(ctx, func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, key := range keys {
			value := b.Get(key)
			if value == nil {
				continue
			}
			old, err := outlived(key, value, now)
			if err != nil {
				return err
			}
			if !old {
				continue
			}
			if err := b.Delete(key); err != nil {
				return err
			}
			n++
		}
		return added(b, -n)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// outlived reports whether the record expired long enough ago. A record of a later
// version never counts as such, because this version does not know what it
// protects.
func outlived(key, value []byte, now time.Time) (bool, error) {
	r, err := decode(driver.RecordID(key), value)
	if isDamage(err) {
		return false, err
	}
	return err == nil && !r.Expires.IsZero() && r.Expires.Add(grace).Before(now), nil
}
