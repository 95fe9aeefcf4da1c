package idempotent

import (
	"container/list"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// cache keeps completed records of one guard in memory: bounded by entries, by
// the bytes of their results, and by age. It holds no other state, because any
// other may change; a completed record does not change before it expires. What
// it returns goes through decide like a record from the store.
//
// A nil cache keeps nothing. A cache is safe for concurrent use.
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

// size is what a record counts for: its result, and what it needs besides.
func size(r *driver.Record) int { return len(r.Result) + 512 }

// get returns a copy of the record of that id, or nil: what a codec decodes may
// be part of the bytes it was decoded from, and the caller may change it.
func (c *cache) get(id RecordID, now time.Time) *driver.Record {
	if c == nil {
		return nil
	}
	if r := c.find(id, now); r != nil {
		return r.Clone()
	}
	return nil
}

// find returns the record itself, which does not change.
func (c *cache) find(id RecordID, now time.Time) *driver.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.records[id]
	if e == nil {
		return nil
	}
	entry := e.Value.(*cached)
	if !now.Before(entry.until) || pastRetention(entry.record, now) {
		c.drop(e)
		return nil
	}
	c.recent.MoveToFront(e)
	return entry.record
}

// put keeps a copy of a completed record that is whole: with its result.
func (c *cache) put(r *driver.Record, now time.Time) {
	if c == nil || r.State != driver.StateCompleted || size(r) > c.bytes {
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

func (c *cache) drop(e *list.Element) {
	entry := c.recent.Remove(e).(*cached)
	delete(c.records, entry.record.ID)
	c.held -= size(entry.record)
}
