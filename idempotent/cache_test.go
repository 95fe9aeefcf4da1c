// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// countingClaims returns a store that adds its claims to n.
func countingClaims(n *atomic.Int32) driver.Store {
	return answering(memstore.New(), driver.OpInsert, func(driver.Record) (*driver.Record, error) {
		n.Add(1)
		return nil, nil
	})
}

// cacheLab builds a guard with a cache over a store that counts its calls.
func cacheLab(t *testing.T, optFns ...func(*idempotent.Options)) (cost func(key idempotent.Key, result string) int) {
	t.Helper()
	var calls atomic.Int32
	g, _ := newGuardOver(t, countingClaims(&calls), optFns...)
	return func(key idempotent.Key, result string) int {
		t.Helper()
		before := calls.Load()
		got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return result, nil })
		if err != nil || got != result {
			t.Errorf("got %.20q and error %v", got, err)
		}
		return int(calls.Load() - before)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	const result = "ch_1"
	a, b, c := newKey(), newKey(), newKey()

	t.Run("off", func(t *testing.T) {
		t.Parallel()
		cost := cacheLab(t)
		cost(a, result)
		if n := cost(a, result); n != 1 {
			t.Errorf("a replay cost %d calls, want 1", n)
		}
	})
	t.Run("least recently used goes first", func(t *testing.T) {
		t.Parallel()
		cost := cacheLab(t, func(o *idempotent.Options) { o.CacheEntries = 2 })
		cost(a, result)
		cost(b, result)
		if n := cost(a, result); n != 0 {
			t.Errorf("a cached replay cost %d calls", n)
		}
		cost(c, result) // evicts b
		if n := cost(a, result); n != 0 {
			t.Errorf("the one used last cost %d calls", n)
		}
		if n := cost(b, result); n != 1 {
			t.Errorf("the one used least cost %d calls, want 1", n)
		}
	})
	t.Run("bounded by bytes", func(t *testing.T) {
		t.Parallel()
		cost := cacheLab(t, func(o *idempotent.Options) { o.CacheEntries, o.CacheBytes, o.Codec = 100, 10_000, raw{} })
		large := noise(6000)
		cost(a, large)
		if n := cost(a, large); n != 0 {
			t.Errorf("a result that fits cost %d calls", n)
		}
		cost(b, large) // evicts a
		if n := cost(a, large); n != 1 {
			t.Errorf("the evicted record cost %d calls, want 1", n)
		}
		cost(c, noise(20_000)) // never fits
		if n := cost(c, noise(20_000)); n != 1 {
			t.Errorf("a result larger than the cache cost %d calls, want 1", n)
		}
		if n := cost(a, large); n != 0 {
			t.Errorf("it evicted another record: %d calls", n)
		}
	})
	t.Run("bounded by age from when it was read", func(t *testing.T) {
		t.Parallel()
		clock := &idempotenttest.Clock{}
		cost := cacheLab(t, func(o *idempotent.Options) { o.CacheEntries, o.CacheAge, o.Now = 2, time.Minute, clock.Now })
		cost(a, result)
		clock.Advance(40 * time.Second)
		if n := cost(a, result); n != 0 {
			t.Errorf("a young record cost %d calls", n)
		}
		clock.Advance(30 * time.Second)
		if n := cost(a, result); n != 1 {
			t.Errorf("an old record cost %d calls, want 1", n)
		}
		if n := cost(a, result); n != 0 {
			t.Errorf("the record that was read again cost %d calls", n)
		}
	})
	t.Run("not shared", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		g, _ := newGuardOver(t, countingClaims(&calls), func(o *idempotent.Options) { o.CacheEntries = 2 })
		other, err := g.With()
		if err != nil {
			t.Fatal(err)
		}
		for want, g := range []*idempotent.Guard{g, other, other} {
			if _, err := idempotent.Do(t.Context(), g, a, func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
			if n := int(calls.Load()); n != min(want+1, 2) {
				t.Errorf("%d calls after request %d", n, want+1)
			}
		}
	})
}

// FM51: many goroutines, one guard, one key, with a cache. A handler returns only
// after another goroutine has read its record, which that goroutine does while it
// waits.
func TestManyGoroutinesOneGuard(t *testing.T) {
	t.Parallel()
	for _, entries := range []int{0, 8} {
		t.Run(fmt.Sprintf("cache of %d", entries), func(t *testing.T) {
			t.Parallel()
			at := map[idempotent.RecordID]func(){}
			store := answering(memstore.New(), driver.OpGet, func(r driver.Record) (*driver.Record, error) {
				at[r.ID]()
				return nil, nil
			})
			g, events := newGuardOver(t, store, func(o *idempotent.Options) { o.CacheEntries, o.WaitFor = entries, time.Minute })
			keys, met := make([]idempotent.Key, 16), make([]chan struct{}, 16)
			runs := make([]int, len(keys))
			for i := range keys {
				keys[i], met[i] = newKey(), make(chan struct{})
				at[keys[i].RecordID()] = sync.OnceFunc(func() { close(met[i]) })
			}
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for i, key := range keys {
						got, err := idempotent.Do(t.Context(), g, key, func(context.Context) (int, error) {
							runs[i]++ // a concurrent second run would be a race
							select {
							case <-met[i]:
							case <-time.After(time.Minute):
								t.Errorf("key %d: no other request read the record while it ran", i)
							}
							return i, nil
						})
						if err != nil || got != i {
							t.Errorf("key %d: got %d and error %v", i, got, err)
						}
					}
				})
			}
			wg.Wait()
			for i, n := range runs {
				if n != 1 {
					t.Errorf("key %d ran %d times", i, n)
				}
			}
			if n := events.Count(event.Replayed); n != 63*len(keys) {
				t.Errorf("%d replays, want %d", n, 63*len(keys))
			}
		})
	}
}

