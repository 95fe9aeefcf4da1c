// SPDX-License-Identifier: Apache-2.0

package stepname

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"

	"example.com/vet/provider"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

func resume(o *idempotent.Operation) {
	o.Recovery, o.Steps = idempotent.Resume, []string{"ship", "mail"}
}

func handlers(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	idempotent.Wrap(guard, key, undeclared, resume)
	idempotent.Wrap(guard, key, provider.Handler, func(o *idempotent.Operation) { o.Steps = []string{"charge"} }) // want `stepname: step "ship" \(provider.go:\d+\) is not in Operation.Steps \(charge\)`
}

// byGuard has the steps of its guard.
func byGuard(key idempotent.KeyFunc[provider.Order]) error {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Steps = []string{"charge"} })
	if err != nil {
		return err
	}
	idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) {
		return idempotent.Step(ctx, "ship", work) // want `stepname: step "ship" \(stepname.go:\d+\) is not in Operation.Steps \(charge\)`
	}, func(o *idempotent.Operation) { o.Recovery = idempotent.Resume })
	return nil
}

// unknown has steps that the package does not decide.
func unknown(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order], names []string) {
	idempotent.Wrap(guard, key, provider.Handler, func(o *idempotent.Operation) { o.Steps = names })
	idempotent.Wrap(guard, key, provider.Handler, func(o *idempotent.Operation) { o.Steps = nil })
	idempotent.Wrap(guard, key, provider.Handler, func(o *idempotent.Operation) { o.Steps = []string{"charge", names[0]} })
}

func work(context.Context) (string, error) { return "", nil }

func undeclared(ctx context.Context, o provider.Order) (string, error) {
	if err := provider.Ship(ctx, o); err != nil {
		return "", err
	}
	if _, err := idempotent.Step(ctx, "mail/1", work); err != nil {
		return "", err
	}
	if err := inner(ctx); err != nil {
		return "", err
	}
	return "", nil
}

func inner(ctx context.Context) error {
	_, err := idempotent.Step(ctx, "bill", work) // want `stepname: step "bill" \(stepname.go:\d+\) is not in Operation.Steps \(ship, mail\)`
	return err
}

func unstable(ctx context.Context) error {
	if _, err := idempotent.Step(ctx, "mail/"+uuid.NewString(), work); err != nil { // want `stepname: the name of the step comes from uuid.NewString`
		return err
	}
	if _, err := idempotent.Step(ctx, provider.NewID(), work); err != nil { // want `stepname: the name of the step comes from uuid`
		return err
	}
	_, err := dynamostore.CommitStep(ctx, "at/"+strconv.Itoa(time.Now().Nanosecond()), "done") // want `stepname: .* time.Now`
	return err
}

func twice(ctx context.Context, orders []provider.Order) error {
	for range orders {
		if _, err := idempotent.Step(ctx, "mail", work); err != nil { // want `stepname: step "mail" has run before`
			return err
		}
	}
	for range orders {
		if _, err := dynamostore.CommitStep(ctx, "saved", "done"); err != nil { // want `stepname: step "saved" has run before`
			return err
		}
		if _, err := idempotent.CommitStep(ctx, "noted", "done", nil); err != nil { // want `stepname: step "noted" has run before`
			return err
		}
	}
	for _, o := range orders {
		if err := provider.Ship(ctx, o); err != nil { // want `stepname: step "ship" has run before \(provider.go:\d+\)`
			return err
		}
	}
	return nil
}

func twiceInSequence(ctx context.Context) error {
	if err := bill(ctx); err != nil {
		return err
	}
	_, err := idempotent.Step(ctx, "bill", work) // want `stepname: step "bill" has run before`
	return err
}

func bill(ctx context.Context) error {
	_, err := idempotent.Step(ctx, "bill", work)
	return err
}

func nested(ctx context.Context) error {
	_, err := idempotent.Step(ctx, "outer", func(ctx context.Context) (string, error) { // want `stepname: step "bill" \(stepname.go:\d+\) is inside a step`
		return "", bill(ctx)
	})
	return err
}

func right(ctx context.Context, o provider.Order, orders []provider.Order) error {
	for i := range orders {
		if _, err := idempotent.Step(ctx, "mail/"+strconv.Itoa(i), work); err != nil {
			return err
		}
	}
	for {
		if _, err := idempotent.Step(ctx, "retried", work); err == nil {
			break
		}
	}
	if o.ID == "" {
		_, err := idempotent.Step(ctx, "either", work)
		return err
	}
	_, err := idempotent.Step(ctx, "either", work)
	return err
}

// runStep and retried give their functions to the toolkit.
func runStep(ctx context.Context, step string, fn func(context.Context) (string, error)) (string, error) {
	return idempotent.Step(ctx, step, fn)
}

func runNamed(ctx context.Context, step string, fn func(context.Context) (string, error)) (string, error) {
	return runStep(ctx, "named/"+step, fn)
}

func wrapped(ctx context.Context, guard *idempotent.Guard, keys []idempotent.Key) error {
	run := func(key idempotent.Key, fn func(context.Context) error) error {
		_, err := idempotent.Do(ctx, guard, key, func(ctx context.Context) (string, error) { return "", fn(ctx) })
		return err
	}
	if err := run(keys[0], bill); err != nil {
		return err
	}
	if err := run(keys[1], func(ctx context.Context) error { return bill(ctx) }); err != nil {
		return err
	}
	if err := run(keys[2], func(ctx context.Context) error { return bill(ctx) }); err != nil {
		return err
	}
	for _, step := range []string{"find", "look"} {
		if _, err := runStep(ctx, step, func(ctx context.Context) (string, error) { return "", bill(ctx) }); err != nil {
			return err
		}
		if _, err := runNamed(ctx, step, func(ctx context.Context) (string, error) { return "", bill(ctx) }); err != nil {
			return err
		}
	}
	_, err := runStep(ctx, "find", func(ctx context.Context) (string, error) { return "", nil })
	return err
}

// A call of a guarded handler is a separate run.
func runs(ctx context.Context, guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) error {
	handler := idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) { return "", bill(ctx) })
	if _, err := handler(ctx, provider.Order{ID: "1"}); err != nil {
		return err
	}
	_, err := handler(ctx, provider.Order{ID: "2"})
	return err
}
