package model_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

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
