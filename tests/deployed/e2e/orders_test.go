// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/order-queue/orders"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// paymentProvider is a payment provider that honours keys, with a ledger to count effects.
type paymentProvider struct {
	mu      sync.Mutex
	charges map[string]orders.Charge // by key
	asked   int
	before  *mortal // dies before the charge
	after   *mortal // and this one after it
}

func (p *paymentProvider) Charge(_ context.Context, key, customer string, _ int) (orders.Charge, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.before != nil {
		p.before.dead.Store(true)
		return orders.Charge{}, errors.New("the process is dead")
	}
	c, known := p.charges[key]
	if !known {
		c = orders.Charge{ID: fmt.Sprintf("ch_%d", len(p.charges)+1)}
		if customer == "c-broke" {
			c = orders.Charge{Declined: true}
		}
		p.charges[key] = c
	}
	if p.after != nil {
		p.after.dead.Store(true)
	}
	return c, nil
}

// mortal is the network of a function: after the function's end, every call is
// lost.
type mortal struct {
	idempotenttest.Faults
	dead atomic.Bool
}

// diesAt returns a function that dies at its n-th call, which gets the fault.
func diesAt(n int, fault idempotenttest.Fault) *mortal {
	m := &mortal{}
	m.Plan = func(c idempotenttest.Call) idempotenttest.Fault {
		if c.N == n {
			m.dead.Store(true)
			return fault
		}
		if m.dead.Load() {
			return idempotenttest.LostRequest
		}
		return idempotenttest.NoFault
	}
	return m
}

// lives returns a function that dies at no call.
func lives() *mortal { return diesAt(0, idempotenttest.NoFault) }

// orderShop is the example with its tables, provider and clock.
type orderShop struct {
	t        *testing.T
	cfg      aws.Config
	records  string
	table    string
	sku      string
	clock    idempotenttest.Clock
	payments paymentProvider
}

func newOrderShop(t *testing.T, available int) *orderShop {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	s := &orderShop{t: t, cfg: engine.Config(endpoint), records: tableName(), table: tableName(), sku: rand.Text()}
	s.payments.charges = map[string]orders.Charge{}
	store, err := dynamostore.New(dynamostore.NewClient(s.cfg), s.records)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := dynamodb.NewFromConfig(s.cfg)
	if err := engine.CreateTable(t.Context(), client, s.table, "pk"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &s.table, Item: map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "stock#" + s.sku}, "available": &types.AttributeValueMemberN{Value: fmt.Sprint(available)},
	}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// deliver sends messages to a function in a new process, and returns those that
// are redelivered. A dead process sends no answer, so all its messages are.
func (s *orderShop) deliver(p *mortal, messages ...events.SQSMessage) (again []events.SQSMessage) {
	s.t.Helper()
	store, err := dynamostore.New(dynamostore.NewClient(s.cfg, func(o *dynamodb.Options) {
		o.HTTPClient, o.RetryMaxAttempts = &http.Client{Transport: p.Transport(nil)}, 1 // the dead try nothing again
	}), s.records)
	if err != nil {
		s.t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Now, o.Logger = s.clock.Now, slog.New(slog.DiscardHandler) })
	if err != nil {
		s.t.Fatal(err)
	}
	h := orders.New(guard, orders.Shop(s.table), &s.payments, nil)
	response, err := h(s.clock.Invocation(s.t.Context(), 30*time.Second), events.SQSEvent{Records: messages})
	if p.dead.Load() {
		return messages
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range messages {
		if slices.Contains(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId}) {
			again = append(again, m)
		}
	}
	return again
}

// message is a queue message with an order for two pieces.
func (s *orderShop) message(id, order, customer string) events.SQSMessage {
	return events.SQSMessage{
		MessageId: id, EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
		Body: fmt.Sprintf(`{"order_id":%q,"customer":%q,"sku":%q,"quantity":2,"amount":1250}`, order, customer, s.sku),
	}
}

