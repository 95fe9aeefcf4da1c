// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
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

// slow is a store of which each read takes a second.
type slow struct{ records }

// Get returns a record.
func (slow) Get(_ context.Context, id idempotent.RecordID) (*driver.Record, error) {
	time.Sleep(time.Second)
	return &driver.Record{ID: id}, nil
}

// The records of a list are read 16 at a time, also before its error, which a reader
// that stops does not get.
func TestRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := func(yield func(driver.Listed, error) bool) {
			for i := range 40 {
				if !yield(driver.Listed{ID: idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(i)}.RecordID()}, nil) {
					return
				}
			}
			yield(driver.Listed{}, io.ErrUnexpectedEOF)
		}
		for stop, seconds := range map[int]time.Duration{5: 1, 33: 3, 50: 3} {
			n, began := 0, time.Now()
			for r, err := range (&opened{records: slow{}}).read(t.Context(), list, nil, func(*driver.Record) bool { return true }) {
				if n++; (err != nil) != (n == 41) || (r.ID == "") != (n == 41) {
					t.Errorf("%d: %s, %v", n, r.ID, err)
				}
				if n == stop {
					break
				}
			}
			if took := time.Since(began); n != min(stop, 41) || took != seconds*time.Second {
				t.Errorf("%d yielded in %s to a reader of %d", n, took, stop)
			}
		}
	})
}
