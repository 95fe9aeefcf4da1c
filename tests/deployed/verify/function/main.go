// SPDX-License-Identifier: Apache-2.0

// Command function is the Lambda function that the program verify deploys. It does
// the tasks of package wire, takes the messages of the queue, or reconciles if ROLE
// is reconciler. In the folder of Lambda's extensions it is an extension that uses
// the whole shutdown phase.
//
// Environment: that of dynamostore.Open; ONCE_METRICS_NAMESPACE is the namespace of
// the metrics; ITEMS_TABLE is a table with the partition key pk; MARGIN is
// idempotent.Operation.LeaseMargin, if set.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/telemetry/emf"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

func main() {
	if filepath.Dir(os.Args[0]) == "/opt/extensions" {
		log.Fatal(extension(filepath.Base(os.Args[0])))
	}
	f, err := newFunction(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if os.Getenv("ROLE") == "reconciler" {
		lambda.Start(idempotent.Reconciler(f.guard, map[string]idempotent.ResolveFunc{
			wire.Operation: func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
				return idempotent.Resolved("settled"), nil
			},
		}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 32 }))
	}
	lambda.StartHandlerFunc(emf.Flushed(f.metrics, f.handle))
}

// function is what all requests to one process share.
type function struct {
	cfg         aws.Config
	client      *dynamodb.Client
	store       *dynamostore.Store
	guard       *idempotent.Guard
	metrics     *emf.Observer
	take        func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)
	table       string
	items       string
	environment string
	conflicts   atomic.Int64
	date        atomic.Value // http.Header of the last response of DynamoDB
}

func newFunction(ctx context.Context) (*function, error) {
	f := &function{table: os.Getenv("ONCE_TABLE"), items: os.Getenv("ITEMS_TABLE"), environment: rand.Text()}
	var err error
	if f.cfg, err = awsconfig.LoadDefaultConfig(ctx); err != nil {
		return nil, err
	}
	f.client = dynamostore.NewClient(f.cfg, func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("watch", f.watch), middleware.Before)
		})
	})
	if f.store, err = dynamostore.Open(ctx, func(o *dynamostore.Options) { o.Client = f.client }); err != nil {
		return nil, err
	}
	if f.metrics, err = emf.New(os.Stdout, os.Getenv("ONCE_METRICS_NAMESPACE")); err != nil {
		return nil, err
	}
	margin, err := time.ParseDuration(os.Getenv("MARGIN"))
	if err != nil && os.Getenv("MARGIN") != "" {
		return nil, err
	}
	f.guard, err = idempotent.New(f.store, func(o *idempotent.Options) {
		o.Observer, o.LeaseMargin, o.ReconcileAfter = f.metrics, margin, 20*time.Second
	})
	if err != nil {
		return nil, err
	}
	f.take = lambdabatch.SQS(f.guard, f.message, func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.Concurrency = wire.Messages, lambdabatch.Field("/ID"), 10
	})
	return f, nil
}

// watch counts conflicts, and stores the headers of the last response.
func (f *function) watch(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
	middleware.DeserializeOutput, middleware.Metadata, error,
) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	if response, ok := out.RawResponse.(*smithyhttp.Response); ok {
		f.date.Store(response.Header)
	}
	if failure, ok := errors.AsType[smithy.APIError](err); ok && strings.Contains(failure.ErrorCode(), "Conflict") {
		f.conflicts.Add(1)
	}
	return out, metadata, err
}

// handle answers a wire.Request or an event of the queue.
func (f *function) handle(ctx context.Context, event json.RawMessage) (any, error) {
	var batch events.SQSEvent
	if err := json.Unmarshal(event, &batch); err == nil && len(batch.Records) > 0 {
		answer, err := f.take(ctx, batch)
		_, noted := f.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.items, Item: item(invocationID(ctx))})
		return answer, errors.Join(err, noted)
	}
	var r wire.Request
	if err := json.Unmarshal(event, &r); err != nil {
		return nil, err
	}
	var e ends
	a := wire.Answer{Environment: f.environment}
	switch r.Do {
	case wire.Probe:
		a.Probes = f.probe(ctx, r)
	case wire.Crowd:
		before := f.conflicts.Load()
		f.crowd(ctx, r, &e)
		a.Conflicts = int(f.conflicts.Load() - before)
	case wire.Kill:
		return nil, f.kill(ctx, r)
	case wire.Unknown:
		limited(len(r.Keys), 16, func(i int) {
			_, err := idempotent.Do(ctx, f.guard, keyOf(wire.Operation, r.Keys[i]), func(context.Context) (string, error) {
				return "", idempotent.Unknown(errors.New("no reply"))
			})
			e.add(end(false, err))
		})
	case wire.Count, wire.Refuse:
		operation, count := wire.Counted, r.Count
		if r.Do == wire.Refuse {
			operation, count = wire.Refused, 1
		}
		for range count {
			out, err := idempotent.DoOutcome(ctx, f.guard, keyOf(operation, rand.Text()), func(context.Context) (string, error) { return "done", nil })
			e.add(end(out.Replayed, err))
		}
	case wire.Clock:
		var err error
		if a.Early, a.Late, err = f.clock(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown task %q", r.Do)
	}
	a.Ends = e.counts
	return a, nil
}

