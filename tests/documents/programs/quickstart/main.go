// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"log"
	"time"

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
	Amount int  `json:"amount"`
	Hang   bool `json:"hang"`
}

type charge struct {
	ID string `json:"id"`
}

func newHandler(guard *idempotent.Guard) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return lambdahttp.JSON[payment, charge]{Handle: pay}.FunctionURL(guard, func(o *lambdahttp.Options) {
		o.Operation = func(*lambdahttp.Request) string { return "pay" }
		o.Scope = lambdahttp.SingleTenant // all callers share one set of keys
	})
}

// pay stands for a call of your payment provider.
func pay(_ context.Context, p payment) (charge, error) {
	c := charge{ID: "ch_" + rand.Text()}
	log.Println("charged", c.ID, p.Amount)
	if p.Hang {
		time.Sleep(time.Minute) // Lambda kills the function after ten seconds
	}
	return c, nil
}
