// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newHandler(guard))
}

type payment struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

type charge struct {
	ID string `json:"id"`
}

// newHandler returns the handler of POST /charges behind an HTTP API.
func newHandler(guard *idempotent.Guard) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	pay := lambdahttp.JSON[payment, charge]{Check: check, Handle: pay}
	return pay.APIGatewayV2(guard, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub") // a key is valid for one caller
	})
}

// check refuses a payment before its key is used.
func check(_ context.Context, _ *lambdahttp.Request, p *payment) error {
	if p.Amount < 1 {
		return &lambdahttp.Problem{Status: 422, Code: "invalid_amount", Detail: "The amount must be at least 1."}
	}
	return nil
}

// pay asks the payment provider for a charge. A retry gets the first response.
func pay(ctx context.Context, p payment) (c charge, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return c, idempotent.NotExecuted(err) // the same key may run again
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), bytes.NewReader(body))
	if err != nil {
		return c, idempotent.NotExecuted(err)
	}
	req.Header.Set("Idempotency-Key", idempotent.DownstreamKey(ctx)) // the provider must honour it: net/http repeats such a request
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err // the charge may have been made: the outcome is unknown
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusCreated:
		err = json.NewDecoder(answer.Body).Decode(&c)
		return c, err
	case http.StatusPaymentRequired: // the outcome, also for every retry
		return c, &lambdahttp.Problem{Status: 402, Code: "card_declined", Detail: "The card was declined. Nothing was charged."}
	}
	return c, fmt.Errorf("the payment provider answered %s", answer.Status)
}
