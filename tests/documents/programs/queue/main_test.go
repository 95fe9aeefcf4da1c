// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// provider makes one charge for each key: it has those of the charges.
type provider map[string]bool

func (p provider) count() int { return len(p) }

func (p provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p[r.Header.Get("Idempotency-Key")] = true
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"ch_%d"}`, len(p)) // of the last key
}

func newProvider(t *testing.T) provider {
	p := provider{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	t.Setenv("PROVIDER_URL", server.URL)
	t.Setenv("ORDERS_TABLE", "orders")
	return p
}

func message(order string) events.SQSEvent {
	return events.SQSEvent{Records: []events.SQSMessage{{
		MessageId: "m-1", EventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:orders", Body: `{"order_id":"` + order + `","amount":4200}`,
	}}}
}

func newGuard(t *testing.T, db *dynamotest.DB, clock *idempotenttest.Clock) *idempotent.Guard {
	t.Helper()
	store, err := dynamostore.New(db, "once")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now = clock.Now })
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// wantOrder checks that the order was written once, with its charge.
func wantOrder(t *testing.T, db *dynamotest.DB, id, charge string) {
	t.Helper()
	orders, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("orders")})
	if err != nil || orders.Count != 1 {
		t.Errorf("%+v, %v, want one order", orders, err)
		return
	}
	row := orders.Items[0]
	if row["pk"].(*types.AttributeValueMemberS).Value != id || row["charge"].(*types.AttributeValueMemberS).Value != charge {
		t.Errorf("the order is %v", row)
	}
}

// Wherever the handler is killed, and whatever is lost, the customer is charged once, and
// the order is written once.
func TestEveryCrash(t *testing.T) {
	t.Setenv("PROVIDER_URL", "http://bank.test/charges")
	t.Setenv("ORDERS_TABLE", "orders")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		p := provider{}
		w.Provider(p)
		db := dynamotest.In(w, "once", []string{"orders"})
		w.ExactlyOnce("charge", p.count)
		w.ExactlyOnce("order", func() int { return orders(t, db) })
		idempotenttest.Handle(w, message("o-1"), newHandler)
	})
}

func orders(t *testing.T, db dynamostore.Client) int {
	t.Helper()
	out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("orders")})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Items)
}

// An order of another origin has the id. Nothing is written, and the message is
// delivered again until a person has decided.
func TestCommit_Refused(t *testing.T) {
	p, db, clock := newProvider(t), dynamotest.New("once", "orders"), &idempotenttest.Clock{}
	if _, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "o-1"}, "charge": &types.AttributeValueMemberS{Value: "ch_other"},
	}}); err != nil {
		t.Fatal(err)
	}
	handler := newHandler(newGuard(t, db, clock))
	for range 2 {
		answer, err := handler(clock.Invocation(t.Context(), 10*time.Second), message("o-1"))
		if err != nil || len(answer.BatchItemFailures) != 1 {
			t.Errorf("got %+v, %v, want the message as failed", answer, err)
		}
	}
	wantOrder(t, db, "o-1", "ch_other")
	if p.count() != 1 {
		t.Errorf("%d charges, want 1", p.count())
	}
}
