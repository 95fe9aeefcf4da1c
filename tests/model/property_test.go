package model_test

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/tally"
)

// Random sequences of operations on two similar keys, to a guard over each store
// and to the model. rapid prints the seed of a failure and the shortest failing
// sequence that it finds; -rapid.checks and -rapid.steps set the amount,
// -rapid.shrinktime the time for shortening.
//
// The model of a key sees only the operations on that key, so two keys that
// shared a record would be noticed: INV-7.
func TestINV7_GuardBehavesAsTheModelOfEachKey(t *testing.T) {
	t.Parallel()
	usual := []string{
		"answer entered", "answer replayed", "answer in progress", "answer mismatch", "answer unresolved", "answer no time",
		"answer own", "answer panicked", "answer done", "answer settled", "answer gone", "answer stale", "event step_done",
		"event reserved", "event taken_over", "event completed", "event retryable", "event marked_unknown", "event resolved",
		"crash", "delete", "lost replies",
	}
	rare := []string{"answer forgotten", "event step_replayed", "answer lost", "event contradicted", "event late_completion", "event lease_lost", "event completion_failed"}
	for _, c := range []struct {
		name   string
		rounds int
		open   func(testing.TB) func() driver.Store // called for each sequence
		facts  []string
	}{
		// A store in memory drops expired records once it holds a thousand,
		// which the model does not: each sequence has its own store.
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

// sequences returns how many sequences rapid tries in a round. It silently tries
// fewer if the time of the whole test runs out.
func sequences() int { return flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int) }

func behavesAsTheModel(open func() driver.Store, seenAs over, seen *tally.Tally) func(*rapid.T) {
	return func(rt *rapid.T) {
		m := newMachine(rt, open(), seenAs, seen)
		rt.Cleanup(m.end)
		rt.Repeat(m.actions())
	}
}
