// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/once-lambda/once/idempotent/driver"
)

// Histories of many goroutines, and the search for an order of each in which a
// model gives the same answers.

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

// searchAll runs the rounds of l and searches every history for an order. It
// requires the wanted number of operations, and that most of them overlap with another
// one on the same key.
func (l load) searchAll(t *testing.T, want int, round func(int) []*history) {
	t.Helper()
	var operations, overlapping, longest int
	var tries int64
	for n := range l.rounds {
		for key, h := range round(n) {
			p := ofKey(h)
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

// wantsNoOrder runs the rounds of l until a history has no order, and
// fails t if all have one.
func (l load) wantsNoOrder(t *testing.T, round func(int) []*history) {
	t.Helper()
	for n := range l.rounds {
		for _, h := range round(n) {
			switch err := ofKey(h).search(patience); {
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

// history collects what many goroutines did with one key, and when: each
// operation has an interval on one shared counter.
type history struct {
	mu         sync.Mutex
	operations []porcupine.Operation
}

func (h *history) add(client int, input any, call int64, output any, returned int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output, Return: returned})
}

// stamps is the counter. Between two stamps of one operation others may run.
type stamps struct{ n atomic.Int64 }

func (s *stamps) next() int64 { return s.n.Add(1) }

// puzzle is a history, and the model that has to explain it by an order.
type puzzle struct {
	model      porcupine.Model
	operations []porcupine.Operation
	tries      *atomic.Int64 // number of steps of the model
}

// patience limits the search for an order. A history here takes a fraction of a
// second, or seconds on a busy machine. A search that does not end in time is a
// failure like any other.
const patience = time.Minute

var (
	errNoOrder  = errors.New("there is no order of these operations that the model allows")
	errNoAnswer = errors.New("the search for an order took too long, so there is no result; make the histories shorter")
)

// search looks for an order of the operations that the model allows.
func (p puzzle) search(patience time.Duration) error {
	result := porcupine.CheckOperationsTimeout(p.model, p.operations, patience)
	if result == porcupine.Ok {
		return nil
	}
	// Search again, and record how far it got.
	_, info := porcupine.CheckOperationsVerbose(p.model, p.operations, patience)
	if result == porcupine.Unknown {
		return fmt.Errorf("%w: %s; %s", errNoAnswer, patience, p.excerpt(info))
	}
	return fmt.Errorf("%w: %s", errNoOrder, p.excerpt(info))
}

// excerpt shows the end of the longest order that was found, and the operations
// that could not follow.
func (p puzzle) excerpt(info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, o := range orders {
			if len(o) > len(longest) {
				longest = o
			}
		}
	}
	var b strings.Builder
	line := func(o porcupine.Operation) {
		fmt.Fprintf(&b, "  [%d, %d] client %d: %s\n", o.Call, o.Return, o.ClientId, p.model.DescribeOperation(o.Input, o.Output))
	}
	fmt.Fprintf(&b, "the longest order that it allows has %d of %d and ends with\n", len(longest), len(p.operations))
	for _, o := range longest[max(0, len(longest)-10):] {
		line(o)
	}
	fmt.Fprintf(&b, "and cannot continue with any of\n")
	var open []porcupine.Operation
	for _, o := range p.operations {
		if !slices.ContainsFunc(longest, func(l porcupine.Operation) bool { return l.Call == o.Call && l.Input == o.Input }) {
			open = append(open, o)
		}
	}
	slices.SortFunc(open, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range open[:min(10, len(open))] {
		line(o)
	}
	return b.String()
}

// overlapping counts the operations that overlap with another one on the same
// key: without them a history proves nothing.
func (h *history) overlapping() int {
	n := 0
	for i, a := range h.operations {
		for j, b := range h.operations {
			if i != j && a.Call < b.Return && b.Call < a.Return {
				n++
				break
			}
		}
	}
	return n
}

// turn is the input of an operation with its turn: its number among the
// operations that found the same version of a record and did not change it.
// They do not affect each other, so if there is any order, there is one in
// which they come in the order of their calls. With this hint, a search needs
// to try neither all their orders, nor every subset of them before a write that
// replaces the version.
type turn struct {
	input any
	n     int // from 0, or anyTurn
}

const anyTurn = -1

// inTurns returns the operations of h with their turns, and the number of turns
// at each version.
func inTurns(h *history) (operations []porcupine.Operation, readers map[driver.Version]int) {
	operations, readers = slices.Clone(h.operations), map[driver.Version]int{}
	writes := map[driver.Version]int{}
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range operations {
		if out := o.Output.(guardReply); out.wrote {
			writes[out.stood.version]++
		}
	}
	for i := range operations {
		o := &operations[i]
		n := anyTurn
		// A version that was written twice, because a reply was lost, may have
		// been current twice.
		if out := o.Output.(guardReply); out.asked && !out.wrote && writes[out.stood.version] < 2 {
			n = readers[out.stood.version]
			readers[out.stood.version]++
		}
		o.Input = turn{o.Input, n}
	}
	return operations, readers
}

// reads reports whether it is the turn of an operation at a record that before
// operations have read, and how many have read it then.
func (t turn) reads(before int) (after int, ok bool) {
	if t.n == anyTurn {
		return before, true
	}
	return before + 1, t.n == before
}
