package model_test

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// turn is the input of an operation, and when its turn is: among those that met
// the same version of a record and left it as it was. They change nothing for
// each other, so if there is an order at all, there is one in which they come
// as they were called. A search that is told so needs not try them in every
// order, nor every choice of them before a write that replaces the version.
type turn struct {
	input any
	n     int // from 0, or anyTurn
}

const anyTurn = -1

// inTurns returns the operations of h with their turns, and how many turns
// there are at each version. The function says which version an operation
// wrote, or met and left.
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
		// What was written twice, because a reply got lost, may have lived twice.
		if v, wrote, met := seen(*o); met && !wrote && writes[v] < 2 {
			n = readers[v]
			readers[v]++
		}
		o.Input = turn{o.Input, n}
	}
	return operations, readers
}

// reads reports whether it is the turn of an operation that leaves a record
// that so many have read, and how many have then.
func (t turn) reads(before int) (after int, ok bool) {
	if t.n == anyTurn {
		return before, true
	}
	return before + 1, t.n == before
}
