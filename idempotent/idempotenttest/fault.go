package idempotenttest

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Fault is one way in which a call fails. Any name besides the constants below
// refuses the call with that name and without effect.
type Fault string

const (
	// NoFault lets the call through.
	NoFault Fault = ""
	// LostRequest: the call fails and never reaches its destination.
	LostRequest Fault = "lost request"
	// LostReply: the call has its effect, but the caller gets an error.
	LostReply Fault = "lost reply"
	// Repeated: the call has its effect, its reply is lost, it is sent again,
	// and the caller gets the second reply, as with the retry of an SDK.
	Repeated Fault = "repeated"
	// SlowRequest: the call arrives late. SlowReply: the call has its effect at
	// once, and its reply comes late. [Faults.Slow] sets the delay.
	SlowRequest Fault = "slow request"
	SlowReply   Fault = "slow reply"

	// Refusals of DynamoDB, with the names that DynamoDB uses.
	ThroughputExceeded      Fault = "ProvisionedThroughputExceededException"
	Throttled               Fault = "ThrottlingException"
	InternalError           Fault = "InternalServerError"
	TransactionConflict     Fault = "TransactionConflictException"
	ReplicatedWriteConflict Fault = "ReplicatedWriteConflictException"
)

// Op is the name of a call: a method of a store, or an operation of a service,
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

// Call is one call that a [Plan] decides about.
type Call struct {
	Op  Op
	N   int // the number of this call among all calls, counted from 1
	Nth int // its number among the calls of its Op
}

// Plan decides which fault a call gets. It is called for one call at a time, in
// the order in which the calls are made.
type Plan func(Call) Fault

// On returns a plan that gives fault to the numbered calls of op, counted from
// 1, or to every call if no number is given. An empty op matches all operations
// and counts their calls together.
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

// FirstOf returns a plan that uses the first of plans that has a fault for the
// call.
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

// Odds is the probability of a fault.
type Odds struct {
	Op    Op // empty: any
	Fault Fault
	P     float64 // of all calls of Op, from 0 to 1
}

// Seeded returns a plan of random faults: each call gets at most one of the
// odds that match its operation. Equal seeds give equal faults for equal
// sequences of calls. The plan is safe for concurrent use, but then the
// assignment of faults to calls depends on timing.
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
