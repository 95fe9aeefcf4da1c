// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type item = map[string]types.AttributeValue

// fakeDynamoDB is a database in memory that records calls and injects faults.
type fakeDynamoDB struct {
	dynamostore.Client
	db    *dynamotest.DB
	mu    sync.Mutex
	calls map[string]int
	sent  []any // the inputs

	// refuse, if set, may return an error for the n-th call of an operation,
	// counted from 1. The call then has no effect.
	refuse func(operation string, n int) error
	// alter, if set, changes the items in replies of GetItem and in refusals.
	alter func(item)
	// forgetful makes it ignore ReturnValuesOnConditionCheckFailure.
	forgetful bool
	// leave, if set, returns how many items of the n-th batch of an operation,
	// which has that size, are returned as unprocessed.
	leave func(operation string, n, size int) int
	// alias is the table's name in replies to batches. Default: as in the request.
	alias string

	// table and ttl, if table is set, describe the table.
	table *types.TableDescription
	ttl   *types.TimeToLiveDescription
}

func newFake() *fakeDynamoDB { return fakeOn(dynamotest.New(tableName, "orders")) }

// withoutTables returns a database in which no table exists.
func withoutTables() *fakeDynamoDB { return fakeOn(dynamotest.New()) }

func fakeOn(db *dynamotest.DB) *fakeDynamoDB {
	f := &fakeDynamoDB{db: db, calls: map[string]int{}}
	f.Client = dynamotest.Intercept(db, f.call)
	return f
}

// call counts a call, and makes it unless a fault is injected.
func (f *fakeDynamoDB) call(ctx context.Context, c *dynamotest.Call) {
	f.mu.Lock()
	f.calls[c.Op]++
	n := f.calls[c.Op]
	f.sent = append(f.sent, c.In)
	f.mu.Unlock()
	if n > 10_000 {
		panic("the calls of " + c.Op + " do not end")
	}
	if ctx.Err() == nil && f.refuse != nil {
		if err := f.refuse(c.Op, n); err != nil {
			c.Err = f.forget(operationError(c.Op, err))
			return
		}
	}
	switch in := c.In.(type) {
	case *dynamodb.QueryInput:
		small := *in
		small.Limit = aws.Int32(min(maxPage, aws.ToInt32(in.Limit)))
		c.In = &small
	case *dynamodb.ScanInput:
		small := *in
		small.Limit = aws.Int32(maxPage)
		c.In = &small
	case *dynamodb.BatchWriteItemInput:
		f.batchWrite(ctx, c, in, n)
		return
	case *dynamodb.BatchGetItemInput:
		f.batchGet(ctx, c, in, n)
		return
	}
	c.Do(ctx)
	c.Err = f.forget(c.Err)
	f.describe(c)
}

// maxPage is the page size of its lists, small so that every list has pages.
const maxPage = 3

// operationError returns an error as the SDK does.
func operationError(operation string, err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		status := http.StatusBadRequest
		if api.ErrorFault() == smithy.FaultServer {
			status = http.StatusInternalServerError
		}
		err = &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}
	}
	return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: operation, Err: err}
}

func (f *fakeDynamoDB) count(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[operation]
}

// all returns the items of all tables by their keys.
func (f *fakeDynamoDB) all() map[string]item {
	all := map[string]item{}
	for _, table := range []string{tableName, "orders"} {
		in := &dynamodb.ScanInput{TableName: &table}
		for {
			out, err := f.db.Scan(context.Background(), in)
			if err != nil {
				panic(err)
			}
			for _, it := range out.Items {
				all[pkOf(it)] = it
			}
			if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
				break
			}
		}
	}
	return all
}

// item returns the item with the key, or nil.
func (f *fakeDynamoDB) item(key string) item { return f.all()[key] }

// store puts an item into the store's table.
func (f *fakeDynamoDB) store(it item) {
	if _, err := f.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String(tableName), Item: it}); err != nil {
		panic(err)
	}
}

// change changes an item of the store's table, as another writer does.
func (f *fakeDynamoDB) change(key string, change func(item)) {
	it := f.item(key)
	change(it)
	f.store(it)
}

