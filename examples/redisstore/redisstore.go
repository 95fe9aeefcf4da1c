// SPDX-License-Identifier: Apache-2.0

// Package redisstore is an example of a store: the records of once in Redis or
// Valkey. docs/your-own-store.md explains it.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Store keeps each record in a hash, with its version, its expiry and its document.
// Two sorted sets list the records that wait for reconciliation. It is safe for
// concurrent use.
type Store struct {
	client *redis.Client
	prefix string
}

// New returns a store of a server that never evicts keys and syncs every write to
// disk (maxmemory-policy noeviction, appendfsync always). All keys begin with prefix.
func New(client *redis.Client, prefix string) *Store { return &Store{client, prefix} }

// write runs in the server as one step: it writes the record if it may, and
// otherwise returns the current document.
var write = redis.NewScript(`
local record, due, exhausted = KEYS[1], KEYS[2], KEYS[3]
local op, was, now, id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local version, expires, doc, removed, dueAt, givenUpAt = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local current = redis.call('HMGET', record, 'version', 'expires', 'doc')
if op == 'insert' and current[1] and (current[2] == '' or tonumber(current[2]) > now) then return current[3] end
if op == 'replace' and not current[1] then return false end
if op == 'replace' and current[1] ~= was then return current[3] end
redis.call('HSET', record, 'version', version, 'expires', expires, 'doc', doc)
if removed == '' then redis.call('PERSIST', record) else redis.call('PEXPIREAT', record, removed) end
redis.call('ZREM', due, id)
redis.call('ZREM', exhausted, id)
if dueAt ~= '' then redis.call('ZADD', due, dueAt, id) end
if givenUpAt ~= '' then redis.call('ZADD', exhausted, givenUpAt, id) end
return ''`)

// Insert implements [driver.Store].
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	return s.write(ctx, "insert", &r, driver.Version{}, now)
}

// Replace implements [driver.Store].
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	current, err := s.write(ctx, "replace", &r, was, time.Time{})
	if errors.Is(err, redis.Nil) {
		return nil, idempotent.ErrNoRecord
	}
	return current, err
}

func (s *Store) write(ctx context.Context, op string, r *driver.Record, was driver.Version, now time.Time) (*driver.Record, error) {
	doc, err := r.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	dueAt, givenUpAt := r.Due, time.Time{}
	if r.Exhausted {
		dueAt, givenUpAt = givenUpAt, dueAt
	}
	removed := r.Expires
	if !removed.IsZero() {
		removed = removed.Add(time.Hour) // until then an expired record can be read
	}
	keys := []string{s.record(r.ID), s.prefix + "due", s.prefix + "exhausted"}
	current, err := write.Run(ctx, s.client, keys, op, fmt.Sprintf("%x", was), now.UnixMilli(), string(r.ID),
		fmt.Sprintf("%x", r.Version), millis(r.Expires), doc, millis(removed), millis(dueAt), millis(givenUpAt)).Text()
	if err != nil || current == "" {
		return nil, err
	}
	return decode(current)
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, id idempotent.RecordID) (*driver.Record, error) {
	doc, err := s.client.HGet(ctx, s.record(id), "doc").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, idempotent.ErrNoRecord
	case err != nil:
		return nil, err
	}
	return decode(doc)
}

// Due implements [driver.DueLister].
func (s *Store) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return s.list(ctx, "due", after)
}

// Exhausted implements [driver.DueLister].
func (s *Store) Exhausted(c context.Context) iter.Seq2[driver.Listed, error] {
	return s.list(c, "exhausted", time.Time{})
}

// list reads what a sorted set has after a time, at once, and the records one by one. A
// record that has left the set meanwhile is left out.
func (s *Store) list(ctx context.Context, set string, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		from := "-inf"
		if !after.IsZero() {
			from = "(" + millis(after) // without after itself
		}
		ids, err := s.client.ZRangeArgs(ctx, redis.ZRangeArgs{Key: s.prefix + set, ByScore: true, Start: from, Stop: "+inf"}).Result()
		if err != nil {
			yield(driver.Listed{}, err)
			return
		}
		for _, id := range ids {
			entry := driver.Listed{ID: idempotent.RecordID(id)}
			r, err := s.Get(ctx, entry.ID)
			if errors.Is(err, idempotent.ErrNoRecord) {
				continue
			}
			if err == nil {
				entry = r.Listed()
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

func (s *Store) record(id idempotent.RecordID) string { return s.prefix + "record:" + string(id) }

func decode(doc string) (*driver.Record, error) {
	var r driver.Record
	if err := r.UnmarshalJSON([]byte(doc)); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return &r, nil
}

// millis returns a time in milliseconds, and "" for one that is not set.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}
