// Package dynamostore keeps the records of package idempotent in one DynamoDB
// table.
//
//	Guard ─► Insert   PutItem  if attribute_not_exists(pk) OR exp <= :now
//	      ─► Replace  PutItem  if wid = :was
//	      ─► Get      GetItem  with a consistent read
//
// Each is one call. A write that is refused brings the record that stands back
// in the refusal, so a duplicate costs one round trip and no read.
//
// DynamoDB bills a write by the size of the item, a refused one too, and stores
// no item above 400 KB. So a result above 4 KB goes into items of its own, ahead
// of the record that then names them:
//
//	Guard ─► PutChunks  BatchWriteItem  of record id # write id # 0, 1, …
//	      ─► GetChunks  BatchGetItem    with a consistent read
//
// As a rule that is one call for all that a Lambda function may return, 6 MB;
// whoever is refused and replays it makes one more.
//
// One table serves every operation of every function:
//
//	pk                 the record id; no sort key
//	ttl                when DynamoDB may delete the item: an hour after the record
//	                   expired, its chunks another hour later
//	index "recovery"   the records that reconciliation has to find, and only those
//
// [Store.Check] says what is wrong with a table, for deploy time and tests;
// [Store.CreateTable] makes one for tests and local use. [NewClient] makes a
// client whose retries are quick and few.
//
// A handler needs dynamodb:PutItem and dynamodb:GetItem on the table, and for
// results above 4 KB dynamodb:BatchWriteItem and dynamodb:BatchGetItem. Without
// the first of these two it works, but such a result is not stored and cannot be
// replayed. See the runnable example of [New].
package dynamostore
