// SPDX-License-Identifier: Apache-2.0

package otelonce_test

import (
	"context"
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry/otelonce"
)

func ExampleHandler() {
	charge := func(_ context.Context, order string) (string, error) { return "ch_1", nil }
	facts, err := otelonce.New() // with the global providers
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Observer, o.TraceParent = facts, otelonce.TraceParent
	})
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(order string) (scope, id string) { return idempotent.Global, order })
	handler := otelonce.Handler(facts, "charge", idempotent.Wrap(guard, byOrder, charge)) // for lambda.Start
	fmt.Println(handler(context.Background(), "o-1"))
	// Output: ch_1 <nil>
}

func ExampleMessage() {
	ship := func(_ context.Context, order string) error {
		fmt.Println("shipping", order)
		return nil
	}
	facts, err := otelonce.New()
	if err != nil {
		panic(err)
	}
	work := otelonce.Message(facts, "orders", ship) // for lambdabatch.SQS
	fmt.Println(work(context.Background(), "o-1"))
	// Output:
	// shipping o-1
	// <nil>
}
