// SPDX-License-Identifier: Apache-2.0

package first

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// G13: a charge is made once, for every request that repeats it, and another request under
// its key is refused.
func TestCharge(t *testing.T) {
	t.Parallel()
	pay := newPayments(t)
	f := newCharges(t, pay, 15*time.Minute, nil) // enough on a busy machine
	customer, key := rand.Text(), rand.Text()
	first := f.answer(t, key, customer, 4200)
	if first.status != http.StatusCreated || first.replayed {
		t.Fatalf("got %+v, want a charge", first)
	}
	if again := f.answer(t, key, customer, 4200); again.status != first.status || again.body != first.body || !again.replayed {
		t.Errorf("got %+v, want the replay of %+v", again, first)
	}
	f.answer(t, key, customer, 9000).want(t, http.StatusUnprocessableEntity, "key-reused")
	if n := pay.times(customer); n != 1 {
		t.Errorf("the provider was asked %d times, want once", n)
	}
	if next := f.answer(t, rand.Text(), customer, 4200); next.status != http.StatusCreated || next.replayed || next.body == first.body {
		t.Errorf("got %+v for a new key, want a new charge", next)
	}
	pay.Once(t, 2)
}

// FM10: Lambda kills the function at its time-out, after the charge and before the record
// of it. The charge is not made again, and the client learns that its outcome is unknown.
func TestKilledAfterTheCharge(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	pay := newPayments(t)
	f := newCharges(t, pay, timeout, nil)
	pay.charged = func(string) { engine.SignalFunction(f.name, syscall.SIGSTOP) } // so it cannot read the answer
	var customer, key string
	kit.Eventually(t, "Lambda kills the function after a charge", func() bool {
		customer, key = rand.Text(), rand.Text()
		began := time.Now()
		r := f.post(t, key, customer, 4200)
		if pay.times(customer) == 0 || r.problem != "" { // on a busy machine, the time ends before the charge, or before the signal
			return false
		}
		if took := time.Since(began); r.status < http.StatusInternalServerError || took < timeout {
			t.Fatalf("got %+v after %s, want a function that is killed after %s", r, took, timeout)
		}
		return true
	})
	var r reply
	kit.Eventually(t, "the lease ends", func() bool {
		r = f.post(t, key, customer, 4200)
		return r.status < http.StatusInternalServerError && r.problem != "in-progress" || pay.times(customer) > 1
	})
	r.want(t, http.StatusConflict, "outcome-unknown")
	if n := pay.times(customer); n != 1 {
		t.Errorf("the provider was asked %d times, want once", n)
	}
}

// A table that accepts connections and never answers costs no client its answer, and no
// customer a charge. On a busy machine, Lambda can kill a function that is about to answer.
func TestTableDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	pay := newPayments(t)
	f := newCharges(t, pay, 3*time.Second, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://" + silent.Addr().String()})
	customer := rand.Text()
	var r reply
	kit.Eventually(t, "an answer before the time-out", func() bool {
		r = f.post(t, rand.Text(), customer, 4200)
		return r.problem != "" || r.status < http.StatusInternalServerError
	})
	r.want(t, http.StatusServiceUnavailable, "store-unavailable")
	if n := pay.times(customer); n != 0 {
		t.Errorf("the provider was asked %d times, want never", n)
	}
}

// charges is the charge example behind a function URL.
type charges struct{ name, host string }

func newCharges(t *testing.T, pay *payments, timeout time.Duration, more map[string]string) *charges {
	t.Helper()
	env := map[string]string{"PROVIDER_URL": pay.url, "ONCE_METRICS_NAMESPACE": "First"}
	maps.Copy(env, more)
	f := &charges{name: create(t, "charge", timeout, env)}
	f.host = urlOf(t, f.name)
	return f
}

// reply is a response of the function, or of Lambda for it.
type reply struct {
	status   int
	replayed bool
	body     string
	problem  string // its code
}

// answer repeats the request until the function answers it.
func (f *charges) answer(t *testing.T, key, customer string, amount int) (r reply) {
	t.Helper()
	kit.Eventually(t, "an answer", func() bool {
		r = f.post(t, key, customer, amount)
		return r.status < http.StatusInternalServerError
	})
	return r
}

