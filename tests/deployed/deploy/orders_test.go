// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/playground/provider"
)

// The fate of an order on its first delivery.
const (
	fine     = "fine"
	crashed  = "crashed"  // the process dies after the customer was charged
	stalled  = "stalled"  // it stops there, and is killed at the time-out
	answered = "answered" // the charge is booked, but every answer is lost until the provider is repaired
	declined = "declined" // the customer cannot pay
)

type order struct {
	ID       string `json:"order_id"`
	Customer string `json:"customer"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Amount   int    `json:"amount"`
	fate     string
}

// shift holds the orders of the test, and what was done to them.
type shift struct {
	sku    string
	orders []order
	poison int
	kills  atomic.Int32 // processes that were killed, and those that were stopped
	stops  atomic.Int32
	mended atomic.Bool
}

const stock = 10_000

// FM42: 100 messages, some of them twice, some poisoned, while processes crash, stall
// and lose answers: every order is taken once, and the poison ends in the
// dead-letter queue. A redrive of that queue duplicates nothing and loses
// nothing.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := &shift{sku: "sku-" + rand.Text()}
	for _, queue := range []string{stack.orders, stack.deadOrders} { // from an earlier run
		if _, err := stack.sqs.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &queue}); err != nil {
			t.Fatal(err)
		}
	}
	s.putStock(t)
	deliverSoon(t, stack.orders, orderTimeout+5) // when the lease of a killed run has ended
	messages := s.messages()
	s.send(t, stack.orders, messages...)

	fates := map[string]int{}
	for _, o := range s.orders {
		fates[o.fate]++
	}
	kit.Eventually(t, "the queue is empty and the dead-letter queue has the messages that cannot be taken", func() bool {
		return depth(t, stack.orders) == 0 && depth(t, stack.deadOrders) >= s.poison+fates[answered]
	})
	t.Logf("%d messages: %d orders, some twice, %v, and %d poisoned; killed at %d of them, stopped at %d; %d messages in the dead-letter queue",
		len(messages), len(s.orders), fates, s.poison, s.kills.Load(), s.stops.Load(), depth(t, stack.deadOrders))
	for _, o := range s.orders {
		if o.fate == answered && s.taken(t, o) {
			t.Errorf("order %s was taken without the provider's answer", o.ID)
		}
	}

	// The provider is repaired, and an operator sends everything again, with an
	// order that was taken already.
	s.mended.Store(true)
	s.send(t, stack.deadOrders, messages[0])
	s.redrive(t)
	kit.Eventually(t, "every order is taken, and only the poison is left", func() bool {
		if depth(t, stack.orders) != 0 {
			return false
		}
		if depth(t, stack.deadOrders) != s.poison {
			s.redrive(t) // on a busy machine, deliveries end without an outcome
			return false
		}
		for _, o := range s.orders {
			if o.fate != declined && !s.taken(t, o) {
				return false
			}
		}
		return true
	})
	s.wantBooks(t)
	if int(s.kills.Load()) != fates[crashed] || int(s.stops.Load()) != fates[stalled] {
		t.Errorf("killed at %d orders and stopped at %d, want %d and %d", s.kills.Load(), s.stops.Load(), fates[crashed], fates[stalled])
	}
}

// deliverSoon lets a queue deliver a message again this many seconds after its last
// delivery. On AWS that would be too early for a function with a long time-out.
// LocalStack receives nothing before the function has answered.
func deliverSoon(t *testing.T, queue string, seconds int) {
	t.Helper()
	_, err := stack.sqs.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: &queue, Attributes: map[string]string{string(types.QueueAttributeNameVisibilityTimeout): strconv.Itoa(seconds)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// messages creates the orders, sets their fates, and returns their messages.
func (s *shift) messages() (list []string) {
	for i := range 76 {
		o := order{ID: "order-" + rand.Text(), Customer: newCustomer(), SKU: s.sku, Quantity: 1 + i%3, Amount: 100 + i, fate: fine}
		switch i % 20 {
		case 3:
			o.fate = crashed
			pay.after(o.Customer, s.strike(&s.kills, syscall.SIGKILL))
		case 9:
			if i > 50 {
				break // each takes the whole time-out
			}
			o.fate = stalled
			pay.after(o.Customer, s.strike(&s.stops, syscall.SIGSTOP))
		case 14:
			o.fate = declined
			o.Customer = provider.CustomerDeclined
		case 19:
			o.fate = answered
			pay.after(o.Customer, func(int) bool { return s.mended.Load() })
		}
		s.orders = append(s.orders, o)
		text, _ := json.Marshal(o)
		list = append(list, string(text))
	}
	list = append(list, list[:20]...) // of every fate
	poison := []string{
		`{"order_id":`,
		`{}`,
		`{"order_id":"` + rand.Text() + `"}`,
		`{"order_id":"` + rand.Text() + `","customer":"cus_1","sku":"` + s.sku + `","quantity":-1,"amount":1}`,
	}
	s.poison = len(poison)
	return append(list, poison...)
}

// strike returns a function that signals a process of the orders function when a
// customer's charge is booked, until it has hit one: another may have been
// faster.
func (s *shift) strike(hits *atomic.Int32, signal syscall.Signal) afterwards {
	var done atomic.Bool
	return func(int) bool {
		if !done.Load() && len(engine.SignalFunction(stack.ordersFunction, signal)) > 0 {
			done.Store(true)
			hits.Add(1)
		}
		return true
	}
}

func (s *shift) send(t *testing.T, queue string, messages ...string) {
	t.Helper()
	for batch := range slices.Chunk(messages, 10) {
		var entries []types.SendMessageBatchRequestEntry
		for i, body := range batch {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(body)})
		}
		out, err := stack.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &queue, Entries: entries})
		if err != nil || len(out.Failed) > 0 {
			t.Fatalf("sending failed: %v %+v", err, out)
		}
	}
}

// depth returns how many messages a queue has, including those in flight.
func depth(t *testing.T, queue string) (n int) {
	t.Helper()
	out, err := stack.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range out.Attributes {
		count, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// arnOf returns the ARN of a queue.
func arnOf(t *testing.T, queue string) *string {
	t.Helper()
	out, err := stack.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		t.Fatal(err)
	}
	return aws.String(out.Attributes[string(types.QueueAttributeNameQueueArn)])
}

// redrive moves all messages of the dead-letter queue back.
func (s *shift) redrive(t *testing.T) {
	t.Helper()
	if _, err := stack.sqs.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: arnOf(t, stack.deadOrders), DestinationArn: arnOf(t, stack.orders)}); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the dead-letter queue is empty", func() bool { return depth(t, stack.deadOrders) == 0 })
}

func (s *shift) putStock(t *testing.T) {
	t.Helper()
	_, err := stack.dynamodb.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &stack.shop, Item: map[string]dynamodbtypes.AttributeValue{
		"pk": &dynamodbtypes.AttributeValueMemberS{Value: "stock#" + s.sku}, "available": number(stock),
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// inShop returns an item of the shop's table, or nil.
func (s *shift) inShop(t *testing.T, pk string) map[string]dynamodbtypes.AttributeValue {
	t.Helper()
	out, err := stack.dynamodb.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &stack.shop, ConsistentRead: aws.Bool(true),
		Key: map[string]dynamodbtypes.AttributeValue{"pk": &dynamodbtypes.AttributeValueMemberS{Value: pk}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func (s *shift) taken(t *testing.T, o order) bool {
	t.Helper()
	return s.inShop(t, "order#"+o.ID) != nil
}

// wantBooks compares the shop's books, the outbox and the provider's ledger with
// the orders.
func (s *shift) wantBooks(t *testing.T) {
	t.Helper()
	left := stock
	for _, o := range s.orders {
		booked := pay.charges(t, o.Customer)
		item := s.inShop(t, "order#"+o.ID)
		announced := s.inShop(t, "outbox#"+o.ID) != nil
		if o.fate == declined {
			if len(booked) != 0 || item != nil || announced {
				t.Errorf("declined order %s: %d charges, taken %v, announced %v", o.ID, len(booked), item != nil, announced)
			}
			continue
		}
		left -= o.Quantity
		if len(booked) != 1 || item == nil || !announced {
			t.Errorf("order %s (%s): %d charges, taken %v, announced %v; want one of each", o.ID, o.fate, len(booked), item != nil, announced)
			continue
		}
		if charge, _ := item["charge"].(*dynamodbtypes.AttributeValueMemberS); charge == nil || charge.Value != booked[0].ID || booked[0].Amount != int64(o.Amount) {
			t.Errorf("order %s has charge %v, want %s of %d", o.ID, item["charge"], booked[0].ID, o.Amount)
		}
	}
	if available, _ := s.inShop(t, "stock#"+s.sku)["available"].(*dynamodbtypes.AttributeValueMemberN); available == nil || available.Value != strconv.Itoa(left) {
		t.Errorf("there are %+v left of %d, want %d", available, stock, left)
	}
}
