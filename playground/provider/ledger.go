// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Charge is one line of the ledger, and the provider's answer for it.
type Charge struct {
	ID       string            `json:"id"`
	Amount   int64             `json:"amount"` // in the currency's smallest unit
	Currency string            `json:"currency"`
	Customer string            `json:"customer"`
	Status   string            `json:"status"`
	Key      string            `json:"idempotency_key"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// ledger is the file of charges: JSON lines that are only ever appended. The
// caller must ensure that only one goroutine uses it at a time.
type ledger struct {
	file    *os.File
	size    int64 // of the complete lines
	broken  error // why nothing can be appended any more
	charges []Charge
	byKey   map[string]int
	byID    map[string]int
}

// openLedger reads the ledger in path, or creates an empty one.
func openLedger(path string) (*ledger, error) {
	_, statErr := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("provider: cannot open the ledger: %w", err)
	}
	l := &ledger{file: file, byKey: map[string]int{}, byID: map[string]int{}}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("provider: the ledger %s is held by another process; stop it, or choose another file: %w", path, err)
		return nil, errors.Join(err, file.Close())
	}
	if err := l.read(path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		// The name of a new file is durable only after its directory was
		// synced.
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return l, nil
}

// read reads all complete lines. An incomplete last line was being written when
// the process died. Its charge was never confirmed to a caller, so the line is
// cut off.
func (l *ledger) read(path string) error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("provider: cannot read the ledger: %w", err)
	}
	for n := 1; ; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break
		}
		var c Charge
		if json.Unmarshal(line, &c) != nil || c.ID == "" || c.Key == "" {
			return fmt.Errorf("provider: line %d of the ledger %s is not a charge; restore the file, or move it away to start an empty one", n, path)
		}
		l.add(c)
		l.size += int64(len(line)) + 1
		data = rest
	}
	if len(data) > 0 {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("provider: cannot cut off the incomplete last line of the ledger: %w", err)
		}
	}
	return nil
}

func (l *ledger) add(c Charge) {
	l.byKey[c.Key], l.byID[c.ID] = len(l.charges), len(l.charges)
	l.charges = append(l.charges, c)
}

// append books c. If it returns nil, the charge is on disk.
func (l *ledger) append(c Charge) error {
	if l.broken != nil {
		return l.broken
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := l.file.WriteAt(line, l.size); err != nil {
		if cut := l.file.Truncate(l.size); cut != nil {
			return l.fail(cut)
		}
		return err // for example a full disk: the ledger is unchanged
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(err) // it is unknown whether the line survives a crash
	}
	l.size += int64(len(line))
	l.add(c)
	return nil
}

// fail disables all further bookings.
func (l *ledger) fail(err error) error {
	l.broken = fmt.Errorf("provider: the ledger can no longer be written; restart to read what it contains: %w", err)
	return l.broken
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
