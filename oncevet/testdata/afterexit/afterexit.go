// SPDX-License-Identifier: Apache-2.0

package afterexit

import (
	"context"
	"sync"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

func handlers(guard *idempotent.Guard, options func(*lambdabatch.Options)) {
	lambdabatch.SQS(guard, direct, options)
	lambdabatch.Kinesis(guard, right, options)
}

func direct(ctx context.Context, o provider.Order) error {
	go provider.PayWithKey(ctx, o) // want `afterexit: the goroutine continues after the handler has returned`
	inner(ctx, o)
	provider.Later(ctx, o) // want `afterexit: Later starts a goroutine \(provider.go:\d+\)`
	return nil
}

func inner(ctx context.Context, o provider.Order) {
	go func() { // want `afterexit: `
		_, err := idempotent.Step(ctx, "mail", func(context.Context) (string, error) { return "m_1", nil })
		if err != nil {
			panic(err)
		}
	}()
}

func right(ctx context.Context, o provider.Order) error {
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		_ = provider.PayWithKey(ctx, o)
	}()
	group.Wait()
	done := make(chan error, 1)
	go func() { done <- provider.PayWithKey(ctx, o) }()
	go func() { println("without the context") }()
	return <-done
}
