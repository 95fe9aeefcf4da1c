package model_test

import (
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/tests/model"
	"github.com/once-lambda/once/tests/tally"
)

// crowd is many goroutines that share one guard and few keys. Now and then one
// of them moves the clock: past leases, rarely past retentions.
type crowd struct {
	load
	guard *idempotent.Guard
	store driver.Store // the lowest store
	mark  string
	seen  *tally.Tally

	clock  *jumpingClock
	stamps stamps
	owners atomic.Int64

	mu     sync.Mutex
	inside map[[2]int]int64 // the running handlers, by key and owner, with the end of their lease
	wrong  []string         // violations that need no search
}

const (
	shortJump = 7 * time.Minute // two of them end a lease
	longJump  = 25 * time.Hour  // ends a retention
)

var crowdPolicy = model.Policy{
	Margin:         leaseMargin.Milliseconds(),
	Retention:      24 * time.Hour.Milliseconds(),
	ReconcileAfter: time.Minute.Milliseconds(),
}

func newCrowd(t testing.TB, store driver.Store, l load, cached int, seen *tally.Tally) *crowd {
	t.Helper()
	c := &crowd{load: l, store: store, mark: cryptorand.Text(), seen: seen, clock: newJumpingClock(), inside: map[[2]int]int64{}}
	g, err := idempotent.New(withChunksOf(store, network{store}), func(o *idempotent.Options) {
		o.LeaseMargin = span(crowdPolicy.Margin)
		o.Retention = span(crowdPolicy.Retention)
		o.ReconcileAfter = span(crowdPolicy.ReconcileAfter)
		o.CacheEntries = cached
		o.Observer, o.Logger = event.ObserverFunc(observe), discard
		o.Now = func() time.Time { return time.UnixMilli(c.clock.now.Load()) }
	})
	if err != nil {
		t.Fatal(err)
	}
	c.guard = g
	return c
}

func (c *crowd) run(round int) []*history {
	return c.load.run(round, func(client int, r *rand.Rand, key int, h *history) {
		switch n := r.IntN(20 * c.goroutines); {
		case n < 4:
			c.clock.jump(longJump)
		case n < 14:
			c.clock.jump(shortJump)
		}
		m := &member{crowd: c, client: client, r: r, key: key, history: h}
		m.caller = caller{delays: sometimes(r, 2), loses: sometimes(r, 16), watch: m.watch}
		if r.IntN(6) == 0 {
			m.giveEvidence()
		} else {
			m.request()
		}
	})
}

func (c *crowd) keyOf(key, fingerprint int) idempotent.Key {
	return idempotent.Key{
		Operation: "crowd", Scope: c.mark, ID: fmt.Sprint(key),
		Fingerprint: idempotent.FingerprintBytes([]byte{byte(fingerprint)}),
	}
}

// enter records that a handler begins, and checks INV-1: no other one runs
// under a live lease. A handler whose own lease ended before it was entered may
// overlap with its successor; only the platform can prevent that.
func (c *crowd) enter(key, owner int, lease int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now.Load()
	for other, end := range c.inside {
		if other[0] == key && now < min(end, lease) {
			c.wrong = append(c.wrong, fmt.Sprintf("INV-1: %d entered the handler of key %d at %d, during the lease of %d until %d", owner, key, now, other[1], end))
		}
	}
	c.inside[[2]int{key, owner}] = lease
}

func (c *crowd) leave(key, owner int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inside, [2]int{key, owner})
}

// complain records a violation.
func (c *crowd) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}
