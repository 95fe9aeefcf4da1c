// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

func main() {
	store := must(dynamostore.Open(context.Background())) // the table in ONCE_TABLE
	lambda.Start(newHandler(must(idempotent.New(store))))
}

func newHandler(guard *idempotent.Guard) func(context.Context, order) (receipt, error) {
	byOrder := idempotent.KeyFrom("charge", func(o order) (scope, id string) { return o.Customer, o.ID }).
		WithRef(func(o order) string { return o.ID }) // once list --ref finds it, even if it was killed
	return idempotent.Wrap(guard, byOrder, charge)
}

func charge(ctx context.Context, o order) (receipt, error) {
	r, err := provider.Charge(ctx, o)
	if err != nil {
		return receipt{}, err
	}
	// If the function is killed here, the customer has paid, and the caller sends the order again.
	return r, nil
}

type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Amount   int    `json:"amount"`
}

type receipt struct {
	Charge string `json:"charge"`
}

var provider client

// client calls a payment provider that knows no idempotency keys.
type client struct{}

func (client) Charge(ctx context.Context, o order) (r receipt, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), strings.NewReader(fmt.Sprintf(`{"amount":%d}`, o.Amount)))
	if err != nil {
		return r, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return r, fmt.Errorf("the payment provider answered %s", answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&r)
	return r, err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
