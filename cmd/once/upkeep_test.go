// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

func TestStats(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.once("stats").ok().golden("stats")
	d.once("stats", "--json").ok().golden("stats-json")
	newDesk(t).once("stats").ok().golden("stats-empty")
}

// For a table the output contains the cost of the read.
func TestStats_Price(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &env{world: &world{stdout: &out, now: newDesk(t).world.now}}
	s := &stats{Records: 1}
	s.cost(dynamostore.ScanProgress{Items: 1_234_567, ReadUnits: 8_000_000.5})
	if err := (&statsCmd{e}).print(s); err != nil {
		t.Fatal(err)
	}
	if want := "this read   1,234,567 items, 8000000.5 read units, about $1.000000 (on demand, us-east-1)\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q", out.String())
	}
}

// expired returns expired records of every state and of two operations, and one
// within the grace.
func expired(t *testing.T) []driver.Record {
	t.Helper()
	var list []driver.Record
	add := func(operation, id string, s driver.State, age time.Duration) {
		list = append(list, record(key(operation, "acme", id), age, func(r *driver.Record) {
			settled(r, s, driver.ReasonResult, age)
			r.Encoding, r.Result = "json", []byte(`"a result"`)
			r.Expires = r.Since.Add(24 * time.Hour)
		}))
	}
	for _, operation := range []string{"charge", "refund"} {
		add(operation, "done", driver.StateCompleted, 72*time.Hour)
		add(operation, "free", driver.StateRetryable, 48*time.Hour)
		add(operation, "unknown", driver.StateUnknown, 72*time.Hour)
		add(operation, "running", driver.StateInProgress, 72*time.Hour)
		add(operation, "just now", driver.StateCompleted, 25*time.Hour) // expired, within the grace
		add(operation, "fresh", driver.StateCompleted, time.Hour)
	}
	return list
}

// Only completed and retryable records past their expiry and the grace are
// removed, and only with --yes.
func TestPurge(t *testing.T) {
	t.Parallel()
	d := newDesk(t, expired(t)...)
	d.once("purge").ok().golden("purge")
	d.once("purge", "--operation", "refund", "--before", "60h").ok().says("1 record would be removed")
	d.once("purge", "--before", "2026-11-18T12:00:00Z").ok().says("2 records would be removed")
	d.once("purge", "--before", "yesterday").exits(exitUsage).says("--before")
	if left := d.left(); len(left) != 12 {
		t.Fatalf("%d records are left of 12 after dry runs", len(left))
	}
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	d.once("purge", "--yes", "--operation", "refund", "--audit", audit).ok().golden("purge-yes")
	left := d.left()
	for _, r := range expired(t) {
		gone := r.ID.Operation() == "refund" && (r.State == driver.StateRetryable || r.State == driver.StateCompleted && r.Created.Equal(before(72*time.Hour)))
		if left[r.ID] == gone {
			t.Errorf("%s, %s: gone is %t", r.ID, r.State, !left[r.ID])
		}
	}
	d.once("purge", "--yes", "--json").ok().golden("purge-json")
	if left := d.left(); len(left) != 8 {
		t.Errorf("%d records are left, want 8", len(left))
	}
}

// left returns the ids of the records in the file.
func (d *desk) left() map[idempotent.RecordID]bool {
	all := map[idempotent.RecordID]bool{}
	d.store(func(s *boltstore.Store) {
		for r, err := range s.All(d.t.Context()) {
			if err != nil {
				d.t.Error(err)
			}
			all[r.ID] = true
		}
	})
	return all
}

// racing is a store in which another writer is always faster, or every delete
// fails.
type racing struct {
	records
	current *driver.Record
	err     error
}

func (r racing) Delete(context.Context, idempotent.RecordID, driver.Version) (*driver.Record, error) {
	return r.current, r.err
}

// Records that changed during the purge stay and are counted; an error of the
// store is returned once.
func TestPurge_Races(t *testing.T) {
	t.Parallel()
	list := func(yield func(driver.Record, error) bool) {
		for _, r := range expired(t) {
			if !yield(r, nil) {
				return
			}
		}
	}
	all := func(r *driver.Record) bool { return purgeable(r, night) }
	for name, store := range map[string]racing{
		"replaced": {current: &driver.Record{}},
		"gone":     {err: idempotent.ErrNoRecord},
		"down":     {err: errors.New("the store is down")},
	} {
		p := &purge{from: &opened{records: store}, removed: map[string]*purged{}}
		err := p.walk(t.Context(), list, all)
		if p.total() != 0 {
			t.Errorf("%s: %d removed", name, p.total())
		}
		if down := name == "down"; down != (err != nil) || !down && p.moved != 4 || down && strings.Count(err.Error(), "down") != 1 {
			t.Errorf("%s: %d moved, %v", name, p.moved, err)
		}
	}
}
