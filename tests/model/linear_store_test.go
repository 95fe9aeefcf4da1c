package model_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/model"
	"github.com/once-lambda/once/tests/tally"
)

// storeCall is one call to a store, storeReply the store's answer. Versions are
// small numbers here.
type storeCall struct {
	kind string // "insert", "replace", "get"
	slot model.Slot
	now  int64 // of insert
	was  int   // of replace
}

type storeReply struct {
	met  int // the current version; 0: the write was done
	gone bool
	err  string
}

// slotState is a slot, and how many operations have read it.
type slotState struct {
	model.Slot
	read int
}

// ofSlot returns the search for an order of h that Slot allows.
func ofSlot(h *history) puzzle {
	operations, readers := inTurns(h, func(o porcupine.Operation) (version int, wrote, met bool) {
		in, out := o.Input.(storeCall), o.Output.(storeReply)
		if out == (storeReply{}) {
			return in.slot.Version, true, false
		}
		return out.met, false, true
	})
	tries := &atomic.Int64{}
	return puzzle{operations: operations, tries: tries, model: porcupine.Model{
		Init: func() any { return slotState{} },
		Step: func(state, input, output any) (bool, any) {
			tries.Add(1)
			s, in, out := state.(slotState), input.(turn), output.(storeReply)
			next, want := in.input.(storeCall).apply(s.Slot)
			switch {
			case out != want:
				return false, nil
			case out.met != 0 || out.gone:
				read, ok := in.reads(s.read)
				return ok, slotState{next, read}
			}
			return s.read == readers[s.Version], slotState{Slot: next}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input.(turn).input, output) },
	}}
}

func (c storeCall) apply(s model.Slot) (next model.Slot, said storeReply) {
	next = s
	switch c.kind {
	case "insert":
		next, said.met = s.Insert(c.slot, c.now)
	case "replace":
		next, said.met, said.gone = s.Replace(c.slot, c.was)
	default:
		said = storeReply{met: s.Version, gone: s.Version == 0}
	}
	return next, said
}

// Every store answers concurrent calls as if they had come one after another,
// also if replies get lost and calls are sent again.
func TestStoresAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		open func(testing.TB) driver.Store
		load load
		want int // operations
	}{
		{"memory", memory, load{rounds: 50, goroutines: 64, each: 33, keys: 16}, 100_000},
		{"bolt", bolt, load{rounds: 1, goroutines: 64, each: 64, keys: 16}, 4_000},
		{"DynamoDBLocal", dynamo, load{rounds: 1, goroutines: 64, each: 80, keys: 16}, 5_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := &tally.Tally{}
			c.load.searchAll(t, ofSlot, c.want, func(round int) []*history {
				return newClients(c.open(t), c.load, seen).run(round)
			})
			t.Log(seen)
			seen.Least(t, c.want/100, "insert done", "insert refused", "replace done", "replace refused", "get", "lost replies")
		})
	}
}
