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
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// message is a message of the queue with an order for two cups.
func message(id string) events.SQSEvent {
	return events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: id, EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
		Body: `{"order_id":"o-1","customer":"c-1","sku":"cup","quantity":2,"amount":1250}`,
	}}}
}

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
	response, err := New(guard, "shop", nil)(ctx, message("m-1"))
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

// ledger is a provider that remembers keys for a day.
type ledger struct {
	now   func() time.Time
	made  map[string]time.Time // by key
	count int
}

func (l *ledger) Charge(_ context.Context, key, _ string, _ int) (Charge, error) {
	if made, known := l.made[key]; !known || l.now().Sub(made) > 24*time.Hour {
		l.made[key] = l.now()
		l.count++
	}
	return Charge{ID: "ch_1"}, nil
}

// An order is taken, but SQS gets no answer, and its message ends in the
// dead-letter queue. When it is redriven, with another id and a new retention, the
// order is not taken again: neither after five days nor at the end of the longest
// time that a queue with the default retention and any dead-letter queue allows.
func TestARedrivenOrderIsNotTakenAgain(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, after := range []time.Duration{5 * day, 4*day + 14*day + 4*day} {
		db := dynamotest.New("once", "shop")
		if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: aws.String("shop"), Item: item{"pk": text("stock#cup"), "available": number(10)},
		}); err != nil {
			t.Fatal(err)
		}
		store, err := dynamostore.New(db, "once")
		if err != nil {
			t.Fatal(err)
		}
		var clock idempotenttest.Clock
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now, o.Logger = clock.Now, slog.New(slog.DiscardHandler) })
		if err != nil {
			t.Fatal(err)
		}
		provider := &ledger{now: clock.Now, made: map[string]time.Time{}}
		h := New(guard, "shop", provider)
		for _, id := range []string{"m-1", "redriven"} {
			response, err := h(clock.Invocation(t.Context(), 30*time.Second), message(id))
			if err != nil || len(response.BatchItemFailures) != 0 {
				t.Fatalf("%s: got %+v, %v", id, response, err)
			}
			clock.Advance(after)
		}
		if provider.count != 1 {
			t.Errorf("the customer was charged %d times by a message that was redriven after %s", provider.count, after)
		}
	}
}
