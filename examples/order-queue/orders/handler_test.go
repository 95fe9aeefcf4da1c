// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// dying is DynamoDB for a process that dies after its claim: every later call
// fails.
type dying struct {
	*dynamotest.DB
	claimed bool
}

var errDead = errors.New("the process is dead")

func (d *dying) PutItem(ctx context.Context, in *dynamodb.PutItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if d.claimed {
		return nil, errDead
	}
	d.claimed = true
	return d.DB.PutItem(ctx, in, optFns...)
}

func (d *dying) TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return nil, errDead
}

// An order whose process dies becomes due at the end of its lease and never
// expires, because it was claimed under Resume. Under Rerun the record would be on
// no list and would expire, although the customer may be charged without an order.
func TestADeadOrderIsDue(t *testing.T) {
	t.Parallel()
	client := &dying{DB: dynamotest.New("once", "shop")}
	store, err := dynamostore.New(client, "once")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	response, err := New(guard, "shop", nil)(ctx, events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: "m-1", EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
		Body: `{"order_id":"o-1","customer":"c-1","sku":"cup","quantity":2,"amount":1250}`,
	}}})
	if err != nil || len(response.BatchItemFailures) != 1 {
		t.Fatalf("got %+v, %v", response, err)
	}
	var records []driver.Record
	for r, err := range store.Scan(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	r := records[0]
	if r.Recovery != idempotent.Resume || !slices.Equal(r.StepNames, []string{"reserve", "charge", "give-back"}) {
		t.Errorf("the claim declares %s with the steps %q", r.Recovery, r.StepNames)
	}
	if !r.Due.Equal(r.LeaseEnd) || !r.Expires.IsZero() {
		t.Errorf("the record is due %s, want %s, and expires %s, want never", r.Due, r.LeaseEnd, r.Expires)
	}
}
