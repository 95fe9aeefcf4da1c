// SPDX-License-Identifier: Apache-2.0

package main

// target is a package, with the files that implement the protocol: every
// function in them is broken. The files are listed by hand, so that the choice
// is a decision. A missing file is an error, so that the list stays up to date.
type target struct {
	module string   // folder of the module, from the root
	pkg    string   // folder of the package in the module
	breaks []string // base names
	// conditions: string constants whose name ends in "Condition" are
	// expressions of DynamoDB and are broken too.
	conditions bool
	// quoting are the tests that repeat the text of a condition. They notice
	// every change and prove nothing about it, so they are left out if a
	// condition is broken.
	quoting []string
}

var targets = []target{
	{module: ".", pkg: "idempotent", breaks: []string{ // all but the aliases
		"do.go", "before.go", "claim.go", "settle.go", "change.go", "execution.go", // a request
		"decide.go", "record.go", "outcome.go", // decisions
		"step.go", "steps.go", "commit.go",
		"resolve.go", "reconcile.go", "question.go", "resolver.go", "report.go", "requeue.go", "forget.go",
		"guard.go", "waiting.go", "cache.go", "options.go",
		"key.go", "seal.go", "result.go", "suspended.go", "errors.go",
	}},
	{module: ".", pkg: "idempotent/driver", breaks: []string{"record.go", "lifecycle.go", "step.go", "recovery.go", "id.go"}},
	{module: ".", pkg: "internal/jsontypes", breaks: []string{"jsontypes.go", "fields.go", "shape.go"}},
	{module: ".", pkg: "idempotent/memstore", breaks: []string{"memstore.go"}},
	{module: ".", pkg: "dynamostore", breaks: []string{
		"store.go", "item.go", "layout.go", "size.go", // records
		"chunk.go",                  // large results
		"transact.go", "refusal.go", // transactions
		"abandoned.go", "list.go", "delete.go",
	}, conditions: true, quoting: []string{"TestInsert_SendsTheCondition", "TestReplace_SendsTheCondition", "TestNewClient_Refusal"}},
	{module: ".", pkg: "dynamostore/powertools", breaks: []string{"powertools.go", "hash.go"}, conditions: true},
	{module: ".", pkg: "lambdabatch", breaks: []string{
		"visibility.go", "kafka.go", "through.go", "engine.go", "lanes.go", "handler.go", "options.go", "message.go",
	}},
	{module: "lambdadurable", pkg: ".", breaks: []string{"run.go", "resolver.go", "function.go"}},
	{module: "boltstore", pkg: ".", breaks: []string{"records.go", "lists.go", "record.go"}},
}
