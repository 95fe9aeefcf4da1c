package dynamostore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
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
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type item = map[string]types.AttributeValue

// fakeDynamoDB is one table in memory.
type fakeDynamoDB struct {
	mu        sync.Mutex
	items     map[string]item
	puts      []*dynamodb.PutItemInput
	gets      []*dynamodb.GetItemInput
	batchPuts []*dynamodb.BatchWriteItemInput
	batchGets []*dynamodb.BatchGetItemInput
	calls     map[string]int

	transactions []*dynamodb.TransactWriteItemsInput
	stale        []item // deleted items that the index still returns

	// refuse, if set, may return an error for the n-th call of an operation,
	// counted from 1. The call then has no effect.
	refuse func(operation string, n int) error
	// forgetful makes it ignore ReturnValuesOnConditionCheckFailure.
	forgetful bool
	// leave, if set, returns how many items of the n-th batch of an operation,
	// which has that size, are returned as unprocessed.
	leave func(operation string, n, size int) int
	// alias is the table's name in replies to batches. Default: as in the request.
	alias string

	table *types.TableDescription // nil: the table does not exist
	ttl   *types.TimeToLiveDescription
}

var _ dynamostore.Client = (*fakeDynamoDB)(nil)

func newFake() *fakeDynamoDB {
	return &fakeDynamoDB{items: map[string]item{}, calls: map[string]int{}, ttl: &types.TimeToLiveDescription{}}
}

// enter counts a call and returns the injected error for it, as the SDK would
// return it.
func (f *fakeDynamoDB) enter(ctx context.Context, operation string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[operation]++; f.calls[operation] > 10_000 {
		panic("the calls of " + operation + " do not end")
	}
	err := ctx.Err()
	if err == nil && f.refuse != nil {
		err = f.refuse(operation, f.calls[operation])
	}
	return operationError(operation, err)
}