func keyOf(operation, id string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
}

// ends counts how requests ended.
type ends struct {
	mu     sync.Mutex
	counts map[string]int
}

func (e *ends) add(end string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[string]int{}
	}
	e.counts[end]++
}

func end(replayed bool, err error) string {
	switch {
	case errors.As(err, new(*idempotent.InProgressError)):
		return wire.InProgress
	case err != nil:
		return err.Error()
	case replayed:
		return wire.Replayed
	}
	return wire.Ran
}

// limited calls do with 0 to n-1, at most limit of them at a time.
func limited(n, limit int, do func(int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

// crowd claims one key many times at once. A run waits until others have been
// refused, and then counts itself in the transaction of its outcome.
func (f *function) crowd(ctx context.Context, r wire.Request, e *ends) {
	deadline, _ := ctx.Deadline()
	limited(r.Count, r.Count, func(int) {
		for try := 1; ; try++ {
			out, err := idempotent.DoOutcome(ctx, f.guard, keyOf(wire.Operation, r.Key), func(ctx context.Context) (string, error) {
				time.Sleep(200 * time.Millisecond)
				return "done", dynamostore.Commit(ctx, "done", types.TransactWriteItem{Update: &types.Update{
					TableName: &f.items, Key: item(r.Key),
					UpdateExpression: aws.String("ADD runs :one"), ExpressionAttributeValues: values(":one", 1),
				}})
			})
			if how := end(out.Replayed, err); how != wire.InProgress || try >= r.Tries || time.Until(deadline) < time.Second {
				e.add(how)
				return
			}
			time.Sleep(time.Duration(20+try*10) * time.Millisecond)
		}
	})
}

// kill claims a key and writes the time every 50 ms, whatever its context, until the
// process ends.
func (f *function) kill(ctx context.Context, r wire.Request) error {
	deadline, _ := ctx.Deadline()
	beat := func(at time.Time) {
		v := values(":at", int(at.UnixMilli()), ":deadline", int(deadline.UnixMilli()))
		_, err := f.client.UpdateItem(context.WithoutCancel(ctx), &dynamodb.UpdateItemInput{
			TableName: &f.items, Key: item(r.Key), ExpressionAttributeValues: v,
			UpdateExpression:    aws.String("SET beat = :at, deadline = :deadline"),
			ConditionExpression: aws.String("attribute_not_exists(beat) OR beat < :at"), // the last one may arrive first
		})
		if err != nil && !errors.As(err, new(*types.ConditionalCheckFailedException)) {
			log.Print(err)
		}
	}
	_, err := idempotent.Do(ctx, f.guard, keyOf(wire.Operation, r.Key), func(context.Context) (string, error) {
		beat(time.Now()) // at least once
		beating := func() {
			for at := range time.Tick(50 * time.Millisecond) {
				go beat(at)
			}
		}
		if r.Panic {
			go beating()
			time.Sleep(500 * time.Millisecond)
			panic("as requested")
		}
		beating()
		return "", nil
	})
	return err
}

// invocationID returns the id of the invocation. An item of this name exists if the
// invocation came to its end.
func invocationID(ctx context.Context) string {
	lc, _ := lambdacontext.FromContext(ctx)
	return lc.AwsRequestID
}

// message takes a message of the queue. It counts each run, with its time and
// invocation.
func (f *function) message(ctx context.Context, m events.SQSMessage) error {
	var body wire.Message
	if err := json.Unmarshal([]byte(m.Body), &body); err != nil {
		return err
	}
	v := values(":one", 1, ":at", int(time.Now().UnixMilli()))
	v[":at"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{v[":at"]}}
	v[":by"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberS{Value: invocationID(ctx)}}}
	v[":none"] = &types.AttributeValueMemberL{}
	v[":received"] = &types.AttributeValueMemberN{Value: m.Attributes["ApproximateFirstReceiveTimestamp"]}
	_, err := f.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &f.items, Key: item(body.ID),
		UpdateExpression: aws.String("SET received = :received, times = list_append(if_not_exists(times, :none), :at)," +
			" invocations = list_append(if_not_exists(invocations, :none), :by) ADD runs :one"),
		ExpressionAttributeValues: v,
	})
	if err == nil && (body.Kind == wire.Bad || body.Kind == wire.Late && m.Attributes["ApproximateReceiveCount"] == "1") {
		err = idempotent.NotExecuted(errors.New("as requested"))
	}
	return err
}

