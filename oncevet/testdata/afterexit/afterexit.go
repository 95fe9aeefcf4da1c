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
	lambdabatch.SQS(guard, unwaited, options)
	lambdabatch.Kinesis(guard, right, options)
	lambdabatch.Kinesis(guard, group, options)
	lambdabatch.Kinesis(guard, selects, options)
	lambdabatch.Kinesis(guard, counts, options)
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

var last context.Context

func unwaited(ctx context.Context, o provider.Order) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { <-ctx.Done() }() // waits for nothing of the handler
	go func() { last = ctx }()   // want `afterexit: `
	go func() {                  // want `afterexit: `
		for range 2 {
			func() { _ = provider.PayWithKey(ctx, o) }()
		}
	}()
	return nil
}

func counts(_ context.Context, o provider.Order) error {
	n := 0
	go func() { n++ }()
	return nil
}

func selects(ctx context.Context, o provider.Order) error {
	done := make(chan error, 1)
	go func() { done <- provider.PayWithKey(ctx, o) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func group(ctx context.Context, o provider.Order) error {
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		_ = provider.PayWithKey(ctx, o)
	}()
	group.Wait()
	return nil
}

func right(ctx context.Context, o provider.Order) error {
	done := make(chan error, 1)
	go func() { done <- provider.PayWithKey(ctx, o) }()
	go func() { println("without the context") }()
	return <-done
}
