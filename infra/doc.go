// Package infra provisions what package idempotent needs, with the AWS CDK:
//
//	IdempotencyTable      the DynamoDB table, and who may do what with it
//	QueueSource           a queue that feeds a handler of lambdabatch
//	Reconciler            the schedule that settles unknown outcomes
//	IdempotencyDashboard  what to look at
//	IdempotencyAlarms     what to be called for
//
// [CheckRetention] is for sources of other kinds.
//
// The defaults are what production needs: encrypted, backed up, protected from
// deletion, least privilege. What cannot work is an error at synth, attached to
// the construct, that says what to change; nothing is deployed then.
//
// The package's structs follow the conventions of awscdk: a construct has a
// function New… that takes a scope, an id and a struct of props, in which what
// is nil has the documented default.
package infra
