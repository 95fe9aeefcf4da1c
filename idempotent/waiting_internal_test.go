// SPDX-License-Identifier: Apache-2.0

package idempotent

import "testing"

// A key takes memory only while requests wait for it.
func TestWaitingForgetsKeys(t *testing.T) {
	t.Parallel()
	var w waiting
	first, second := w.join("a"), w.join("a")
	first()
	if len(w.count) != 1 || w.count["a"] != 1 {
		t.Errorf("one of two requests has left: %v", w.count)
	}
	second()
	if len(w.count) != 0 {
		t.Errorf("both have left: %v", w.count)
	}
}
