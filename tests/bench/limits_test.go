//go:build !race

// The race detector would change the measurements, so these limits apply without
// it.

package bench

import "testing"

// The limits of a request, compared with hand-written code. The engine is on
// this machine and answers within one or two milliseconds. DynamoDB takes
// several, so there the toolkit's share is smaller.
var requestLimits = ratios{wall: 1.10, cpu: 1.15}

// operations in one turn.
const operations = 20

func TestFirstRequest(t *testing.T) {
	ours, theirs := sides(t, newCharge, false)
	wantWithin(t, requestLimits, ours, theirs, operations)
}

func TestReplay(t *testing.T) {
	ours, theirs := replays(t)
	wantWithin(t, requestLimits, ours, theirs, 2*operations)
}

// A fingerprint is faster than the usual way on every shape, with at most a
// fifth of the allocations.
func TestFingerprint(t *testing.T) {
	for name, doc := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			ours, theirs := fingerprints(t, doc)
			a, b := testing.AllocsPerRun(20, ours), testing.AllocsPerRun(20, theirs)
			t.Logf("%.0f allocations against %.0f", a, b)
			if a*5 > b {
				t.Errorf("%.0f allocations against %.0f, want a fifth at most", a, b)
			}
			wantWithin(t, ratios{wall: 1, cpu: 1}, ours, theirs, max(10, 100_000/len(doc)))
		})
	}
}

// stepLimit is the limit for the processor time of a step, relative to a first
// request without a step. Both write once or twice to the same store.
const stepLimit = 1.25

// The processor time of a step: a request with four of them against one without.
func TestStep(t *testing.T) {
	const requests = 500
	with, without := stepping(t, len(stepNames)), stepping(t, 0)
	turn(with, requests)
	turn(without, requests)
	for i := range attempts {
		var steps []float64
		for range pairs / 3 {
			request := turn(without, requests).cpu
			steps = append(steps, float64(turn(with, requests).cpu-request)/float64(request)/float64(len(stepNames)))
		}
		got := median(steps)
		t.Logf("measurement %d of at most %d: a step takes %.2f of a request; the limit is %.2f", i+1, attempts, got, stepLimit)
		if got <= 0 {
			t.Fatal("nothing was measured")
		}
		if got <= stepLimit {
			return
		}
	}
	t.Errorf("above the limit in each of %d measurements", attempts)
}
