// SPDX-License-Identifier: Apache-2.0

// Package wire has the requests that the program verify sends to its function, and
// the answers of the function.
package wire

import "time"

// The operations of the function. The table grants it all of them except Refused.
const (
	Operation = "verify"
	Counted   = "counted"
	Refused   = "refused"
)

// Request asks the function for one task.
type Request struct {
	Do        string // one of the tasks below
	Operation string // of Run
	Count     int    // keys of Run
	Key       string // of Kill
	Panic     bool   // Kill ends with a panic instead of a time-out

	Ciphertext []byte // of Probe: text that the table's key has encrypted; nil without such a key
	KeyID      string
}

// The tasks.
const (
	Probe = "probe" // which calls of DynamoDB its role allows
	Run   = "run"   // first requests of an operation, which must succeed
	Kill  = "kill"  // a run that writes the time until it is killed
	Clock = "clock" // the difference to the clock of DynamoDB
)

// Answer is the function's answer.
type Answer struct {
	Probes      map[string]string // of Probe: Allowed, or the error, by the call
	Environment string            // of Clock: random, and the same for all requests to one process
	Early, Late time.Duration     // of Clock: the limits of the function's clock minus that of DynamoDB
}

// Allowed is the result of a call that the role allows.
const Allowed = "allowed"
