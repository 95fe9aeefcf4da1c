// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// The newest so many keys are remembered, and so many entries of each.
const (
	maxKeys    = 100
	maxEntries = 30
)

// Writes remembers the writes that reach a store. It is safe for concurrent use.
type Writes struct {
	store driver.Store
	log   journal[driver.RecordID, Write]
}

// Write is a change of a record.
type Write struct {
	At      time.Time     `json:"at"`
	State   string        `json:"state"`
	Attempt int           `json:"attempt"`
	Reason  driver.Reason `json:"reason"`
	By      string        `json:"by"`
}

// NewWrites returns a Writes for a store.
func NewWrites(store driver.Store) *Writes { return &Writes{store: store} }

// By returns the store for one writer, whose name is shown with its writes.
func (w *Writes) By(name string) driver.Store { return &writer{w, name} }

// Of returns the writes of a record, the oldest first.
func (w *Writes) Of(id driver.RecordID) []Write { return w.log.of(id) }

// writer is the store as one of its writers has it.
type writer struct {
	*Writes
	name string
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
		w.log.add(r.ID, Write{time.Now().UTC(), r.State.String(), r.Attempt, r.Reason, w.name})
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
