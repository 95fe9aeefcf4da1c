// Package lambdabatch makes handlers of queues and streams idempotent: each
// message is a unit of work of its own, and what is returned to Lambda names
// exactly the messages that have to come again.
//
//	event ─► record       one per message: its id, body, attributes, lane
//	      ─► lanes        what must not overtake: FIFO groups, partitions, equal keys
//	      ─► handler      idempotent.Do for each, in its lane, so many at once
//	      ─► response     the ids of the failures; for a stream the first of them
//
// The engine is one; a source is a file with a translation: [SQS], [SQSFIFO],
// [Kinesis] and [DynamoDB]. What an outcome becomes:
//
//	completed, replayed, Final     acknowledged, if that is recorded
//	a transaction in doubt         comes again, also if the handler ignores it
//	in progress, failed, StoreError  comes again
//	unknown (UnresolvedError)        comes again, or acknowledged once handed over
//	not reached, out of time       comes again, not executed
//
// A source redelivers a whole batch if the function fails, and only what is
// named if the event source mapping has ReportBatchItemFailures switched on;
// without that setting every response acknowledges everything. Switch it on.
//
// For sources that bring one event at a time, [EventBridge], [SNS], [S3],
// [AsyncInvoke] and [StepFunctions] are KeyFuncs for idempotent.Wrap.
package lambdabatch