// clock compares this machine's clock with the header Date of DynamoDB, which has
// whole seconds. A second of sleep keeps the environment busy, so that requests at
// the same time reach different ones.
func (f *function) clock(ctx context.Context) (early, late time.Duration, err error) {
	time.Sleep(time.Second)
	early, late = -time.Hour, time.Hour
	for range 10 { // the limits of several calls are closer
		sent := time.Now()
		if _, err := f.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &f.items, Key: item("clock")}); err != nil {
			return 0, 0, err
		}
		received := time.Now()
		header, _ := f.date.Load().(http.Header)
		date, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			return 0, 0, fmt.Errorf("the response of DynamoDB has no date: %w", err)
		}
		early, late = max(early, sent.Sub(date)-time.Second), min(late, received.Sub(date))
		time.Sleep(70 * time.Millisecond)
	}
	return early, late, nil
}

// probe tries calls with keys of the granted and of a foreign operation. The writes have
// a condition that fails, so that they change nothing; only a chunk is written.
func (f *function) probe(ctx context.Context, r wire.Request) map[string]string {
	all := map[string]string{}
	never, index := aws.String("attribute_exists(pk)"), aws.String(tabledef.IndexName)
	for name, operation := range map[string]string{"own": wire.Operation, "foreign": wire.Refused} {
		id := keyOf(operation, rand.Text()).RecordID()
		key := item(string(id))
		chunk := item(string(id) + "#AAAAAAAAAAAAAAAAAAAAAA#0")
		put := func(name string, err error) { all[name] = result(err) }
		_, err := f.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.table, Item: key, ConditionExpression: never})
		put("PutItem "+name, err)
		_, err = f.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &f.table, Key: key})
		put("GetItem "+name, err)
		_, err = f.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: &f.table, Item: key, ConditionExpression: never}},
			{Put: &types.Put{TableName: &f.items, Item: item(rand.Text())}},
		}})
		put("TransactWriteItems "+name, err)
		_, err = f.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &f.table, Key: key, ConditionExpression: never})
		put("UpdateItem "+name, err)
		_, err = f.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &f.table, Key: key, ConditionExpression: never})
		put("DeleteItem "+name, err)
		_, err = f.store.PutChunks(ctx, id, driver.Version{1}, []byte("chunk"), time.Now())
		put("BatchWriteItem "+name, err)
		_, err = f.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			f.table: {Keys: []map[string]types.AttributeValue{chunk}},
		}})
		put("BatchGetItem "+name, err)
	}
	_, err := f.client.Scan(ctx, &dynamodb.ScanInput{TableName: &f.table, Limit: aws.Int32(1)})
	all["Scan"] = result(err)
	_, err = f.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &f.table, IndexName: index, KeyConditionExpression: aws.String("rk = :rk"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":rk": &types.AttributeValueMemberS{Value: "0"}},
	})
	all["Query index"] = result(err)
	if r.KeyID != "" {
		_, err = kms.NewFromConfig(f.cfg).Decrypt(ctx, &kms.DecryptInput{KeyId: &r.KeyID, CiphertextBlob: r.Ciphertext})
		all["kms:Decrypt"] = result(err)
	}
	return all
}

// result is wire.Allowed if only a condition failed, and the text of any other error.
func result(err error) string {
	canceled, _ := errors.AsType[*types.TransactionCanceledException](err)
	switch {
	case err == nil, errors.As(err, new(*types.ConditionalCheckFailedException)):
		return wire.Allowed
	case canceled != nil && len(canceled.CancellationReasons) > 0 && aws.ToString(canceled.CancellationReasons[0].Code) == "ConditionalCheckFailed":
		return wire.Allowed
	}
	return err.Error()
}

// item returns a key of one of the tables.
func item(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

// values returns numbers by their names.
func values(pairs ...any) map[string]types.AttributeValue {
	all := map[string]types.AttributeValue{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = &types.AttributeValueMemberN{Value: strconv.Itoa(pairs[i+1].(int))}
	}
	return all
}

// extension registers for the shutdown, and then does not return, so that Lambda has
// to end it.
func extension(name string) error {
	base := "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2020-01-01/extension/"
	send := func(method, path, header, value string, body []byte) (*http.Response, error) {
		req, err := http.NewRequest(method, base+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set(header, value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		return resp, resp.Body.Close()
	}
	registered, err := send(http.MethodPost, "register", "Lambda-Extension-Name", name, []byte(`{"events":["SHUTDOWN"]}`))
	if err != nil {
		return err
	}
	const id = "Lambda-Extension-Identifier"
	if _, err := send(http.MethodGet, "event/next", id, registered.Header.Get(id), nil); err != nil {
		return err
	}
	time.Sleep(time.Hour)
	return nil
}
