//go:build !race

// The race detector would be what is measured, so these limits are held
// without it.

package bench

import "testing"

// The limits of a request, against the same work by hand. Its engine is on
// this machine and answers within a millisecond or two, where DynamoDB takes
// several: what we add weighs more here than there.
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
