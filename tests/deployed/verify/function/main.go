// SPDX-License-Identifier: Apache-2.0

// Command function is the Lambda function that the program verify deploys. It does
// the tasks of package wire.
//
// Environment: ONCE_TABLE is the table of the records; ONCE_METRICS_NAMESPACE is the
// namespace of the metrics; ITEMS_TABLE is a table with the partition key pk; MARGIN
// is idempotent.Operation.LeaseMargin, if set.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/telemetry/emf"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// function is what all requests to one process share.
type function struct {
	cfg          aws.Config
	client       *dynamodb.Client // of the calls that are not the store's: it has no time limit of a try
	store        *dynamostore.Store
	guard        *idempotent.Guard
	table, items string
	environment  string
}

func main() {
	f := &function{table: os.Getenv("ONCE_TABLE"), items: os.Getenv("ITEMS_TABLE"), environment: rand.Text()}
	f.cfg = must(awsconfig.LoadDefaultConfig(context.Background()))
	f.client = dynamodb.NewFromConfig(f.cfg)
	f.store = must(dynamostore.New(dynamostore.NewClient(f.cfg), f.table))
	metrics := must(emf.New(os.Stdout, os.Getenv("ONCE_METRICS_NAMESPACE")))
	margin := must(time.ParseDuration(cmp.Or(os.Getenv("MARGIN"), "0s")))
	f.guard = must(idempotent.New(f.store, func(o *idempotent.Options) { o.Observer, o.LeaseMargin = metrics, margin }))
	lambda.StartHandlerFunc(emf.Flushed(metrics, f.handle))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func (f *function) handle(ctx context.Context, r wire.Request) (a wire.Answer, err error) {
	switch r.Do {
	case wire.Probe:
		a.Probes = f.probe(ctx, r)
	case wire.Run:
		for range r.Count {
			if _, err := idempotent.Do(ctx, f.guard, keyOf(r.Operation, rand.Text()), func(context.Context) (string, error) { return "done", nil }); err != nil {
				return a, err
			}
		}
	case wire.Kill:
		return a, f.kill(ctx, r)
	case wire.Clock:
		a.Environment = f.environment
		a.Early, a.Late, err = f.clock(ctx)
	default:
		err = fmt.Errorf("unknown task %q", r.Do)
	}
	return a, err
}

func keyOf(operation, id string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
}

// probe tries calls with keys of the granted and of a foreign operation. The writes have
// a condition that fails, so that they change nothing; only a chunk is written.
func (f *function) probe(ctx context.Context, r wire.Request) map[string]string {
	all := map[string]string{}
	never := aws.String("attribute_exists(pk)")
	for name, operation := range map[string]string{"own": wire.Operation, "foreign": wire.Refused} {
		id := keyOf(operation, rand.Text()).RecordID()
		key := item(string(id))
		put := func(call string, err error) { all[call+" "+name] = result(err) }
		_, err := f.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.table, Item: key, ConditionExpression: never})
		put("PutItem", err)
		_, err = f.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &f.table, Key: key})
		put("GetItem", err)
		_, err = f.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: &f.table, Item: key, ConditionExpression: never}},
			{Put: &types.Put{TableName: &f.items, Item: item(rand.Text())}},
		}})
		put("TransactWriteItems", err)
		_, err = f.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: &f.table, Key: key, ConditionExpression: never})
		put("UpdateItem", err)
		_, err = f.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &f.table, Key: key, ConditionExpression: never})
		put("DeleteItem", err)
		_, err = f.store.PutChunks(ctx, id, driver.Version{1}, []byte("chunk"), time.Now())
		put("BatchWriteItem", err)
		_, err = f.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			f.table: {Keys: []map[string]types.AttributeValue{item(string(id) + "#AAAAAAAAAAAAAAAAAAAAAA#0")}},
		}})
		put("BatchGetItem", err)
	}
	_, err := f.client.Scan(ctx, &dynamodb.ScanInput{TableName: &f.table, Limit: aws.Int32(1)})
	all["Scan"] = result(err)
	_, err = f.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &f.table, IndexName: aws.String(tabledef.IndexName), KeyConditionExpression: aws.String("rk = :rk"),
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

// kill claims a key and writes the time every 50 ms, whatever its context, until the
// process ends.
func (f *function) kill(ctx context.Context, r wire.Request) error {
	deadline, _ := ctx.Deadline()
	beat := func(at time.Time) {
		_, err := f.client.UpdateItem(context.WithoutCancel(ctx), &dynamodb.UpdateItemInput{
			TableName: &f.items, Key: item(r.Key), UpdateExpression: aws.String("SET beat = :at, deadline = :deadline"),
			ConditionExpression:       aws.String("attribute_not_exists(beat) OR beat < :at"), // the last one may arrive first
			ExpressionAttributeValues: map[string]types.AttributeValue{":at": millis(at), ":deadline": millis(deadline)},
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

// clock compares this machine's clock with the header Date of DynamoDB, which has
// whole seconds. A second of sleep keeps the environment busy, so that requests at
// the same time reach different ones.
func (f *function) clock(ctx context.Context) (early, late time.Duration, err error) {
	time.Sleep(time.Second)
	early, late = -time.Hour, time.Hour
	for range 10 { // the limits of several calls are closer
		sent := time.Now()
		out, err := f.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &f.items, Key: item("clock")})
		if err != nil {
			return 0, 0, err
		}
		received := time.Now()
		date, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
		if !ok {
			return 0, 0, errors.New("the response of DynamoDB has no date")
		}
		early, late = max(early, sent.Sub(date)-time.Second), min(late, received.Sub(date))
		time.Sleep(70 * time.Millisecond)
	}
	return early, late, nil
}

// item returns a key of one of the tables.
func item(pk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}
}

func millis(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.UnixMilli(), 10)}
}
