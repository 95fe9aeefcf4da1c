package explore

import (
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Scenario says who acts in a search and what may go wrong.
type Scenario struct {
	Recovery idempotent.Recovery

	Attempts   int // requests whose handler may end in any way, or in one of Plans
	Sweepers   int // come for a record whose lease has ended without an outcome
	Strangers  int // requests with another fingerprint under the same key
	Neighbours int // requests with the same key in another scope
	Resolvers  int // bring evidence, each once
	Couriers   int // as Resolvers, but some time passes between the look and the evidence
	Witnesses  int // bring evidence about the step, while the handler runs or later
	Reapers    int // reconcile what is due, and ask nobody

	// Step puts the effect of every handler into a step of this mode. The provider
	// honours the downstream key of one that runs AtLeastOnce.
	Step *driver.StepMode

	// Commit puts the effect of every handler into the transaction that completes
	// its record.
	Commit bool

	// CommitStep lets every handler call the provider and then write an order in
	// the transaction that records its step.
	CommitStep bool

	Plans []plan

	// Clock is by how much the clock moves on, at any moments in this order.
	Clock []time.Duration

	// Faults bounds how many things go wrong in one schedule: a reply or a
	// request that is lost, a process that dies. A worker that stalls while the
	// clock moves is none.
	Faults int

	// Redeployed lets the sweepers run code that declares the other recovery.
	Redeployed bool

	// Foreign lets those who make no request use a guard with other options: the
	// other recovery, and a retention that is shorter than the operation's.
	Foreign bool

	// What follows breaks the world, to see that it is noticed.

	// Store breaks the store.
	Store func(driver.Store) driver.Store
	// Seen breaks what those who bring evidence see of the store.
	Seen func(*actor, driver.Store) driver.Store
	// Torn lets a transaction have its effect although its record is refused.
	Torn bool
	// Rash lets a resolver say "not executed" of a worker that is alive.
	Rash bool
	// Ask names the invariants that are asked. Default: all.
	Ask []string
}

// The times of every scenario: an invocation has 10 s, its lease 12 s.
const (
	timeout   = 10 * time.Second
	margin    = 2 * time.Second
	retention = 24 * time.Hour
	grace     = time.Hour // an expired record is deleted this much later

	longRetention = 3 * retention
	// The provider knows a downstream key this long: the default of
	// Options.DownstreamRetention.
	downstream = 24 * time.Hour
)

// The movements of the clock.
const (
	PastDeadline  = 11 * time.Second // of all requests under way; their leases are live
	PastLease     = 2 * time.Second  // after PastDeadline
	WholeLease    = PastDeadline + PastLease
	PastRetention = 26 * time.Hour // and past the deletion of what expires
)
