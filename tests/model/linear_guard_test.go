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

// A guarded request is two operations on its key: the claim, which ends when the
// handler is entered or the request refused, and the settlement, from the
// handler's end to the answer. Between them other requests come and go. Evidence
// is a third operation.
type guardCall struct {
	kind    string // "claim", "settle", "resolve"
	request model.Request
	outcome model.Outcome // of settle and resolve
	// nows are the times that the guard may have read, in order: the clock moves
	// during a request, and it is unknown which of its ticks the request saw.
	nows *[]int64
}

// guardReply is the result of the call, and what the network knows about it: with
// the versions, the search for an order has little to guess.
type guardReply struct {
	model.Answer // except RetryAfter and Events
	trace
	stale     bool // the record that evidence found is of another attempt than it names
	marked    bool // an event reported that it marked the record unknown
	gaveUp    bool // the record changed too often meanwhile
	overtaken bool // the write was done, but its reply was lost: this is neither the answer, nor all that the request did
}

// guardState is a key, the version of its record, and how many operations have
// read it.
type guardState struct {
	model.Key
	version driver.Version
	read    int
}

// ofKey returns the search for an order of h that Key allows. Time passes in h:
// the model is nondeterministic in the time that was read.
func ofKey(h *history) puzzle {
	operations, readers := inTurns(h, func(o porcupine.Operation) (v driver.Version, wrote, met bool) {
		out := o.Output.(guardReply)
		return out.stood.version, out.wrote, out.asked
	})
	tries := &atomic.Int64{}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{guardState{}} },
		Step: func(state, input, output any) (next []any) {
			tries.Add(1)
			s, in, out := state.(guardState), input.(turn), output.(guardReply)
			call := in.input.(guardCall)
			for _, now := range *call.nows {
				after, ok := call.told(crowdPolicy, s.Key, now, out)
				if !ok || out.wrote != (after != s.Key) || out.asked && out.stood.key != nameless(after) {
					continue
				}
				switch {
				case out.wrote && s.read == readers[s.version]:
					next = append(next, guardState{Key: after, version: out.stood.version})
				case !out.wrote && (!out.asked || out.stood.version == s.version):
					if read, ok := in.reads(s.read); ok {
						next = append(next, guardState{s.Key, s.version, read})
					}
				}
			}
			return next
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(turn).input.(guardCall), output.(guardReply)
			return fmt.Sprintf("%s %+v %s at %v -> %+v (version %.4x %+v, wrote %t, marked %t, gave up %t, overtaken %t)",
				in.kind, in.request, in.outcome, *in.nows, out.Answer, out.stood.version, out.stood.key, out.wrote, out.marked, out.gaveUp, out.overtaken)
		},
	}
	return puzzle{m.ToModel(), operations, tries}
}

// nameless returns the part of k that the network sees.
func nameless(k model.Key) model.Key {
	k.Version, k.Fingerprint, k.Owner, k.Outcome = 0, 0, 0, model.Outcome{}
	return k
}

func (c guardCall) apply(p model.Policy, k model.Key, stale bool, now int64) (model.Key, model.Answer) {
	switch c.kind {
	case "claim":
		return p.Claim(k, c.request, now)
	case "settle":
		return p.Settle(k, c.request, model.Work{}, c.outcome, now)
	default:
		return p.Resolve(k, c.outcome, stale, now)
	}
}

// Returns k after c happened to it at now with the answer out, or reports
// that this answer is impossible. RetryAfter and the events are left out: they
// depend on another moment than the decision. The property tests compare them.
func (c guardCall) told(p model.Policy, k model.Key, now int64, out guardReply) (after model.Key, ok bool) {
	after, want := c.apply(p, k, out.stale, now)
	marked := want.Events == "marked_unknown unresolved"
	want.RetryAfter, want.Events = 0, ""
	switch {
	case out.overtaken:
		return after, true
	case out.marked && out.Verdict == model.NoTime: // too late to report what it had found
		return after, marked
	case c.kind == "settle" && out.Verdict == model.NoTime: // too late to enter the handler
		return p.Release(k, c.request, now), true
	case c.kind == "settle" && out.gaveUp: // its caller gets the outcome, but no retry will
		return k, out.Answer == model.Answer{Verdict: model.Own, Outcome: c.outcome}
	}
	return after, out.Answer == want && out.marked == marked
}

// FM51: many goroutines of one process share a guard and a key. For all their
// answers there is one order of their claims, outcomes and evidence in which a
// sequential guard gives the same answers. And no handler is entered during the
// lease of another one: INV-1.
func TestFM51_GuardIsLinearizable(t *testing.T) {
	t.Parallel()
	usual := []string{
		"claim entered", "claim replayed", "claim mismatch", "claim in progress", "claim unresolved", "claim no time",
		"settle own", "resolve done", "resolve settled", "resolve in progress", "resolve stale", "event taken_over", "lost replies",
	}
	rare := []string{"settle lost", "settle replayed", "event late_completion", "event contradicted", "overtaken"}
	for _, c := range []struct {
		name   string
		open   func(testing.TB) driver.Store
		cached int
		load   load
		want   int // operations
		facts  []string
	}{
		{"memory", memory, 0, load{rounds: 40, goroutines: 64, each: 46, keys: 8}, 100_000, append(rare, usual...)},
		{"cached", memory, 10, load{rounds: 10, goroutines: 64, each: 26, keys: 16}, 15_000, usual},
		{"bolt", bolt, 0, load{rounds: 3, goroutines: 64, each: 24, keys: 8}, 3_000, usual},
		{"DynamoDBLocal", dynamo, 0, load{rounds: 3, goroutines: 64, each: 31, keys: 8}, 5_000, usual},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := &tally.Tally{}
			c.load.searchAll(t, ofKey, c.want, func(round int) []*history {
				crowd := newCrowd(t, c.open(t), c.load, c.cached, seen)
				histories := crowd.run(round)
				for _, wrong := range crowd.wrong {
					t.Error(wrong)
				}
				return histories
			})
			t.Log(seen)
			seen.Least(t, 1, c.facts...)
			seen.Most(t, c.want/50, "gave up") // less is known about these
		})
	}
}