// has returns an item of the shop.
func (s *orderShop) has(pk string) map[string]types.AttributeValue {
	s.t.Helper()
	out, err := dynamodb.NewFromConfig(s.cfg).GetItem(s.t.Context(), &dynamodb.GetItemInput{
		TableName: &s.table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out.Item
}

// want checks the available stock, the number of charges in the ledger, and
// that exactly the taken orders are written and announced, and the others are
// not.
func (s *orderShop) want(available, charges int, taken []string, others ...string) {
	s.t.Helper()
	if n := s.has("stock#" + s.sku)["available"].(*types.AttributeValueMemberN).Value; n != fmt.Sprint(available) {
		s.t.Errorf("%s are available, want %d", n, available)
	}
	made := 0
	for _, c := range s.payments.charges {
		if !c.Declined {
			made++
		}
	}
	if made != charges {
		s.t.Errorf("the ledger has %d charges, want %d: %v", made, charges, s.payments.charges)
	}
	for _, id := range append(taken, others...) {
		want := slices.Contains(taken, id)
		for _, pk := range []string{"order#" + id, "outbox#" + id} {
			if got := s.has(pk) != nil; got != want {
				s.t.Errorf("%s exists: %t, want %t", pk, got, want)
			}
		}
	}
}

func (s *orderShop) wantAgain(again []events.SQSMessage, want ...string) {
	s.t.Helper()
	ids := []string{}
	for _, m := range again {
		ids = append(ids, m.MessageId)
	}
	if !slices.Equal(ids, want) {
		s.t.Errorf("these are redelivered: %q, want %q", ids, want)
	}
}

// Orders are taken once: two copies in a batch, a redelivery, a customer who
// cannot pay, too little stock, and an invalid message.
func TestOrderQueue(t *testing.T) {
	t.Parallel()
	s := newOrderShop(t, 5)
	batch := []events.SQSMessage{
		s.message("m1", "o-1", "c-1"), s.message("m2", "o-1", "c-1"), s.message("m3", "o-2", "c-broke"), s.message("m4", "o-3", ""),
	}
	for range 2 {
		s.wantAgain(s.deliver(lives(), batch...), "m4")
		s.want(3, 1, []string{"o-1"}, "o-2", "o-3")
	}
	s.wantAgain(s.deliver(lives(), s.message("m5", "o-4", "c-1")))
	s.want(1, 2, []string{"o-1", "o-4"})
	s.wantAgain(s.deliver(lives(), s.message("m6", "o-5", "c-1"))) // sold out
	s.want(1, 2, []string{"o-1", "o-4"}, "o-5")
}

// F46, G04: the process dies before and after every call to the database, and
// before and after the charge. The message is redelivered, and the order is
// taken once.
func TestOrderQueue_RedeliveryAfterACrash(t *testing.T) {
	t.Parallel()
	s := newOrderShop(t, 100)
	deaths := map[string]func() *mortal{
		"before the charge": func() *mortal { s.payments.before = lives(); return s.payments.before },
		"after the charge":  func() *mortal { s.payments.after = lives(); return s.payments.after },
	}
	const calls = 4 // the claim, the goods, the charge's result, the order
	for n := 1; n <= calls; n++ {
		deaths[fmt.Sprintf("before call %d", n)] = func() *mortal { return diesAt(n, idempotenttest.LostRequest) }
		deaths[fmt.Sprintf("after call %d", n)] = func() *mortal { return diesAt(n, idempotenttest.LostReply) }
	}
	var taken []string
	asked := 0
	for name, dies := range deaths {
		order := fmt.Sprintf("o-%d", len(taken)+1)
		m := s.message("m1", order, "c-1")
		p := dies()
		s.deliver(p, m)
		if !p.dead.Load() {
			t.Fatalf("%s: the process is alive", name)
		}
		s.payments.before, s.payments.after = nil, nil
		claimed := name != "before call 1"
		if again := s.deliver(lives(), m); claimed && name != "after call 4" {
			s.wantAgain(again, "m1") // the lease has not ended
		}
		s.clock.Advance(time.Minute)
		s.wantAgain(s.deliver(lives(), m))
		s.wantAgain(s.deliver(lives(), m))
		taken = append(taken, order)
		s.want(100-2*len(taken), len(taken), taken)
		t.Logf("%s: the provider got %d requests", name, s.payments.asked-asked)
		asked = s.payments.asked
		if t.Failed() {
			t.Fatalf("after a death %s", name)
		}
	}
	if asked <= len(taken) {
		t.Errorf("the provider got %d requests for %d orders: no charge was repeated", asked, len(taken))
	}
}
