package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// entry is one effect in the ledger.
type entry struct {
	Record  string
	Proof   string
	Request string
}

// ledger is a file of effects that all processes append to. Each effect is one
// write, which the kernel completes or does not begin: a dead process writes
// nothing more.
type ledger struct {
	file *os.File

	mu      sync.Mutex
	offset  int64
	entries map[string][]entry // by record, as far as the file was read
}

func openLedger(name string) (*ledger, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_SYNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{file: file, entries: map[string][]entry{}}, nil
}

// append makes an effect happen.
func (l *ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// of returns the effects of a record that were written before the call.
func (l *ledger) of(record string) ([]entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := io.ReadAll(io.NewSectionReader(l.file, l.offset, 1<<40))
	if err != nil {
		return nil, err
	}
	for {
		line, rest, complete := bytes.Cut(data, []byte("\n"))
		if !complete {
			return l.entries[record], nil
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("chaos: the ledger has an unreadable line %q: %w", line, err)
		}
		l.entries[e.Record] = append(l.entries[e.Record], e)
		l.offset += int64(len(line)) + 1
		data = rest
	}
}
