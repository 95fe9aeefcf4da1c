// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// SetLease sets the end of the lease of a record in progress, so that a test does not
// wait for it, and cannot miss it. It changes no record in another state.
func SetLease(t testing.TB, s driver.Store, id idempotent.RecordID, end time.Time) {
	t.Helper()
	for {
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != driver.StateInProgress {
			return
		}
		was := r.Version
		rand.Read(r.Version[:])
		r.LeaseEnd = end.UTC().Truncate(time.Millisecond)
		r.Due = r.LeaseEnd
		switch current, err := s.Replace(t.Context(), *r, was); {
		case err != nil:
			t.Fatal(err)
		case current == nil || current.Version == r.Version: // its own: sent twice
			return
		}
	}
}
