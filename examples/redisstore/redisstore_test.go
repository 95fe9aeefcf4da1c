// SPDX-License-Identifier: Apache-2.0

package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/once-lambda/once/examples/redisstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// store is a store with its server, which runs in this process.
type store struct {
	*redisstore.Store
	server *miniredis.Miniredis
}

func (s store) reopen(t testing.TB) driver.Store {
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s.Store = redisstore.New(client, "once:")
	return s
}

func key(id idempotent.RecordID) string { return "once:record:" + string(id) }

var fixture = idempotenttest.Fixture{
	Open: func(t testing.TB) driver.Store {
		server := miniredis.RunT(t)
		server.SetTime(time.Unix(0, 0)) // it removes nothing while a suite moves its own clock
		return store{server: server}.reopen(t)
	},
	Reopen: func(t testing.TB, s driver.Store) driver.Store { return s.(store).reopen(t) },
	Remove: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
		s.(store).server.Del(key(id))
		return nil
	},
	Damage: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
		s.(store).server.HSet(key(id), "doc", "{")
		return nil
	},
}

func TestStore(t *testing.T) { idempotenttest.RunStore(t, fixture) }
func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, fixture, func(o *idempotenttest.FailureModesOptions) { o.Seeds = 2 })
}

// The server removes a record an hour after it has expired, and keeps one that does
// not expire.
func TestServerRemovesExpiredRecords(t *testing.T) {
	t.Parallel()
	s := fixture.Open(t).(store)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s.server.SetTime(now)
	for name, expires := range map[string]time.Time{"expires": now.Add(time.Minute), "stays": {}} {
		id := idempotent.Key{Operation: "charge", Scope: "acme", ID: name}.RecordID()
		if met, err := s.Insert(t.Context(), driver.Record{ID: id, State: driver.StateCompleted, Expires: expires}, now); met != nil || err != nil {
			t.Fatal(met, err)
		}
		s.server.FastForward(time.Hour)
		if !s.server.Exists(key(id)) {
			t.Errorf("%s: removed too early", name)
		}
		s.server.FastForward(2 * time.Minute)
		if s.server.Exists(key(id)) != (name == "stays") {
			t.Errorf("%s: after an hour and two minutes it exists: %t", name, s.server.Exists(key(id)))
		}
	}
}
