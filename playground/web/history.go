// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// The newest so many keys are remembered, and so many entries of each. With the limits
// of an exchange, that is 20 MB at most.
const (
	maxKeys    = 50
	maxEntries = 30
)

// History remembers the writes that reach a store, and the workers that were killed.
// It is safe for concurrent use.
type History struct {
	store driver.Store
	log   journal[driver.RecordID, entry]
}

// entry is a change of a record, or the death of its worker.
type entry struct {
	At      time.Time     `json:"at"`
	State   string        `json:"state"`
	Attempt int           `json:"attempt,omitempty"`
	Reason  driver.Reason `json:"reason"` // or a sentence
	By      string        `json:"by,omitempty"`
}

// NewHistory returns an empty history of a store.
func NewHistory(store driver.Store) *History { return &History{store: store} }

// By returns the store for one writer. The page shows the sentence by with its
// writes.
func (h *History) By(by string) driver.Store { return &writer{h, by} }

func (h *History) killed(id driver.RecordID, pid int) {
	h.log.add(id, entry{At: time.Now().UTC(), State: "worker killed", Reason: driver.Reason(fmt.Sprintf("Process %d got SIGKILL while the provider worked.", pid))})
}

// writer is the store as one of its writers has it.
type writer struct {
	*History
	by string
}

// Get reads a record.
func (w *writer) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	return w.store.Get(ctx, id)
}

// Insert remembers a record that was written.
func (w *writer) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	existing, err := w.store.Insert(ctx, r, now)
	w.note(r, existing, err)
	return existing, err
}

// Replace remembers a record that was written.
func (w *writer) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	current, err := w.store.Replace(ctx, r, was)
	w.note(r, current, err)
	return current, err
}

func (w *writer) note(r driver.Record, other *driver.Record, err error) {
	if err == nil && other == nil {
		w.log.add(r.ID, entry{time.Now().UTC(), r.State.String(), r.Attempt, r.Reason, w.by})
	}
}

// journal has the newest entries of the newest keys.
type journal[K comparable, E any] struct {
	mu      sync.Mutex
	keys    []K // the oldest first
	entries map[K][]E
}

func (j *journal[K, E]) add(key K, e E) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries == nil {
		j.entries = map[K][]E{}
	}
	if _, known := j.entries[key]; !known {
		if len(j.keys) == maxKeys {
			delete(j.entries, j.keys[0])
			j.keys = j.keys[1:]
		}
		j.keys = append(j.keys, key)
	}
	list := append(j.entries[key], e)
	j.entries[key] = list[max(0, len(list)-maxEntries):]
}

func (j *journal[K, E]) of(key K) []E {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries[key])
}
