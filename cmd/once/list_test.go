// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The oldest records are kept, in whatever order they are found, and few others.
func TestOldest(t *testing.T) {
	t.Parallel()
	const many = 50
	for _, limit := range []int{1, 7, many - 1, many, many + 1} {
		o := &oldest{limit: limit}
		for i := range many {
			age := time.Duration((i*37)%many) * time.Minute
			o.add(&driver.Record{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID(), Created: night.Add(-age)})
			if len(o.views) >= 2*limit || i+1 < 2*limit && len(o.views) != i+1 {
				t.Fatalf("%d records of %d are held for a limit of %d", len(o.views), i+1, limit)
			}
		}
		views := o.sorted()
		if len(views) != min(limit, many) {
			t.Errorf("limit %d: %d records", limit, len(views))
		}
		for i, v := range views {
			if want := night.Add(-time.Duration(many-1-i) * time.Minute); !v.Created.Equal(want) {
				t.Errorf("limit %d: %d: created %s, want %s", limit, i, v.Created, want)
			}
		}
	}
}
