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
// One table serves every operation of every function:
//
//	pk                 the record id; no sort key
//	ttl                when DynamoDB may delete the item, an hour after it expired
//	index "recovery"   the records that reconciliation has to find, and only those
//
// [Store.Check] says what is wrong with a table, for deploy time and tests;
// [Store.CreateTable] makes one for tests and local use. [NewClient] makes a
// client whose retries are quick and few.
//
// A handler needs dynamodb:PutItem and dynamodb:GetItem on the table and
// nothing else. See the runnable example of [New].
package dynamostore
