package model_test

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

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
// at each version. The function seen returns the version that an operation
// wrote, or found and did not change.
func inTurns[V comparable](h *history, seen func(porcupine.Operation) (v V, wrote, met bool)) (operations []porcupine.Operation, readers map[V]int) {
	operations, readers = slices.Clone(h.operations), map[V]int{}
	writes := map[V]int{}
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range operations {
		if v, wrote, _ := seen(o); wrote {
			writes[v]++
		}
	}
	for i := range operations {
		o := &operations[i]
		n := anyTurn
		// A version that was written twice, because a reply was lost, may have
		// been current twice.
		if v, wrote, met := seen(*o); met && !wrote && writes[v] < 2 {
			n = readers[v]
			readers[v]++
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
