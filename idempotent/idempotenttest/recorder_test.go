// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"slices"
	"testing"

	"github.com/once-lambda/once/idempotent/event"
)

// What a Recorder returns is a copy, which a test can sort or change.
func TestRecorder(t *testing.T) {
	t.Parallel()
	var r Recorder
	for _, kind := range []event.Kind{event.Reserved, event.Completed, event.Replayed, event.Replayed} {
		r.Observe(t.Context(), event.Event{Kind: kind})
	}
	r.Events()[0].Kind = event.Replayed
	if got, want := r.Kinds(), []event.Kind{event.Reserved, event.Completed, event.Replayed, event.Replayed}; !slices.Equal(got, want) || r.Count(event.Replayed) != 2 {
		t.Errorf("got %v and %d replays, want %v", got, r.Count(event.Replayed), want)
	}
}
