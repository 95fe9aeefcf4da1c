package idempotenttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/idempotent"
)

// tally counts what happened under faults, because a test without any fault
// proves nothing.
type tally struct {
	mu       sync.Mutex
	runs     int // of rows under a schedule of faults
	struck   int // in which a fault happened
	felt     int // in which the guard noticed a fault
	scripted int // in which everything was as without faults
	calls    int
	faults   map[Fault]int
	entered  int // requests whose handler was called
	replayed int // requests that got a stored outcome
	refused  int // requests that got neither
	met      int // refused, because another request was running
}

func newTally() *tally { return &tally{faults: make(map[Fault]int)} }

// count adds a run.
func (n *tally) count(t *trial) {
	if t.lab == nil {
		return // the store could not be opened
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs++
	n.calls += t.calls
	injected := t.weather.Injected()
	for i, times := range injected {
		n.faults[i.Fault] += times
	}
	n.struck += one(len(injected) > 0)
	n.felt += one(t.weather.felt.Load())
	n.scripted += one(t.scripted)
	for _, r := range t.history.runs {
		n.entered += one(r.entered)
	}
	for _, a := range t.history.answers {
		n.replayed += one(a.outcome.Replayed)
		n.refused += one(a.run == nil && !a.outcome.Replayed)
		n.met += one(errors.As(a.err, new(*idempotent.InProgressError)))
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add adds the runs of a row.
func (n *tally) add(row *tally) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs += row.runs
	n.struck += row.struck
	n.felt += row.felt
	n.scripted += row.scripted
	n.calls += row.calls
	n.entered += row.entered
	n.replayed += row.replayed
	n.refused += row.refused
	n.met += row.met
	for fault, times := range row.faults {
		n.faults[fault] += times
	}
}

func (n *tally) String() string {
	var faults []string
	for _, fault := range slices.Sorted(maps.Keys(n.faults)) {
		faults = append(faults, fmt.Sprintf("%d × %s", n.faults[fault], fault))
	}
	return fmt.Sprintf("%d runs, of which %d met a fault, %d felt one, %d went on as without; %d requests executed, %d replayed, %d refused, %d of them while another one ran; %d calls; %s",
		n.runs, n.struck, n.felt, n.scripted, n.entered, n.replayed, n.refused, n.met, n.calls, strings.Join(faults, ", "))
}

// check fails the test if the runs did not cover enough cases.
func (n *tally) check(t testing.TB, faults []Fault) {
	t.Helper()
	for _, fault := range faults {
		if n.faults[fault] == 0 {
			t.Errorf("%s never happened in %d runs", fault, n.runs)
		}
	}
	if 10*n.struck < 9*n.runs {
		t.Errorf("faults were planned in %d runs, and only %d met one", n.runs, n.struck)
	}
	for what, times := range map[string]int{
		"felt a fault": n.felt, "did not feel theirs": n.struck - n.felt, "went on as without faults": n.scripted,
		"went on otherwise": n.runs - n.scripted, "executed a request": n.entered, "replayed an outcome": n.replayed, "refused a request": n.refused,
		"refused a request while another one ran": n.met,
	} {
		if times < n.runs/50 {
			t.Errorf("of %d runs only %d %s", n.runs, times, what)
		}
	}
}
