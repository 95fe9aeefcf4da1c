// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// cost sends a request, and returns how many calls of the store it took.
func (f *fixture) cost(key idempotent.Key, result string) int {
	f.t.Helper()
	f.key = key
	before := len(f.calls)
	if got, err := f.do(value(result)); err != nil || got != result {
		f.t.Errorf("got %.20q and error %v", got, err)
	}
	return len(f.calls) - before
}

// FM38: what is replayed from memory. A first request costs two calls of the store, a replay
// from it one, and a replay from the cache none.
func TestCache(t *testing.T) {
	t.Parallel()
	const result = "ch_1"
	large, larger := noise(6000), noise(20_000)
	a, b, c := newKey(), newKey(), newKey()
	type request struct {
		pause  time.Duration
		key    idempotent.Key
		result string
		cost   int
	}
	for name, row := range map[string]struct {
		option   func(*idempotent.Options)
		requests []request
	}{
		"off": {func(*idempotent.Options) {}, []request{{0, a, result, 2}, {0, a, result, 1}}},
		"least recently used goes first": {func(o *idempotent.Options) { o.CacheEntries = 2 }, []request{
			{0, a, result, 2}, {0, b, result, 2}, {0, a, result, 0}, {0, c, result, 2}, {0, a, result, 0}, {0, b, result, 1},
		}},
		"bounded by bytes": {func(o *idempotent.Options) { o.CacheEntries, o.CacheBytes, o.Codec = 100, 10_000, raw{} }, []request{
			{0, a, large, 2}, {0, a, large, 0}, {0, b, large, 2}, {0, a, large, 1}, {0, c, larger, 2}, {0, c, larger, 1}, {0, a, large, 0},
		}},
		"bounded by age from when it was read": {func(o *idempotent.Options) { o.CacheEntries, o.CacheAge = 2, time.Minute }, []request{
			{0, a, result, 2}, {40 * time.Second, a, result, 0}, {30 * time.Second, a, result, 1}, {0, a, result, 0},
		}},
	} {
		f := newFixture(t, row.option)
		for i, r := range row.requests {
			f.clock.Advance(r.pause)
			if n := f.cost(r.key, r.result); n != r.cost {
				t.Errorf("%s: request %d cost %d calls, want %d", name, i+1, n, r.cost)
			}
		}
	}
	// It is not shared with a guard made from this one. A request that comes when its time
	// is over gets no answer from it.
	f := newFixture(t, func(o *idempotent.Options) { o.CacheEntries = 2 })
	f.cost(a, result)
	own := f.guard
	var err error
	if f.guard, err = own.With(); err != nil || f.cost(a, result) != 1 || f.cost(a, result) != 0 {
		t.Errorf("with another guard: calls %v, %v", f.calls, err)
	}
	if _, err := idempotent.Do(f.clock.Invocation(t.Context(), 0), own, a, forbidden(t)); !errors.As(err, new(*idempotent.NoTimeError)) {
		t.Errorf("too late: got error %v, want NoTimeError", err)
	}
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
			f := newFixture(t, func(o *idempotent.Options) { o.Now, o.CacheEntries, o.WaitFor = time.Now, entries, kit.Patience })
			f.on(driver.OpGet, func(c *call) {
				at[c.StoreCall.Record.ID]()
				c.do()
			})
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
						got, err := idempotent.Do(t.Context(), f.guard, key, func(context.Context) (int, error) {
							runs[i]++ // a concurrent second run would be a race
							select {
							case <-met[i]:
							case <-time.After(kit.Patience):
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
			if n := f.events.Count(event.Replayed); n != 63*len(keys) {
				t.Errorf("%d replays, want %d", n, 63*len(keys))
			}
		})
	}
}

// shared is a codec that copies neither on encode nor on decode.
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

// A large result is cached with its content, both by the request that
// stored it and by one that read it.
func TestLargeResultsAreCachedWhole(t *testing.T) {
	t.Parallel()
	cached := func(o *idempotent.Options) { o.Codec, o.CacheEntries = raw{}, 8 }
	f := newFixture(t)
	store := newChunked(f.Store)
	f, other := f.over(store, cached), f.over(store, cached)
	large := noise(9000)
	for _, g := range []*fixture{f, f, other, other} {
		if got, err := g.do(value(large)); err != nil || got != large {
			t.Errorf("got %d bytes and error %v", len(got), err)
		}
	}
	if calls := fmt.Sprint(f.calls, other.calls); calls != "[insert put_chunks replace] [insert get_chunks]" {
		t.Errorf("calls %s", calls)
	}
}