// remove deletes an item of the store's table, as its time to live does.
func (f *fakeDynamoDB) remove(key string) {
	in := &dynamodb.DeleteItemInput{TableName: aws.String(tableName), Key: item{"pk": &types.AttributeValueMemberS{Value: key}}}
	if _, err := f.db.DeleteItem(context.Background(), in); err != nil {
		panic(err)
	}
}

// sent returns the inputs of that type.
func sent[I any](f *fakeDynamoDB) (inputs []*I) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.sent {
		if in, ok := in.(*I); ok {
			inputs = append(inputs, in)
		}
	}
	return inputs
}

// forget changes the items in a refusal, or removes them, if f is forgetful.
func (f *fakeDynamoDB) forget(err error) error {
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if f.forgetful {
			failed.Item = nil
		} else if failed.Item != nil && f.alter != nil {
			f.alter(failed.Item)
		}
	}
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok && f.forgetful {
		for i := range cancelled.CancellationReasons {
			cancelled.CancellationReasons[i].Item = nil
		}
	}
	return err
}

// describe changes a reply as the fields of f require. A scan costs half a read unit
// for each item.
func (f *fakeDynamoDB) describe(c *dynamotest.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch out := c.Out.(type) {
	case *dynamodb.GetItemOutput:
		if out.Item != nil && f.alter != nil {
			f.alter(out.Item)
		}
	case *dynamodb.ScanOutput:
		if out.ConsumedCapacity != nil {
			out.ConsumedCapacity.CapacityUnits = aws.Float64(float64(out.ScannedCount) / 2)
		}
	case *dynamodb.DescribeTableOutput:
		if f.table != nil {
			table := *f.table
			out.Table = &table
		}
	case *dynamodb.DescribeTimeToLiveOutput:
		if f.table != nil {
			out.TimeToLiveDescription = f.ttl
		}
	}
}

// batchWrite leaves the first requests of a batch, which is the n-th.
func (f *fakeDynamoDB) batchWrite(ctx context.Context, c *dynamotest.Call, in *dynamodb.BatchWriteItemInput, n int) {
	table, requests := only(in.RequestItems)
	undone := f.undone(c.Op, n, len(requests))
	c.Out = &dynamodb.BatchWriteItemOutput{}
	if undone < len(requests) {
		c.In = &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: requests[undone:]}}
		c.Do(ctx)
	}
	if out, ok := c.Out.(*dynamodb.BatchWriteItemOutput); ok && undone > 0 {
		out.UnprocessedItems = map[string][]types.WriteRequest{f.named(table): slices.Clone(requests[:undone])}
	}
}

// batchGet leaves the first keys of a batch, which is the n-th.
func (f *fakeDynamoDB) batchGet(ctx context.Context, c *dynamotest.Call, in *dynamodb.BatchGetItemInput, n int) {
	table, request := only(in.RequestItems)
	if !aws.ToBool(request.ConsistentRead) {
		c.Err = operationError(c.Op, validation("the read is not consistent"))
		return
	}
	undone := f.undone(c.Op, n, len(request.Keys))
	left := request.Keys[:undone]
	out := &dynamodb.BatchGetItemOutput{}
	if undone < len(request.Keys) || undone == 0 { // the DB refuses a request without keys
		done := request
		done.Keys = request.Keys[undone:]
		c.In = &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: done}}
		if c.Do(ctx); c.Err != nil {
			return
		}
		out = c.Out.(*dynamodb.BatchGetItemOutput)
		out.Responses = map[string][]item{f.named(table): out.Responses[table]}
		left = append(slices.Clone(left), out.UnprocessedKeys[table].Keys...)
	}
	if len(left) > 0 {
		out.UnprocessedKeys = map[string]types.KeysAndAttributes{f.named(table): {Keys: slices.Clone(left)}}
	}
	c.Out = out
}

func (f *fakeDynamoDB) undone(operation string, n, size int) int {
	if f.leave == nil {
		return 0
	}
	return f.leave(operation, n, size)
}

