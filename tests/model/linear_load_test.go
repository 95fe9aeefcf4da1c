package model_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// load is the number of goroutines, of operations of each, and of keys. A test
// runs it in rounds, each on new keys, so that no history becomes too long for
// the search.
type load struct{ rounds, goroutines, each, keys int }

// run does one round and returns the history of each key.
func (l load) run(round int, do func(client int, r *rand.Rand, key int, h *history)) []*history {
	histories := make([]*history, l.keys)
	for i := range histories {
		histories[i] = &history{}
	}
	var all sync.WaitGroup
	for client := range l.goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(round), uint64(client)))
			for range l.each {
				key := r.IntN(l.keys)
				do(client, r, key, histories[key])
			}
		})
	}
	all.Wait()
	return histories
}

// searchAll runs the rounds of l and searches every history for an order, as
// asked. It requires the wanted number of operations, and that most of them
// overlap with another one on the same key.
func (l load) searchAll(t *testing.T, asked func(*history) puzzle, want int, round func(int) []*history) {
	t.Helper()
	var operations, overlapping, longest int
	var tries int64
	for n := range l.rounds {
		for key, h := range round(n) {
			p := asked(h)
			if err := p.search(patience); err != nil {
				t.Fatalf("round %d, key %d: %v", n, key, err)
			}
			tries = max(tries, p.tries.Load())
			longest = max(longest, len(h.operations))
			operations += len(h.operations)
			overlapping += h.overlapping()
		}
	}
	t.Logf("%d operations have an order, %d of them overlap with another one on the same key; the longest history has %d, the hardest took %d tries",
		operations, overlapping, longest, tries)
	if operations < want || overlapping < operations/2 {
		t.Errorf("too few: want %d operations, half of them overlapping", want)
	}
}

// wantsNoOrder runs the rounds of l until a history has no order as asked, and
// fails t if all have one.
func (l load) wantsNoOrder(t *testing.T, asked func(*history) puzzle, round func(int) []*history) {
	t.Helper()
	for n := range l.rounds {
		for _, h := range round(n) {
			switch err := asked(h).search(patience); {
			case errors.Is(err, errNoOrder):
				t.Logf("found in round %d", n)
				return
			case err != nil:
				t.Fatal(err)
			}
		}
	}
	t.Error("all histories have an order")
}

// yield lets another goroutine run, sometimes.
func yield(r *rand.Rand) {
	if r.IntN(2) == 0 {
		runtime.Gosched()
	}
}

// sometimes returns true once in n times.
func sometimes(r *rand.Rand, n int) func() bool {
	return func() bool { return r.IntN(n) == 0 }
}
