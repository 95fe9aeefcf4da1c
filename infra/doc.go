// Package infra provisions the resources of package idempotent with the AWS CDK:
//
//	IdempotencyTable      the DynamoDB table, and permissions to use it
//	QueueSource           a queue that feeds a handler of lambdabatch
//	Reconciler            the schedule that settles unknown outcomes
//	IdempotencyDashboard  graphs of the metrics of package telemetry
//	IdempotencyAlarms     alarms on the same metrics
//
// [CheckRetention] checks the retention for event sources of other kinds.
//
// The defaults are those for production: encrypted, backed up, protected from
// deletion, least privilege. A configuration that cannot work is an error at
// synthesis, attached to the construct, which says what to change; then nothing
// is deployed.
//
// The package follows the conventions of awscdk: a construct has a function
// New… that takes a scope, an id and a struct of properties, whose nil fields
// have the documented default.
package infra
