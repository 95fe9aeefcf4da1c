// SPDX-License-Identifier: Apache-2.0

package lostcontext

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
)

func handlers(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	idempotent.Wrap(guard, key, direct)
	idempotent.Wrap(guard, key, right)
	idempotent.Wrap(guard, key, by(provider.PayWithKey))
}

func by(pay func(context.Context, provider.Order) error) func(context.Context, provider.Order) (string, error) {
	return func(ctx context.Context, o provider.Order) (string, error) {
		return "", pay(context.TODO(), o) // want `lostcontext: a function gets`
	}
}

func direct(ctx context.Context, o provider.Order) (string, error) {
	if err := provider.PayWithKey(context.Background(), o); err != nil { // want `lostcontext: PayWithKey gets a context without the handler's deadline and key`
		return "", err
	}
	if err := captured(ctx, o); err != nil {
		return "", err
	}
	if err := inner(ctx, o); err != nil {
		return "", err
	}
	if err := provider.Detached(ctx, o); err != nil { // want `lostcontext: Detached calls PayWithKey \(provider.go:\d+\)`
		return "", err
	}
	return idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
		return provider.Pay(context.TODO(), o) // want `lostcontext: Pay gets`
	})
}

func captured(ctx context.Context, o provider.Order) error {
	other := context.Background()
	defer func() { other = nil }()
	return func() error {
		return provider.PayWithKey(other, o) // want `lostcontext: `
	}()
}

func inner(_ context.Context, o provider.Order) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	note(cancel)
	if _, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://bank.test", nil); err != nil { // want `lostcontext: `
		return err
	}
	return provider.PayWithKey(ctx, o) // want `lostcontext: `
}

func note(context.CancelFunc) {}

func right(ctx context.Context, o provider.Order) (string, error) {
	slog.InfoContext(context.Background(), "paying")
	defer provider.PayWithKey(context.Background(), o) // cleans up after the context has ended
	defer provider.Detached(ctx, o)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return "", provider.PayWithKey(ctx, o)
}

// unguarded is no handler.
func unguarded(o provider.Order) error { return provider.PayWithKey(context.Background(), o) }
