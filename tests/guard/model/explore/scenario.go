// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Scenario lists the actors of a search and the faults that may happen.
type Scenario struct {
	Recovery idempotent.Recovery

	Attempts   int // requests whose handler may end in any way, or in one of Plans
	Sweepers   int // come for a record whose lease has ended without an outcome
	Strangers  int // requests with another fingerprint under the same key
	Neighbours int // requests with the same key in another scope
	Resolvers  int // submit evidence, once each
	Couriers   int // like Resolvers, but time passes between the look and the evidence
	Witnesses  int // submit evidence about the step, while the handler runs or later
	Reapers    int // reconcile due records, without a resolver
	Forgetters int // discard the stored outcome, whose effect an operator has undone
	Correctors int // replace the stored outcome that they have read
	Requeuers  int // make the record due now

	// Step puts the effect of every handler into a step of this mode. The
	// provider honours the downstream key of a step that runs AtLeastOnce.
	Step *driver.StepMode

	// Commit puts the effect of every handler into the transaction that completes
	// its record.
	Commit bool

	// Second makes a handler whose Commit fails commit once more, with the same
	// result or with another one. If it then learns of another outcome, it returns its
	// own result nevertheless.
	Second second

	// Predecessor is another system that has done the work, with the result earlier.
	Predecessor bool

	// CommitStep makes every handler call the provider and then write an order
	// in the transaction that records its step.
	CommitStep bool

	// Announce lets a run whose handler is late announce itself, at any moment. The
	// search must run in a synctest bubble, whose clock starts the announcement.
	Announce bool

	Plans []plan

	// Clock lists the movements of the clock, which happen at any moments in
	// this order.
	Clock []time.Duration

	// Faults limits the number of faults in one schedule: a lost reply or
	// request, or a process that dies. A worker that stalls while the clock
	// advances is not a fault.
	Faults int

	// Redeployed lets the sweepers run code that declares the other recovery.
	Redeployed bool

	// Foreign makes actors without a request use a guard with other options:
	// the other recovery, and a retention that is shorter than the operation's.
	Foreign bool

	// The following fields break the world, to check that this is noticed.

	// Store breaks the store.
	Store func(driver.Store) driver.Store
	// Seen breaks the store for actors that submit evidence.
	Seen func(*actor, driver.Store) driver.Store
	// Torn lets a transaction have its effect although its record is refused.
	Torn bool
	// Liar lets the store refuse a transaction that it applies.
	Liar bool
	// Rash makes a resolver report "not executed" about a worker that is alive.
	Rash bool
	// Late lets a request see a deadline that is a second late.
	Late bool
	// Ask names the invariants to check. Default: all.
	Ask []string
}

// second is the result of a second Commit.
type second byte

const (
	noSecond second = iota
	sameResult
	otherResult
)

// The times of every scenario: an invocation has 10 s, its lease 12 s.
const (
	timeout        = 10 * time.Second
	margin         = 2 * time.Second
	retention      = 24 * time.Hour
	reconcileAfter = time.Minute
	grace          = time.Hour // an expired record is deleted this much later

	longRetention = 3 * retention
	// The provider recognises a downstream key for this long: the default of
	// Operation.DownstreamRetention.
	downstream = 24 * time.Hour
)

// The movements of the clock.
const (
	PastContext   = 9700 * time.Millisecond // of a handler, and past the time when its run announces itself
	PastDeadline  = 11 * time.Second        // of all requests in progress; their leases are live
	PastLease     = 2 * time.Second         // after PastDeadline
	WholeLease    = PastDeadline + PastLease
	RestOfLease   = WholeLease - PastContext
	PastRetention = 26 * time.Hour // and past the deletion of expired records
)
