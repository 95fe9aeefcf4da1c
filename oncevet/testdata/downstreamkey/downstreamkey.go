// SPDX-License-Identifier: Apache-2.0

package downstreamkey

import (
	"context"
	"net/http"
	"strings"

	"example.com/vet/provider"

	"github.com/google/uuid"
	"github.com/once-lambda/once/idempotent"
)

func handlers(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	rerun := func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun }
	idempotent.Wrap(guard, key, again, rerun)
	idempotent.Wrap(guard, key, againWithKey, rerun)
	idempotent.Wrap(guard, key, reconciled, func(o *idempotent.Operation) { o.Recovery = idempotent.Reconcile })
	idempotent.Wrap(guard, key, provider.Pay, rerun) // want `downstreamkey: Client.Do \(provider.go:\d+\) sends a request without idempotent.DownstreamKey`
}

func again(ctx context.Context, o provider.Order) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", strings.NewReader(o.ID))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", uuid.NewString())
	_, err = http.DefaultClient.Do(req) // want `downstreamkey: `
	return "", err
}

func againWithKey(ctx context.Context, o provider.Order) (string, error) {
	return "", provider.PayWithKey(ctx, o)
}

// Under Reconcile it runs once.
func reconciled(ctx context.Context, o provider.Order) (string, error) {
	_, err := idempotent.Step(ctx, "look", func(ctx context.Context) (string, error) { return provider.Pay(ctx, o) })
	return "", err
}

func steps(ctx context.Context, o provider.Order) error {
	_, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return pay(ctx, o) // want `downstreamkey: Client.Do`
	})
	if err != nil {
		return err
	}
	_, err = idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		return provider.Pay(ctx, o) // want `downstreamkey: Client.Do \(provider.go:\d+\)`
	})
	return err
}

func pay(ctx context.Context, o provider.Order) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", strings.NewReader(o.ID))
	if err != nil {
		return "", err
	}
	_, err = http.DefaultClient.Do(req)
	return "", err
}

func right(ctx context.Context, o provider.Order) error {
	key := idempotent.DownstreamKey(ctx)
	_, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return payWith(ctx, key, o)
	})
	if err != nil {
		return err
	}
	_, err = idempotent.Step(ctx, "find", func(ctx context.Context) (string, error) { return provider.Find(ctx, o) })
	return err
}

func mailOnce(ctx context.Context, o provider.Order) (string, error) {
	return idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		return provider.Pay(ctx, o)
	}, func(o *idempotent.StepOptions) { o.AtMostOnce = true })
}

func payWith(ctx context.Context, key string, o provider.Order) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", strings.NewReader(o.ID))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	_, err = http.DefaultClient.Do(req)
	return "", err
}
