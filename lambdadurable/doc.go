// SPDX-License-Identifier: Apache-2.0

// Package lambdadurable starts an AWS Lambda durable execution once per
// idempotency key, and answers retries with its outcome.
//
// A durable function checkpoints its steps, but Lambda starts a new execution for
// each invocation that does not name one. This package runs in the function in
// front of it, inside a guarded handler:
//
//	request ─► guard claims the key
//	        ─► [Run]: Invoke, with a name that is derived from the record
//	        ─► *[RunningError]: the caller is asked to come back
//	retry   ─► [Run]: GetDurableExecution ─► the result, or a Final error, is stored
//
// The operation must be declared with [idempotent.Resume] and [Step]. If the
// handler is killed after Invoke and before the record is written, the next
// request invokes again with the same name, and Lambda returns the execution that
// exists. [Resolver] does the same for records whose caller does not come back.
//
// The package does not depend on the SDK for durable functions.
package lambdadurable

// Chapters, each of which refers only to those below it:
//
//	run.go       Run and Start, in a guarded handler; Resolver, for the reconciler
//	function.go  New, and the calls of Lambda
