// SPDX-License-Identifier: Apache-2.0

package committype

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"example.com/vet/provider"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

type receipt struct{ ID string }

type other struct{ ID string }

type amount struct{ cents int }

func (a *amount) UnmarshalText([]byte) error { return nil }

func wrapped(g *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	idempotent.Wrap(g, key, func(ctx context.Context, o provider.Order) (receipt, error) {
		if err := dynamostore.Commit(ctx, "done"); err != nil { // want `committype: Commit gets a string, and the result of the handler is a receipt, .*; commit the result of the handler`
			return receipt{}, err
		}
		if err := dynamostore.Commit(ctx, receipt{}); err != nil {
			return receipt{}, err
		}
		if err := dynamostore.Commit(ctx, other{}); err != nil { // it can have the same members
			return receipt{}, err
		}
		if err := dynamostore.Commit(ctx, map[string]any{}); err != nil {
			return receipt{}, err
		}
		if err := dynamostore.Commit(ctx, json.RawMessage("{}")); err != nil {
			return receipt{}, err
		}
		e, _ := idempotent.FromContext(ctx)
		if err := e.Commit(ctx, 1, e.Store().Replace); err != nil { // want `committype: Commit gets a int, and the result of the handler is a receipt`
			return receipt{}, err
		}
		return receipt{}, e.Commit(ctx, &receipt{}, e.Store().Replace)
	})
	idempotent.Wrap(g, key, func(ctx context.Context, o provider.Order) (any, error) { return nil, dynamostore.Commit(ctx, "done") })
	idempotent.Wrap(g, key, func(ctx context.Context, o provider.Order) (amount, error) {
		return amount{}, dynamostore.Commit(ctx, "1.50")
	})
}

func called(ctx context.Context, g *idempotent.Guard, key idempotent.Key, n int) (int, error) {
	return idempotent.Do(ctx, g, key, func(ctx context.Context) (int, error) {
		if n > 0 {
			return 0, save(ctx)
		}
		if n < 0 {
			return n, dynamostore.Commit(ctx, &n)
		}
		return n, dynamostore.Commit(ctx, n)
	})
}

func more(ctx context.Context, g *idempotent.Guard, key idempotent.Key, wrapped idempotent.KeyFunc[provider.Order], unknown any) {
	idempotent.DoOutcome(ctx, g, key, func(ctx context.Context) (int, error) {
		return 0, dynamostore.Commit(ctx, "done") // want `committype: Commit gets a string, and the result of the handler is a int`
	})
	idempotent.Wrap(g, wrapped, func(ctx context.Context, o provider.Order) (int, error) {
		if err := dynamostore.Commit(ctx, unknown); err != nil {
			return 0, err
		}
		return 0, dynamostore.Commit(ctx, &amount{})
	})
	idempotent.Wrap(g, wrapped, func(ctx context.Context, o provider.Order) (*receipt, error) {
		return nil, dynamostore.Commit(ctx, &other{})
	})
	idempotent.Wrap(g, wrapped, func(ctx context.Context, o provider.Order) (map[string]int, error) {
		if o.ID == "" {
			return nil, dynamostore.Commit(ctx, []int{}) // want `committype: `
		}
		return nil, dynamostore.Commit(ctx, receipt{})
	})
	lambdahttp.Middleware(g)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := dynamostore.Commit(r.Context(), "done"); err != nil {
			panic(err.Error())
		}
	}))
	lambdahttp.FunctionURL(g, func(ctx context.Context, r events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{}, dynamostore.Commit(ctx, "done")
	})
}

func save(ctx context.Context) error {
	return dynamostore.Commit(ctx, other{}) // want `committype: Commit gets a other, and the result of the handler is a int`
}

func batch(g *idempotent.Guard) {
	lambdabatch.SQS(g, func(ctx context.Context, o provider.Order) error {
		if o.ID == "" {
			return dynamostore.Commit(ctx, "placed") // want `committype: Commit gets a string, and the result of the handler is a struct{}`
		}
		if o.ID == "1" {
			return dynamostore.Commit(ctx, receipt{}) // want `committype: Commit gets a receipt, and the result of the handler is a struct{}`
		}
		return dynamostore.Commit(ctx, struct{}{})
	}, func(o *lambdabatch.Options) { o.Operation, o.ID = "place", lambdabatch.Field("/id") })
}
