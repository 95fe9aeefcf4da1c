// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
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
