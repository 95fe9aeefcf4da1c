// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
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

type order struct {
	ID, Customer string
	Amount       int
}

type receipt struct{ Charge string }

func newHandler(guard *idempotent.Guard) func(context.Context, order) (receipt, error) {
	byOrder := idempotent.KeyFrom("charge", func(o order) (scope, id string) { return o.Customer, o.ID }).
		WithRef(func(o order) string { return o.ID }) // once list --ref finds it, even if it was killed
	return idempotent.Wrap(guard, byOrder, charge)
}

// charge asks the payment provider.
func charge(ctx context.Context, o order) (r receipt, err error) {
	body := strings.NewReader(fmt.Sprintf(`{"amount":%d}`, o.Amount))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), body)
	if err != nil {
		return r, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err // the charge may have been made: the outcome is unknown
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return r, fmt.Errorf("the payment provider answered %s", answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&r)
	return r, err // if the function is killed here, the customer has paid, and the caller sends the order again
}
