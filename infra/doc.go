// SPDX-License-Identifier: Apache-2.0

// Package infra provides constructs of the AWS CDK for the resources that guarded
// handlers need:
//
//	records := infra.NewIdempotencyTable(stack, …)      the DynamoDB table
//	records := infra.IdempotencyTableFrom(stack, …)     or one that exists
//	records.Named("orders")                             a name, if a function has several
//	records.GrantHandler(charge, "POST /charges")       least privilege, and ONCE_TABLE
//	infra.NewQueueSource(stack, …)                      a queue that feeds a handler of lambdabatch
//	infra.NewStreamSource(stack, …)                     a Kinesis stream, or that of a table
//	infra.NewKafkaSource(stack, …)                      a topic of MSK or of another cluster
//	infra.NewReconciler(stack, …)                       a schedule that settles unknown outcomes
//	infra.NewIdempotencyAlarms(stack, …)                conditions that need an operator
//	infra.NewIdempotencyDashboard(stack, …)             graphs of the metrics, below the alarms
//
// A table and GrantHandler are enough for a handler. A handler whose outcome can
// become unknown also needs a [Reconciler], which uses the table and grants its
// function the permissions. A source needs no table: it connects a queue, a stream
// or a topic with a function, and refuses settings with which a message is lost or
// runs twice. For sources of other kinds, [CheckRetention] compares the retention.
// [IdempotencyAlarms] and [IdempotencyDashboard] read the metrics that package
// telemetry/emf prints. The alarms also watch the table, the reconciler and its
// queues, and notify topics by urgency.
//
// The defaults are those for production: encrypted, backed up, protected from
// deletion. A configuration that cannot work is an error at synthesis, attached to
// the construct. The error says what to change, and nothing is deployed.
//
// The package follows the conventions of awscdk: a function New… takes a scope, an
// id and a struct of properties. A property that is nil has the documented
// default. Functions, queues and tables can be imported, and a function can be an
// alias or a version. Grants accept every principal. What synthesis cannot check
// or set of an imported resource is a warning. A value that is known only at the
// deployment, such as a parameter, is not judged.
//
// Chapters, from top to bottom; each refers only to those below it:
//
//	dashboard.go   the dashboard
//	alarms.go      the alarms, and who is notified
//	catalogue.go   the facts of both, which the Terraform module reads too, and their metrics
//	reconciler.go  the schedule, the scan for abandoned runs, and its price
//	sources.go     queues, streams, topics and retention
//	grants.go      who may do what with the table
//	table.go       the table
//	props.go       properties, and how bad ones are refused
package infra