func (f *fakeDynamoDB) named(table string) string { return cmp.Or(f.alias, table) }

func pkOf(it item) string { return it["pk"].(*types.AttributeValueMemberS).Value }

// only returns the single table of a batch.
func only[V any](tables map[string]V) (string, V) {
	if len(tables) != 1 {
		panic(fmt.Sprintf("%d tables", len(tables)))
	}
	for name, v := range tables {
		return name, v
	}
	panic("unreachable")
}

// floatOf reads a number of up to 53 bits. All times here are such numbers.
func floatOf(v types.AttributeValue) float64 {
	n, err := strconv.ParseFloat(v.(*types.AttributeValueMemberN).Value, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// validation returns the error for which the SDK has no type.
func validation(message string) error {
	return &smithy.GenericAPIError{Code: "ValidationException", Message: message}
}

// errDenied is the refusal of a call without permission.
var errDenied = &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}

// refusing refuses the calls of an operation, or only these of them.
func refusing(operation string, err error, calls ...int) func(string, int) error {
	return func(called string, n int) error {
		if called == operation && (calls == nil || slices.Contains(calls, n)) {
			return err
		}
		return nil
	}
}

const tableName = "once"

func newStore(t testing.TB, client dynamostore.Client, optFns ...func(*dynamostore.Options)) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, tableName, slices.DeleteFunc(slices.Clone(optFns), func(f func(*dynamostore.Options)) bool { return f == nil })...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noIndex makes the lists of a store read the whole table.
func noIndex(o *dynamostore.Options) { o.NoIndex = &dynamostore.ScanOptions{} }

// at returns a time in the form that records store.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// someRecord returns a claim of a new key.
func someRecord() driver.Record {
	key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: rand.Text()}
	r := driver.Record{
		ID:          key.RecordID(),
		State:       driver.StateInProgress,
		Reason:      driver.ReasonClaimed,
		Recovery:    idempotent.Reconcile,
		Attempt:     1,
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
		LeaseEnd:    at(1_700_000_002_345),
		Created:     at(1_700_000_000_001),
		Due:         at(1_700_000_002_345),
	}
	rand.Read(r.Owner[:])
	rand.Read(r.Version[:])
	return r
}

// fullRecord returns a record in which every field is set that can be set together.
func fullRecord() driver.Record {
	r := someRecord()
	r.State = driver.StateCompleted
	r.Reason = driver.ReasonResult
	r.Recovery = idempotent.Rerun
	r.Attempt = 3
	r.Expires = at(1_700_086_400_001)
	r.Since = at(1_700_000_001_500)
	r.Encoding = "json"
	r.Result = []byte("{\"id\":\"ch_1\"}\x00\xff")
	r.Ref = "orders/1 ü"
	r.RequestID = "request-1"
	r.Chunks = driver.Chunks{Count: 2, Length: 500_000, Sum: [32]byte{1, 2, 3}}
	r.ResultVersion = "v2"
	r.ReconcileAttempts = 2
	r.Retention = 30 * 24 * time.Hour
	r.UnresolvedRetention = 90 * 24 * time.Hour
	r.Codec = "gzip+json"
	r.StepNames = []string{"reserve", "charge"}
	r.OpenSince = at(1_700_000_000_400)
	r.PredecessorAnswered = true
	r.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r.Steps = []driver.StepRecord{
		{Name: "charge", Finished: true, Mode: driver.AtMostOnce, Attempt: 2, At: at(1_700_000_000_500), By: driver.StepByRun, Shape: "f00d", Encoding: "json", Result: []byte("1")},
		{Name: "inform", Attempt: 3},
	}
	return r
}

// insert stores the record of a new key.
func insert(t testing.TB, s *dynamostore.Store, r driver.Record) {
	t.Helper()
	if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
}

func newVersion() (v driver.Version) {
	rand.Read(v[:])
	return v
}

// show returns an item as text for failure messages.
func show(it item) string {
	s := ""
	for _, name := range sortedNames(it) {
		s += fmt.Sprintf("\n\t%s %s", name, showValue(it[name]))
	}
	return s
}
