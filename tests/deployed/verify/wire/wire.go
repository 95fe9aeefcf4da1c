// SPDX-License-Identifier: Apache-2.0

// Package wire has the requests that the program verify sends to its function, and
// the answers of the function.
package wire

import "time"

// The operations of the function. The table grants it all of them except Refused.
const (
	Operation = "verify"
	Counted   = "verify-counted"
	Messages  = "verify-message"
	Refused   = "verify-refused"
)

// Request asks the function for one task.
type Request struct {
	Do    string   // one of the tasks below
	Key   string   // of Crowd and Kill
	Keys  []string // of Unknown
	Count int      // clients of Crowd; requests of Count
	Tries int      // claims of each client of Crowd, at most
	Panic bool     // Kill ends with a panic instead of a time-out

	Ciphertext []byte // of Probe: text that the table's key has encrypted; nil without such a key
	KeyID      string
}

// The tasks.
const (
	Probe   = "probe"   // which calls of DynamoDB its role allows
	Crowd   = "crowd"   // concurrent claims of one key
	Kill    = "kill"    // a run that writes the time until it is killed
	Unknown = "unknown" // a record with an unknown outcome for each key
	Count   = "count"   // first requests of Counted
	Refuse  = "refuse"  // a request of the operation Refused
	Clock   = "clock"   // the difference to the clock of DynamoDB
)

// Answer is the function's answer.
type Answer struct {
	Probes    map[string]string // of Probe: Allowed, or the error, by the call
	Ends      map[string]int    // of the other tasks: how often a request ended in each way
	Conflicts int               // calls that DynamoDB refused because of another transaction
	// Environment is random, and the same for all requests to one process.
	Environment string
	// Early and Late limit the function's clock minus that of DynamoDB, of Clock.
	Early, Late time.Duration
}

// Allowed is the result of a call that the role allows.
const Allowed = "allowed"

// The ends of requests that are no error.
const (
	Ran        = "ran"
	Replayed   = "replayed"
	InProgress = "in progress"
)

// Message is a message of the queue.
type Message struct {
	ID   string
	Kind string // Good, Late or Bad
}

// The kinds of messages.
const (
	Good = "good"
	Late = "late" // the first delivery fails
	Bad  = "bad"  // every delivery fails
)
