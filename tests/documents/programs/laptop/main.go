// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	store, err := boltstore.Open("once.db")
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.DefaultLease = 20 * time.Second // after you kill the program
	})
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) == 1 {
		log.Fatal(http.ListenAndServe("127.0.0.1:8080", newServer(guard)))
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := play(context.Background(), newQueue(guard), file); err != nil {
		log.Fatal(err)
	}
}

func newServer(guard *idempotent.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /charges", lambdahttp.JSON[payment, charge]{Handle: pay}.Handler(guard, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
	}))
	return mux
}

func newQueue(guard *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return lambdabatch.SQS(guard, take, func(o *lambdabatch.Options) {
		o.Operation = "take-order"
		o.ID = lambdabatch.Field("/order_id")
	})
}

// play passes the events of a file to a handler, and prints its answers.
func play(ctx context.Context, handler func(context.Context, events.SQSEvent) (events.SQSEventResponse, error), file io.Reader) error {
	for in := json.NewDecoder(file); ; {
		var event events.SQSEvent
		if err := in.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := handler(ctx, event)
		fmt.Println(len(event.Records), "messages, failed:", answer.BatchItemFailures, err)
	}
}

type payment struct {
	Amount int `json:"amount"`
}

type charge struct {
	ID string `json:"id"`
}

// pay is your handler of requests.
func pay(_ context.Context, p payment) (charge, error) {
	log.Println("charging", p.Amount)
	return charge{ID: "ch_1"}, nil
}

type order struct {
	ID string `json:"order_id"`
}

// take is your handler of messages.
func take(_ context.Context, o order) error {
	log.Println("taking", o.ID)
	return nil
}
