// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry/emf"
)

func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := emf.New(os.Stdout, os.Getenv("ONCE_METRICS_NAMESPACE")) // for the alarms
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = lambdacontext.NewLogger() // lines of JSON, for queries
		o.Observer = event.Observers(metrics, event.LogObserver(o.Logger))
	})
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newHandler(guard, metrics))
}

type invoice struct {
	Number string `json:"number"`
}

type letter struct {
	Pages int `json:"pages"`
}

// newHandler returns the handler of a state machine that sends each invoice once.
func newHandler(guard *idempotent.Guard, metrics *emf.Observer) func(context.Context, invoice) (letter, error) {
	byNumber := func(_ context.Context, in invoice) (idempotent.Key, error) {
		return idempotent.Key{Operation: "send-invoice", Scope: idempotent.Global, ID: in.Number, Fingerprint: idempotent.FingerprintBytes([]byte(in.Number))}, nil
	}
	return emf.Flushed(metrics, idempotent.Wrap(guard, byNumber, send))
}

// send prints and posts an invoice.
func send(context.Context, invoice) (letter, error) { return letter{Pages: 2}, nil }
