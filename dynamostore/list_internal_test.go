// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// After the caller stops, nothing more is yielded, even if producers find more.
func TestGather_Enough(t *testing.T) {
	t.Parallel()
	given := 0
	gather(t.Context(), 8, 8, func(driver.Record, error) bool { given++; return false },
		func(_ context.Context, _ int, found func(entry) bool) error {
			for range 100 {
				found(entry{record: driver.Record{ID: "charge#1"}})
			}
			return nil
		})
	if given != 1 {
		t.Errorf("%d records were yielded", given)
	}
}
