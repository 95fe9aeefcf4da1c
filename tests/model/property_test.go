package model_test

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/tally"
)

// Random sequences of operations on two keys that look alike, to a guard over
// each store and to the model. rapid prints the seed of a failure and the
// shortest sequence that it finds to fail the same way; -rapid.checks and
// -rapid.steps ask for more, -rapid.shrinktime for a shorter one.
//
// What the operations tell is in the model of one key alone, so two keys that
// met in the store would be seen: INV-7.
func TestINV7_GuardBehavesAsTheModelOfEachKey(t *testing.T) {
	t.Parallel()
	usual := []string{
		"told entered", "told replayed", "told in progress", "told mismatch", "told unresolved", "told no time",
		"told own", "told panicked", "told done", "told settled", "told gone", "told stale", "event step_done",
		"event reserved", "event taken_over", "event completed", "event retryable", "event marked_unknown", "event resolved",
		"crash", "delete", "lost replies",
	}
	rare := []string{"told forgotten", "event step_replayed", "told lost", "event contradicted", "event late_completion", "event lease_lost", "event completion_failed"}
	for _, c := range []struct {
		name   string
		rounds int
		open   func(testing.TB) func() driver.Store // called for each sequence
		facts  []string
	}{
		// A store in memory forgets what expired long ago once it holds a
		// thousand records, which the model does not: each sequence has its own.
		{"memory", 20, func(testing.TB) func() driver.Store { return newMemory }, append(rare, usual...)},
		{"bolt", 3, func(t testing.TB) func() driver.Store { return always(bolt(t)) }, usual},
		{"DynamoDBLocal", 1, func(t testing.TB) func() driver.Store { return always(dynamo(t)) }, usual},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open, seen := c.open(t), &tally.Tally{}
			for range c.rounds {
				rapid.Check(t, behavesAsTheModel(open, itself, seen))
			}
			t.Log(seen)
			seen.Least(t, c.rounds*sequences(), "sequences")
			seen.Least(t, 1, c.facts...)
		})
	}
}

func always(s driver.Store) func() driver.Store {
	return func() driver.Store { return s }
}

// sequences is how many rapid tries in a round. It tries less, and says nothing,
// where the time of the whole test runs out.
func sequences() int { return flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int) }

func behavesAsTheModel(open func() driver.Store, seenAs over, seen *tally.Tally) func(*rapid.T) {
	return func(rt *rapid.T) {
		m := newMachine(rt, open(), seenAs, seen)
		rt.Cleanup(m.end)
		rt.Repeat(m.actions())
	}
}
