// SPDX-License-Identifier: Apache-2.0

package idempotent

import "sync"

// maxWaiting is how many requests of one guard wait for one key at the same time.
// Each poll costs a read, and each waiting request occupies a client's connection.
const maxWaiting = 100

// waiting counts the requests that wait for each key.
type waiting struct {
	mu    sync.Mutex
	count map[RecordID]int
}

// join lets a request wait for the key of id until it calls leave. It returns nil
// if enough requests wait for it.
func (w *waiting) join(id RecordID) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[id] == maxWaiting {
		return nil
	}
	if w.count == nil {
		w.count = map[RecordID]int{}
	}
	w.count[id]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.count[id]--; w.count[id] == 0 {
			delete(w.count, id)
		}
	}
}
