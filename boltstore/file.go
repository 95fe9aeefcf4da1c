// SPDX-License-Identifier: Apache-2.0

package boltstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/once-lambda/once/idempotent/driver"
)

// Store is a [driver.Store] in one file. Make one with [Open]. It is safe for
// concurrent use.
type Store struct {
	path string
	db   *bbolt.DB

	// write holds one token. bbolt admits one writer at a time and ignores the
	// context while a writer waits, so writers wait here.
	write chan struct{}

	// broken is set once bbolt panicked. Then bbolt may never release its locks,
	// and its memory may differ from the file, so it is not called again.
	broken atomic.Pointer[damagedError]

	close    sync.Once
	closeErr error
}

var _ driver.Store = (*Store)(nil)

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

// errRefused rolls back a write transaction without a write, so that it makes no
// fsync.
var errRefused = errors.New("boltstore: refused")
