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
	{module: ".", pkg: "idempotent", breaks: []string{
		"decide.go", "record.go", "lease.go", "outcome.go", // decisions
		"change.go",                         // the retry loop of every change except the claim
		"attempt.go", "claim.go", "wait.go", // claim
		"do.go", "execution.go", "settle.go", // execution and outcome
		"resolve.go",                           // external evidence
		"step.go", "checkpoint.go", "steps.go", // steps
		"commit.go", "commitstep.go", // transactions
		"reconcile.go", "reconcileone.go", "scheduled.go", // reconciliation
		"chunks.go", "result.go", "cache.go", "codec.go", "encodable.go", "fields.go", // results
		"key.go", "fingerprint.go", "downstream.go", // keys
		"wrap.go", "guard.go", "options.go", "stored.go",
	}},
	{module: ".", pkg: "idempotent/driver", breaks: []string{"record.go", "step.go", "recovery.go", "id.go"}},
	{module: ".", pkg: "idempotent/memstore", breaks: []string{"memstore.go"}},
	{module: ".", pkg: "dynamostore", breaks: []string{
		"store.go", "item.go", "size.go", // records
		"chunk.go",                  // large results
		"transact.go", "refusal.go", // transactions
		"list.go", "delete.go",
	}, conditions: true, quoting: []string{"TestInsert_SendsTheCondition", "TestReplace_SendsTheCondition", "TestNewClient_Refusal"}},
	{module: ".", pkg: "lambdabatch", breaks: []string{
		"engine.go", "lanes.go", "handler.go", "options.go", "record.go",
	}},
	{module: "boltstore", pkg: ".", breaks: []string{"records.go", "lists.go", "record.go"}},
}
