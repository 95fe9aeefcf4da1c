// SPDX-License-Identifier: Apache-2.0

package first

import (
	"context"
	"crypto/rand"
	"fmt"
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
