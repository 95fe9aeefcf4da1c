// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
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

// provider makes one charge for each key. If hold is not nil, it answers the first
// request when hold is closed.
type provider struct {
	mu       sync.Mutex
	charges  map[string]string // by key
	requests int
	charged  chan struct{} // receives a value after each request
	hold     chan struct{}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests++
	first, key := p.requests == 1, r.Header.Get("Idempotency-Key")
	if p.charges[key] == "" {
		p.charges[key] = fmt.Sprintf("ch_%d", len(p.charges)+1)
	}
	id := p.charges[key]
	p.mu.Unlock()
	p.charged <- struct{}{}
	if first && p.hold != nil {
		<-p.hold
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, id)
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges)
}

func newProvider(t *testing.T) *provider {
	p := &provider{charges: map[string]string{}, charged: make(chan struct{}, 10)}
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

// The first delivery writes the order, and a second one is acknowledged.
func TestCommit(t *testing.T) {
	p, db, clock := newProvider(t), dynamotest.New("once", "orders"), &idempotenttest.Clock{}
	handler := newHandler(newGuard(t, db, clock))
	for range 2 {
		answer, err := handler(clock.Invocation(t.Context(), 10*time.Second), message("o-1"))
		if err != nil || len(answer.BatchItemFailures) != 0 {
			t.Fatalf("got %+v, %v", answer, err)
		}
	}
	wantOrder(t, db, "o-1", "ch_1")
	if p.count() != 1 {
		t.Errorf("%d charges, want 1", p.count())
	}
}

// Lambda kills the function after the charge and before Commit. The message is
// delivered again: it asks for the same charge, and writes the order. If the first
// delivery was slow and not dead, its Commit is refused.
func TestCommit_Killed(t *testing.T) {
	p, db, clock := newProvider(t), dynamotest.New("once", "orders"), &idempotenttest.Clock{}
	p.hold = make(chan struct{})
	handler := newHandler(newGuard(t, db, clock))

	finished := make(chan events.SQSEventResponse, 1)
	go func() {
		answer, _ := handler(clock.Invocation(context.Background(), 10*time.Second), message("o-1"))
		finished <- answer
	}()
	select {
	case <-p.charged: // the charge is made, and the provider does not answer
	case answer := <-finished:
		t.Fatalf("the handler has not called the provider: %+v", answer)
	}

	clock.Advance(time.Minute) // past the time at which Lambda kills the function
	answer, err := handler(clock.Invocation(t.Context(), 10*time.Second), message("o-1"))
	if err != nil || len(answer.BatchItemFailures) != 0 {
		t.Errorf("the second delivery got %+v, %v", answer, err)
	}
	wantOrder(t, db, "o-1", "ch_1")

	close(p.hold)
	<-finished
	wantOrder(t, db, "o-1", "ch_1")
	if p.count() != 1 {
		t.Errorf("%d charges, want 1", p.count())
	}
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
