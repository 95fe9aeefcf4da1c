// SPDX-License-Identifier: Apache-2.0

// Package infra provides constructs of the AWS CDK for the resources that guarded
// handlers need:
//
//	records := infra.NewIdempotencyTable(stack, …)   the DynamoDB table
//	records.GrantHandler(charge)                     least privilege, and ONCE_TABLE
//	infra.NewQueueSource(stack, …)                   a queue that feeds a handler of lambdabatch
//	infra.NewReconciler(stack, …)                    a schedule that settles unknown outcomes
//	infra.NewIdempotencyAlarms(stack, …)             conditions that need an operator
//	infra.NewIdempotencyDashboard(stack, …)          graphs of the metrics, below the alarms
//
// A table and GrantHandler are enough for a handler. A handler whose outcome can
// become unknown also needs a [Reconciler], which uses the table and grants its
// function the permissions. A [QueueSource] needs no table: it connects a queue and
// a function, and refuses settings with which a message is lost or runs twice. For
// sources of other kinds, [CheckRetention] compares the retention.
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
// default.
//
// Chapters, from top to bottom; each refers only to those below it:
//
//	dashboard.go   the dashboard
//	alarms.go      the alarms, and who is notified
//	metrics.go     the metrics of both
//	reconciler.go  the schedule
//	scan.go        the scan for abandoned runs, and its price
//	sources.go     queues and retention
//	table.go       the table and its permissions
//	props.go       properties, and how bad ones are refused
package infra
