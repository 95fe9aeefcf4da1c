// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"container/list"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// cache holds completed records of one guard in memory, limited by the number of
// entries, the size of their results, and age. It holds no other states, because
// records in them can change; a completed record changes before it expires only
// if its outcome is discarded or corrected. A record from the cache goes through decide like one from the store.
//
// A cache is safe for concurrent use.
type cache struct {
	entries, bytes int
	age            time.Duration

	mu      sync.Mutex
	held    int // bytes
	recent  *list.List
	records map[RecordID]*list.Element
}

type cached struct {
	record *driver.Record
	until  time.Time
}

func newCache(o *Options) *cache {
	if o.CacheEntries == 0 {
		return nil
	}
	return &cache{
		entries: o.CacheEntries, bytes: o.CacheBytes, age: o.CacheAge,
		recent: list.New(), records: map[RecordID]*list.Element{},
	}
}

// size returns the size counted for a record: its result plus a fixed overhead.
func size(r *driver.Record) int { return len(r.Result) + 512 }

// get returns a copy of the record with that id, or nil. It copies because a
// decoded value may share memory with the bytes, and the caller may change the
// value.
func (c *cache) get(id RecordID, now time.Time) *driver.Record {
	if r := c.find(id, now); r != nil {
		return r.Clone()
	}
	return nil
}

// find returns the cached record itself, which must not be changed.
func (c *cache) find(id RecordID, now time.Time) *driver.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.records[id]
	if e == nil {
		return nil
	}
	entry := e.Value.(*cached)
	if !now.Before(entry.until) || entry.record.Expired(now) {
		c.drop(e)
		return nil
	}
	c.recent.MoveToFront(e)
	return entry.record
}

// put stores a copy of a completed record that includes its result.
func (c *cache) put(r *driver.Record, now time.Time) {
	if r.State != driver.StateCompleted || size(r) > c.bytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.records[r.ID]; e != nil {
		if e.Value.(*cached).record.Version == r.Version {
			return // its age counts from when it was read
		}
		c.drop(e)
	}
	c.records[r.ID] = c.recent.PushFront(&cached{record: r.Clone(), until: now.Add(c.age)})
	c.held += size(r)
	for c.recent.Len() > c.entries || c.held > c.bytes {
		c.drop(c.recent.Back())
	}
}

// remove removes the record with that id, because its outcome was discarded or corrected.
// A nil cache has no records.
func (c *cache) remove(id RecordID) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.records[id]; e != nil {
		c.drop(e)
	}
}

func (c *cache) drop(e *list.Element) {
	entry := c.recent.Remove(e).(*cached)
	delete(c.records, entry.record.ID)
	c.held -= size(entry.record)
}
