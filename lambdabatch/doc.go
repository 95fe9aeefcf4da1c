// SPDX-License-Identifier: Apache-2.0

// Package lambdabatch makes handlers of queues and streams idempotent. Each
// message is its own unit of work, and the response to Lambda names exactly the
// messages that must be delivered again.
//
//	event ─► record       one per message: its id, body, attributes, lane
//	      ─► lanes        keep order: FIFO groups, partitions, equal keys
//	      ─► handler      idempotent.Do for each, up to Concurrency at a time
//	      ─► response     the ids of the failures; for a stream the first of them
//
// One engine handles all sources: [SQS], [SQSFIFO], [Kinesis], [DynamoDB] and
// [Kafka] only translate events. The outcome of an attempt decides what happens to the
// message:
//
//	completed, replayed, Final       acknowledged, if that is stored
//	a transaction in doubt           redelivered, even if the handler ignores it
//	in progress, failed, StoreError  redelivered
//	unknown (UnresolvedError)        redelivered, or acknowledged once handed over
//	not reached, out of time         redelivered, not executed
//
// If the function fails, the source redelivers the whole batch. If the event
// source mapping has ReportBatchItemFailures enabled, it redelivers only the
// messages that the response names. Without that setting every response
// acknowledges all messages, so enable it. With [Options.Visibility] a queue
// hides a message that is in progress or unknown until its record can have changed.
//
// An event with a record of another source, or without what its source always sends, is an
// error of the function. [Pipe] reads what a pipe of EventBridge sends.
//
// For sources that deliver one event at a time, [EventBridge], [SNS], [S3],
// [AsyncInvoke] and [StepFunctions] are KeyFuncs for idempotent.Wrap.
package lambdabatch

// Chapters, each of which refers only to those below it:
//
//	pipe.go     what pipes of EventBridge send
//	sqs.go      SQS and SQSFIFO, and notifications of SNS and S3 that arrive in a queue
//	streams.go  Kinesis, DynamoDB streams, and topics of Kafka
//	single.go   keys for sources that deliver one event at a time
//	handler.go  a batch in, the ids to redeliver out, and when a refused message returns
//	engine.go   one message through the core, what its outcome means, and which may run at the same time
//	options.go  Options
//	message.go  a message, and the ids of work
