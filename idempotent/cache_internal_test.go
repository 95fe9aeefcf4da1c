// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"fmt"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

func completedRecord(id string, v byte, bytes int) *driver.Record {
	return &driver.Record{ID: RecordID(id), State: driver.StateCompleted, Version: driver.Version{v}, Result: make([]byte, bytes), Expires: at.Add(time.Minute)}
}

func cacheOf(entries, bytes int) *cache {
	return newCache(&Options{CacheEntries: entries, CacheBytes: bytes, CacheAge: time.Hour})
}

// FM38: a record that expired is dropped, to the millisecond, and frees its
// space.
func TestCacheDropsWhatHasExpired(t *testing.T) {
	t.Parallel()
	c := cacheOf(8, 1<<20)
	c.put(completedRecord("a", 1, 1), at)
	if c.get("a", at.Add(time.Minute-ms)) == nil {
		t.Error("the record was dropped too early")
	}
	if c.get("a", at.Add(time.Minute)) != nil || len(c.records) != 0 || c.held != 0 {
		t.Errorf("the record is still there: %d records, %d bytes", len(c.records), c.held)
	}
}

// The cache holds exactly as many bytes as its limit.
func TestCacheIsFilledToTheByte(t *testing.T) {
	t.Parallel()
	one := size(completedRecord("", 0, 100))
	c := cacheOf(8, 2*one)
	c.put(completedRecord("a", 1, 100), at)
	c.put(completedRecord("b", 1, 100), at)
	if c.get("a", at) == nil || c.get("b", at) == nil {
		t.Error("two records that exactly fill the cache were not both stored")
	}
	c.put(completedRecord("c", 1, 101), at)
	if c.get("c", at) == nil || c.held > 2*one {
		t.Errorf("%d bytes of %d are held", c.held, 2*one)
	}
	whole := cacheOf(8, one)
	whole.put(completedRecord("a", 1, 100), at)
	if whole.get("a", at) == nil {
		t.Error("a record as large as the cache was not stored")
	}
	whole.put(completedRecord("b", 1, 101), at)
	if whole.get("b", at) != nil || whole.get("a", at) == nil {
		t.Error("a record larger than the cache was stored, or evicted another")
	}
}

// A record that was written again replaces the earlier version.
func TestCacheKeepsTheLatestVersion(t *testing.T) {
	t.Parallel()
	c := cacheOf(2, 1<<20)
	for v := range byte(5) {
		c.put(completedRecord("a", v, int(v)), at)
		if got := c.get("a", at); got == nil || got.Version != (driver.Version{v}) {
			t.Fatalf("got %+v, want version %d", got, v)
		}
		if len(c.records) != 1 || c.recent.Len() != 1 || c.held != size(completedRecord("a", v, int(v))) {
			t.Errorf("%d records, %d in order, %d bytes for one", len(c.records), c.recent.Len(), c.held)
		}
	}
	for i := range 10 {
		c.put(completedRecord(fmt.Sprint(i), 1, 1), at)
	}
	if len(c.records) != 2 || c.recent.Len() != 2 {
		t.Errorf("%d records, %d in order, want 2", len(c.records), c.recent.Len())
	}
}
