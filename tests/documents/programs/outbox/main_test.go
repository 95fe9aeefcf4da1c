// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdabatch"
)

// Wherever the first function is killed, there is one order, and one e-mail to send.
func TestEveryCrash(t *testing.T) {
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		db := dynamotest.In(w, "once", []string{"orders", "outbox"})
		for _, table := range []string{"orders", "outbox"} {
			w.ExactlyOnce(table, func() int {
				out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table})
				if err != nil {
					t.Fatal(err)
				}
				return len(out.Items)
			})
		}
		idempotenttest.Handle(w, order{ID: "o-1", Email: "a@example.com"}, newShop)
	})
}

// service sends an e-mail for each key, or for each request without a key.
type service struct {
	keys map[string]bool
	sent int
}

func (s *service) count() int { return s.sent }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if key := r.Header.Get("Idempotency-Key"); key == "" || !s.keys[key] {
		s.keys[key] = true
		s.sent++
	}
	w.WriteHeader(http.StatusAccepted)
}

func inserted() events.DynamoDBEvent {
	return events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{{
		EventID: "e-1", EventName: "INSERT", EventSource: "aws:dynamodb", EventSourceArn: "arn:aws:dynamodb:eu-central-1:123456789012:table/outbox/stream/1",
		Change: events.DynamoDBStreamRecord{
			SequenceNumber: "7", Keys: map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute("o-1")},
			NewImage: map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute("o-1"), "email": events.NewStringAttribute("a@example.com")},
		},
	}}}
}

// Wherever the second function is killed, the customer gets one e-mail, if the service
// honours keys.
func TestEveryCrash_Send(t *testing.T) {
	t.Setenv("MAIL_URL", "http://mail.test/")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		s := &service{keys: map[string]bool{}}
		w.Provider(s)
		w.ExactlyOnce("mail", s.count)
		idempotenttest.Handle(w, inserted(), newSender)
	})
}

// With a service that knows no keys, the customer gets one e-mail at most.
func TestEveryCrash_SendOnce(t *testing.T) {
	t.Setenv("MAIL_URL", "http://mail.test/")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		s := &service{keys: map[string]bool{}}
		w.Provider(s)
		w.AtMostOnce("mail", s.count)
		idempotenttest.Handle(w, inserted(), func(guard *idempotent.Guard) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
			return lambdabatch.DynamoDB(guard, sendOnce, func(o *lambdabatch.Options) {
				o.Operation = "send"
				o.Guard = func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"mail"} }
			})
		})
	})
}