func (f *charges) post(t *testing.T, key, customer string, amount int) reply {
	t.Helper()
	body := fmt.Sprintf(`{"amount":%d,"currency":"usd","customer":%q}`, amount, customer)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+"/charges", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = f.host // by which LocalStack selects the function
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", strconv.Quote(key))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(text, &problem) // a charge has no code
	return reply{resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", string(text), problem.Code}
}

// want checks that the response is a problem with a code.
func (r reply) want(t *testing.T, status int, problem string) {
	t.Helper()
	if r.status != status || r.problem != problem {
		t.Errorf("got %+v, want %d %s", r, status, problem)
	}
}

// FM42: a queue delivers two orders, and the function dies after the charge of one of them.
// The next delivery asks the provider under the same key, so there are two orders and two
// charges.
func TestOrders(t *testing.T) {
	t.Parallel()
	const good, unlucky = "cus_good", "cus_unlucky"
	pay, shop := newPayments(t), newShop(t)
	name := create(t, "orders", 5*time.Second, map[string]string{"PROVIDER_URL": pay.url, "SHOP_TABLE": shop})
	var killed atomic.Bool
	pay.charged = func(customer string) {
		if customer == unlucky && !killed.Load() && len(engine.SignalFunction(name, syscall.SIGKILL)) > 0 {
			killed.Store(true)
		}
	}
	queue := newQueue(t, name)
	var messages []types.SendMessageBatchRequestEntry
	for _, customer := range []string{good, unlucky} {
		body := fmt.Sprintf(`{"order_id":"order-of-%s","customer":%q,"sku":"cup","quantity":1,"amount":1250}`, customer, customer)
		messages = append(messages, types.SendMessageBatchRequestEntry{Id: &customer, MessageBody: &body})
	}
	if out, err := queues.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &queue, Entries: messages}); err != nil || len(out.Failed) > 0 {
		t.Fatalf("sending failed: %v %+v", err, out)
	}
	kit.Eventually(t, "both orders are taken, and the queue is empty", func() bool {
		const visible, hidden = types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible
		out, err := queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{visible, hidden}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Attributes[string(visible)] == "0" && out.Attributes[string(hidden)] == "0" &&
			inShop(t, shop, "order#order-of-"+good) != nil && inShop(t, shop, "order#order-of-"+unlucky) != nil
	})
	if n := pay.times(unlucky); !killed.Load() || n < 2 {
		t.Errorf("killed: %t; the provider was asked %d times for that order, want 2 or more", killed.Load(), n)
	}
	pay.Once(t, 2)
	if left := inShop(t, shop, "stock#cup")["available"]; left == nil || left.(*dynamotypes.AttributeValueMemberN).Value != "8" {
		t.Errorf("%v cups are left of 10, want 8", left)
	}
}

// newShop creates the shop's table, with ten cups, and returns its name.
func newShop(t *testing.T) (table string) {
	t.Helper()
	table = "shop-" + strings.ToLower(rand.Text())
	if err := engine.CreateTable(t.Context(), database, table, "pk"); err != nil {
		t.Fatal(err)
	}
	_, err := database.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]dynamotypes.AttributeValue{
		"pk": &dynamotypes.AttributeValueMemberS{Value: "stock#cup"}, "available": &dynamotypes.AttributeValueMemberN{Value: "10"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// inShop returns an item of the shop's table, or nil.
func inShop(t *testing.T, table, pk string) map[string]dynamotypes.AttributeValue {
	t.Helper()
	out, err := database.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true), Key: map[string]dynamotypes.AttributeValue{"pk": &dynamotypes.AttributeValueMemberS{Value: pk}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

// newQueue creates a queue that a function reads, and returns its URL. A message of a
// killed run returns when its order's lease has ended.
func newQueue(t *testing.T, function string) (queueURL string) {
	t.Helper()
	out, err := queues.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &function, Attributes: map[string]string{"VisibilityTimeout": "10"}})
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := functions.CreateEventSourceMapping(t.Context(), &lambda.CreateEventSourceMappingInput{
		FunctionName: &function, EventSourceArn: aws.String("arn:aws:sqs:us-east-1:000000000000:" + function),
		FunctionResponseTypes: []lambdatypes.FunctionResponseType{lambdatypes.FunctionResponseTypeReportBatchItemFailures},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := functions.DeleteEventSourceMapping(context.Background(), &lambda.DeleteEventSourceMappingInput{UUID: mapping.UUID}); err != nil {
			t.Error(err)
		}
	})
	return *out.QueueUrl
}
