// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"slices"
	"sync"

	"github.com/once-lambda/once/idempotent/event"
)

// Recorder is an [event.Observer] that stores every event. It is safe for
// concurrent use; the zero Recorder is ready.
type Recorder struct {
	mu     sync.Mutex
	events []event.Event
}

// Observe stores e.
func (r *Recorder) Observe(_ context.Context, e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events observed so far, in order.
func (r *Recorder) Events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Kinds returns the kinds of the events observed so far, in order.
func (r *Recorder) Kinds() []event.Kind {
	var kinds []event.Kind
	for _, e := range r.Events() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// Count returns how many events of a kind were observed so far.
func (r *Recorder) Count(kind event.Kind) int {
	n := 0
	for _, k := range r.Kinds() {
		if k == kind {
			n++
		}
	}
	return n
}