func operationError(operation string, err error) error {
	if err == nil {
		return nil
	}
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

func (f *fakeDynamoDB) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if err := f.enter(ctx, "PutItem"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts = append(f.puts, in)
	pk := in.Item["pk"].(*types.AttributeValueMemberS).Value
	old := f.items[pk]
	all := in.ReturnValuesOnConditionCheckFailure == types.ReturnValuesOnConditionCheckFailureAllOld && !f.forgetful
	if err := refusal(aws.ToString(in.ConditionExpression), old, in.ExpressionAttributeValues, all); err != nil {
		return nil, operationError("PutItem", err)
	}
	f.items[pk] = overTheWire(in.Item)
	return &dynamodb.PutItemOutput{}, nil
}

func (f *fakeDynamoDB) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	if err := f.enter(ctx, "DeleteItem"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pk := pkOf(in.Key)
	old := f.items[pk]
	all := in.ReturnValuesOnConditionCheckFailure == types.ReturnValuesOnConditionCheckFailureAllOld && !f.forgetful
	if err := refusal(aws.ToString(in.ConditionExpression), old, in.ExpressionAttributeValues, all); err != nil {
		return nil, operationError("DeleteItem", err)
	}
	delete(f.items, pk)
	out := &dynamodb.DeleteItemOutput{}
	if in.ReturnValues == types.ReturnValueAllOld {
		out.Attributes = old
	}
	return out, nil
}

// refusal returns the error of a write whose condition is false. It contains the
// current item if the request asked for it.
func refusal(condition string, old, values item, all bool) error {
	holds, err := conditionHolds(condition, old, values)
	if holds || err != nil {
		return err
	}
	failed := &types.ConditionalCheckFailedException{Message: aws.String("The conditional request failed")}
	if all {
		failed.Item = overTheWire(old)
	}
	return failed
}

// overTheWire returns a copy of an item in its own memory, like a received item.
func overTheWire(it item) item {
	it = maps.Clone(it)
	for name, value := range it {
		switch v := value.(type) {
		case *types.AttributeValueMemberB:
			it[name] = &types.AttributeValueMemberB{Value: bytes.Clone(v.Value)}
		case *types.AttributeValueMemberM:
			it[name] = &types.AttributeValueMemberM{Value: overTheWire(v.Value)}
		case *types.AttributeValueMemberL:
			it[name] = &types.AttributeValueMemberL{Value: slices.Clone(v.Value)}
		}
	}
	return it
}

// floatOf reads a number of up to 53 bits. All times here are such numbers.
func floatOf(v types.AttributeValue) float64 {
	n, err := strconv.ParseFloat(v.(*types.AttributeValueMemberN).Value, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (f *fakeDynamoDB) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if err := f.enter(ctx, "GetItem"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets = append(f.gets, in)
	return &dynamodb.GetItemOutput{Item: overTheWire(f.items[in.Key["pk"].(*types.AttributeValueMemberS).Value])}, nil
}

func (f *fakeDynamoDB) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	if err := f.enter(ctx, "DescribeTable"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table == nil {
		return nil, operationError("DescribeTable", &types.ResourceNotFoundException{Message: aws.String("Requested resource not found")})
	}
	table := *f.table
	return &dynamodb.DescribeTableOutput{Table: &table}, nil
}

func (f *fakeDynamoDB) DescribeTimeToLive(ctx context.Context, in *dynamodb.DescribeTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	if err := f.enter(ctx, "DescribeTimeToLive"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: f.ttl}, nil
}

func (f *fakeDynamoDB) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	if err := f.enter(ctx, "CreateTable"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table != nil {
		return nil, operationError("CreateTable", &types.ResourceInUseException{Message: aws.String("Table already exists")})
	}
	f.table = describe(in)
	return &dynamodb.CreateTableOutput{TableDescription: f.table}, nil
}

// describe returns the description of a table that was created with in.
func describe(in *dynamodb.CreateTableInput) *types.TableDescription {
	d := &types.TableDescription{
		TableName:            in.TableName,
		TableArn:             aws.String("arn:aws:dynamodb:eu-central-1:123456789012:table/" + *in.TableName),
		TableStatus:          types.TableStatusActive,
		AttributeDefinitions: in.AttributeDefinitions,
		KeySchema:            in.KeySchema,
	}
	for _, index := range in.GlobalSecondaryIndexes {
		d.GlobalSecondaryIndexes = append(d.GlobalSecondaryIndexes, types.GlobalSecondaryIndexDescription{
			IndexName: index.IndexName, KeySchema: index.KeySchema, Projection: index.Projection, IndexStatus: types.IndexStatusActive,
		})
	}
	return d
}

func (f *fakeDynamoDB) UpdateTimeToLive(ctx context.Context, in *dynamodb.UpdateTimeToLiveInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error) {
	if err := f.enter(ctx, "UpdateTimeToLive"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ttl.TimeToLiveStatus == types.TimeToLiveStatusEnabled {
		return nil, operationError("UpdateTimeToLive", validation("TimeToLive is already enabled"))
	}
	f.ttl = &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusEnabled, AttributeName: in.TimeToLiveSpecification.AttributeName}
	return &dynamodb.UpdateTimeToLiveOutput{}, nil
}

// validation returns the error for which the SDK has no type.
func validation(message string) error {
	return &smithy.GenericAPIError{Code: "ValidationException", Message: message}
}

const tableName = "once"

func newStore(t testing.TB, client dynamostore.Client, optFns ...func(*dynamostore.Options)) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, tableName, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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

// fullRecord returns a record in which every field but Extra is set.
func fullRecord() driver.Record {
	r := someRecord()
	r.State = driver.StateCompleted
	r.Reason = driver.ReasonResult
	r.Recovery = idempotent.Rerun
	r.Attempt = 3
	r.Expires = at(1_700_086_400_001)
	r.Settled = at(1_700_000_001_500)
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
	return r
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