// shared is a codec that copies neither on encode nor on decode.
// An operation has no cache, so its options cannot change the one of the guard.
func TestCacheOptionOfAnOperation(t *testing.T) {
	t.Parallel()
	same := func(o *idempotent.Options) { o.CacheEntries, o.CacheBytes, o.CacheAge = 8, 1<<20, time.Hour }
	g, _ := newGuard(t, same)
	for name, option := range map[string]func(*idempotent.Options){
		"CacheEntries": func(o *idempotent.Options) { o.CacheEntries = 0 },
		"CacheBytes":   func(o *idempotent.Options) { o.CacheBytes++ },
		"CacheAge":     func(o *idempotent.Options) { o.CacheAge = time.Minute },
		"":             same,
	} {
		_, ofDo := idempotent.Do(t.Context(), g, newKey(), charged, option)
		_, ofDoOutcome := idempotent.DoOutcome(t.Context(), g, newKey(), charged, option)
		_, ofLookup := idempotent.Lookup[string](t.Context(), g, newKey(), option)
		for call, got := range map[string]string{
			"Do": fmt.Sprint(ofDo), "DoOutcome": fmt.Sprint(ofDoOutcome), "Lookup": fmt.Sprint(ofLookup), "Wrap": wrap[int](g, option),
		} {
			if refused := strings.Contains(got, "Options."+name+" is an option of the guard: pass it to New or Guard.With"); refused != (name != "") {
				t.Errorf("%s with %q: got error %s", call, name, got)
			}
		}
		if _, err := g.With(option); err != nil {
			t.Errorf("With %q: %v", name, err)
		}
	}
}

type shared struct{}

func (shared) Name() string                    { return "shared" }
func (shared) Encode(v any) ([]byte, error)    { return v.([]byte), nil }
func (shared) Decode(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// A caller that changes its result changes neither the cache nor what a commit
// stored.
func TestCallersDoNotShareMemory(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	options := func(o *idempotent.Options) { o.Codec, o.CacheEntries = shared{}, 8 }
	g, _ := newGuardOver(t, store, options)
	other, _ := newGuardOver(t, store, options)
	key := newKey()
	for i, guard := range []*idempotent.Guard{g, g, g, other, other, other} {
		got, err := idempotent.Do(t.Context(), guard, key, func(context.Context) ([]byte, error) { return []byte("ch_1"), nil })
		if err != nil || string(got) != "ch_1" {
			t.Errorf("call %d got %q and error %v", i, got, err)
		}
		copy(got, "????")
	}

	result := []byte("ch_2")
	got, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) ([]byte, error) {
		e, _ := idempotent.FromContext(ctx)
		if err := e.Commit(ctx, result, store.Replace); err != nil {
			t.Fatal(err)
		}
		copy(result, "????")
		return nil, io.ErrUnexpectedEOF // the committed outcome is final
	})
	if err != nil || string(got) != "ch_2" {
		t.Errorf("after a commit: got %q and error %v", got, err)
	}
}

// counted is a store that counts how often chunks are fetched.
type counted struct {
	*chunked
	fetched int
}

func (c *counted) GetChunks(ctx context.Context, id idempotent.RecordID, v driver.Version, count int) ([]byte, error) {
	c.fetched++
	return c.chunked.GetChunks(ctx, id, v, count)
}

// FM38: a large result is cached with its content, both by the request that
// stored it and by one that read it.
func TestLargeResultsAreCachedWhole(t *testing.T) {
	t.Parallel()
	options := func(o *idempotent.Options) { o.Codec, o.CacheEntries = raw{}, 8 }
	s, key, large := &counted{chunked: newChunked()}, newKey(), noise(9000)
	g, _ := newGuardOver(t, s, options)
	other, _ := newGuardOver(t, s, options)
	for _, row := range []struct {
		guard *idempotent.Guard
		fetch int // so far
	}{{g, 0}, {g, 0}, {other, 1}, {other, 1}} {
		got, err := idempotent.Do(t.Context(), row.guard, key, func(context.Context) (string, error) { return large, nil })
		if err != nil || got != large || s.fetched != row.fetch {
			t.Errorf("got %d bytes and error %v; fetched %d times, want %d", len(got), err, s.fetched, row.fetch)
		}
	}
}
