// SPDX-License-Identifier: Apache-2.0

package main

// target is a package, with the files that implement the protocol: every
// function in them is broken. The files are listed by hand, so that the choice
// is a decision. A missing file is an error, so that the list stays up to date.
type target struct {
	module string   // folder of the module, from the root
	pkg    string   // folder of the package in the module
	breaks []string // base names
	tests  []string // folders in the package whose tests run; nil: its own
	// conditions: string constants whose name ends in "Condition" are
	// expressions of DynamoDB and are broken too.
	conditions bool
	// skipped are the tests that are left out: those that compare durations or memory,
	// because several mutants run at once and a busy machine fails them; those that run
	// another binary, in which there are no mutants; and slow ones that repeat others.
	skipped []string
	// short runs the short form of the tests, because the long one repeats it with more
	// cases and each survivor would take minutes.
	short bool
	// quoting are the tests that repeat the text of a condition. They notice
	// every change and prove nothing about it, so they are left out if a
	// condition is broken.
	quoting []string
}

var targets = []target{
	{module: ".", pkg: "idempotent", breaks: []string{ // all but the aliases
		"do.go", "predecessor.go", "shadow.go", "claim.go", "settle.go", // a request
		"execution.go", "change.go", // its run
		"decide.go", // decisions
		"step.go", "steps.go", "commit.go",
		"resolve.go", "reconcile.go", "due.go", "reconcile_record.go", "resolver.go", "report.go", "correct.go",
		"guard.go", "cache.go", "observe.go", "options.go",
		"key.go", "result.go", "suspended.go", "errors.go",
	}},
	{module: ".", pkg: "idempotent/driver", breaks: []string{"record.go", "state.go", "codec.go"}},
	{module: ".", pkg: "internal/jsontypes", breaks: []string{"jsontypes.go", "fields.go", "promoted.go", "text.go"}},
	{module: ".", pkg: "idempotent/memstore", breaks: []string{"memstore.go"}},
	{module: ".", pkg: "dynamostore", breaks: []string{
		"client.go", "protocol.go", // all but doc.go
		"store.go", "item.go", "layout.go", "size.go", // records
		"chunk.go",                  // large results
		"transact.go", "refusal.go", // transactions
		"abandoned.go", "expire.go", "bookmark.go", "list.go", "delete.go",
		"table_check.go", "table_create.go",
	}, conditions: true, quoting: []string{"TestInsert_SendsTheCondition", "TestReplace_SendsTheCondition", "TestNewClient_Refusal"}},
	{module: ".", pkg: "dynamostore/powertools", breaks: []string{"powertools.go", "hash.go"}, conditions: true},
	{module: ".", pkg: "lambdabatch", breaks: []string{
		"handler.go", "engine.go", "options.go", "message.go", "sqs.go", "streams.go", "single.go", "pipe.go", // all but doc.go
	}},
	{module: "lambdadurable", pkg: ".", breaks: []string{"run.go", "function.go"}},
	{module: "cmd/once", pkg: ".", breaks: []string{ // all but children_*.go and process.go
		"main.go", "flags.go", "list.go", "show.go", "console.go", "resolve.go", "requeue.go", "reconcile.go", "scan.go", "stats.go", "table.go",
	}},
	{module: "cmd/once", pkg: "internal/operate", breaks: []string{ // all
		"shape.go", "resolve.go", "find.go", // changes and reads
		"evidence.go", "confirmation.go", "table.go", "store.go", "env.go",
	}, tests: []string{"../..", "."}},
	{module: "cmd/once", pkg: "internal/console", breaks: []string{"server.go", "orders.go", "lists.go", "session.go"},
		tests: []string{"../..", "."}, skipped: []string{"TestConsole_Flood"}},
	{module: "cmd/once", pkg: "internal/output", breaks: []string{"output.go"}, tests: []string{"../.."}},
	{module: ".", pkg: "lambdahttp", breaks: []string{ // all but doc.go
		"engine.go", "middleware.go", "request.go", "events.go", "key.go", "syntax.go", "fingerprint.go", // a request
		"outcome.go", "recorder.go", "response.go", "answer.go", "json.go", // its answer
		"options.go", "profile.go",
	}, skipped: []string{"TestLimits"}},
	{module: ".", pkg: "lambdahttp", breaks: []string{"policy.go"}, tests: []string{"policy"}},
	{module: ".", pkg: "internal/httpform", breaks: []string{"httpform.go"}, tests: []string{"../../lambdahttp"}, skipped: []string{"TestLimits"}},
	{module: "idempotencyclient", pkg: ".", breaks: []string{
		"transport.go", "call.go", "options.go", "key.go", "problem.go",
	}},
	// Each run of these tests starts Node, which takes 7 s of processor time, so only the
	// files in which a mistake costs a user something are broken: permissions, alarms,
	// and what is refused. All files would take more than an hour.
	{module: "infra", pkg: ".", breaks: []string{"grants.go", "alarms.go", "props.go"}},
	{module: "boltstore", pkg: ".", breaks: []string{"records.go", "record.go"}},
	{module: ".", pkg: "internal/canonical", breaks: []string{"canonical.go", "number.go", "order.go"}, skipped: []string{"TestLimits", "TestMemory"}},
	{module: ".", pkg: "internal/pathkey", breaks: []string{"pathkey.go"}},
	{module: ".", pkg: "internal/view", breaks: []string{"view.go"}},
	{module: ".", pkg: "internal/timing", breaks: []string{"timing.go"}},
	{module: ".", pkg: "telemetry", breaks: []string{"telemetry.go"}},
	{module: ".", pkg: "telemetry/audit", breaks: []string{"audit.go"}},
	{module: ".", pkg: "telemetry/emf", breaks: []string{"emf.go"}},
	{module: "telemetry/otelonce", pkg: ".", breaks: []string{"observer.go"}},
	{module: ".", pkg: "idempotent/idempotenttest", breaks: []string{ // all but doc.go
		"explore.go", "explore_driver.go", "explore_judge.go", "explore_points.go", "explore_rules.go", "explore_sql.go", "explore_watch.go", "explore_world.go",
		"failuremodes.go", "failuremodes_claim.go", "failuremodes_evidence.go", "failuremodes_outcome.go", "fixture.go", "history.go",
		"store.go", "store_chunks.go", "store_lists.go", "underfaults.go",
		"clock.go", "intercept.go", "lab.go",
	}, short: true, skipped: []string{"TestExploreAllPairs"}}, // TestExplore runs its handlers with fewer faults
	// TestVetTool and TestProjects build the command, into which no mutant is woven, so they
	// notice nothing and take half a minute each.
	{module: "oncevet", pkg: ".", breaks: []string{ // all
		"oncevet.go", "retries.go", "effects.go", "contexts.go", "keys.go", "guarded.go", "summary.go", "sends.go", "paths.go", "values.go", "toolkit.go",
	}, skipped: []string{"TestVetTool", "TestProjects"}},
	{module: ".", pkg: "dynamostore/dynamotest", breaks: []string{ // all
		"table.go", "item.go", "value.go", "expression.go", "update.go", "list.go", "refusal.go", "intercept.go",
	}},
}
