package idempotenttest

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Fault is one way in which a call goes wrong. Besides those below it may be
// any name: the call is then refused by that name and has no effect.
type Fault string

const (
	// NoFault lets the call through.
	NoFault Fault = ""
	// LostRequest: the call fails, and whom it was sent to never saw it.
	LostRequest Fault = "lost request"
	// LostReply: the call has its effect and fails all the same.
	LostReply Fault = "lost reply"
	// Repeated: the call has its effect, its reply is lost, it is sent again, and
	// the caller gets the second reply. That is what the retry of an SDK does.
	Repeated Fault = "repeated"
	// SlowRequest: the call arrives late. SlowReply: it has its effect at once,
	// and its reply comes late. [Faults.Slow] takes the time.
	SlowRequest Fault = "slow request"
	SlowReply   Fault = "slow reply"

	// Refusals of DynamoDB, by the names it gives them.
	ThroughputExceeded      Fault = "ProvisionedThroughputExceededException"
	Throttled               Fault = "ThrottlingException"
	InternalError           Fault = "InternalServerError"
	TransactionConflict     Fault = "TransactionConflictException"
	ReplicatedWriteConflict Fault = "ReplicatedWriteConflictException"
)

// Op names what is called: a method of a store, or an operation of a service,
// for example "PutItem".
type Op string

// The methods of [driver.Store] and [driver.ChunkStore].
const (
	OpInsert    Op = "Insert"
	OpReplace   Op = "Replace"
	OpGet       Op = "Get"
	OpPutChunks Op = "PutChunks"
	OpGetChunks Op = "GetChunks"
)

// Call is one call that a [Plan] is asked about.
type Call struct {
	Op  Op
	N   int // this is the Nth call of all, counted from 1
	Nth int // and the Nth of its Op
}

// Plan says what goes wrong with a call. It is asked about one call at a time,
// in the order in which they are made.
type Plan func(Call) Fault

// On plans fault for those calls of op that are named, counted from 1, or for
// every one if none is named. An empty op stands for any; the calls are then
// counted together.
func On(op Op, fault Fault, calls ...int) Plan {
	return func(c Call) Fault {
		n := c.Nth
		if op == "" {
			n = c.N
		}
		if op != "" && op != c.Op || len(calls) > 0 && !slices.Contains(calls, n) {
			return NoFault
		}
		return fault
	}
}

// FirstOf asks plans in turn until one has a fault for the call.
func FirstOf(plans ...Plan) Plan {
	return func(c Call) Fault {
		for _, p := range plans {
			if fault := p(c); fault != NoFault {
				return fault
			}
		}
		return NoFault
	}
}

// Odds are how likely a fault is.
type Odds struct {
	Op    Op // empty: any
	Fault Fault
	P     float64 // of all calls of Op, from 0 to 1
}

// Seeded plans faults at random: each call meets at most one of those that
// odds has for its operation. Equal seeds plan equally for equal sequences of
// calls. The plan is safe for concurrent use, but then it is chance who meets
// which fault.
func Seeded(seed uint64, odds ...Odds) Plan {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 0))
	return func(c Call) Fault {
		mu.Lock()
		p := r.Float64()
		mu.Unlock()
		for _, o := range odds {
			if o.Op != "" && o.Op != c.Op {
				continue
			}
			if p < o.P {
				return o.Fault
			}
			p -= o.P
		}
		return NoFault
	}
}
