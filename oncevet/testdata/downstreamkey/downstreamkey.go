// SPDX-License-Identifier: Apache-2.0

package downstreamkey

import (
	"context"
	"net/http"
	"strings"
	"time"

	"example.com/vet/provider"

	"github.com/google/uuid"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
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

func mails(ctx context.Context, o provider.Order, once bool, optFns []func(*idempotent.StepOptions)) error {
	if _, err := idempotent.Step(ctx, "a", func(ctx context.Context) (string, error) { return provider.Pay(ctx, o) }, optFns...); err != nil { // unknown
		return err
	}
	if _, err := idempotent.Step(ctx, "b", func(ctx context.Context) (string, error) {
		return provider.Pay(ctx, o) // unknown
	}, func(o *idempotent.StepOptions) { o.AtMostOnce = once }); err != nil {
		return err
	}
	_, err := idempotent.Step(ctx, "c", func(ctx context.Context) (string, error) {
		return provider.Pay(ctx, o) // want `downstreamkey: `
	}, func(o *idempotent.StepOptions) { seen, o.AtMostOnce = true, false })
	return err
}

var seen bool

// traced adds no key.
type traced struct{ http.RoundTripper }

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripper.RoundTrip(r)
}

func newGuard(name string, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	return idempotent.New(memstore.New(), append(optFns, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })...)
}

func otherGuards(key idempotent.KeyFunc[provider.Order], f func(*idempotent.Options)) error {
	guard, err := newGuard("orders")
	if err != nil {
		return err
	}
	idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) {
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return provider.Pay(ctx, o) // want `downstreamkey: `
		})
	})
	if guard, err = idempotent.New(memstore.New(), f); err != nil {
		return err
	}
	idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) {
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return provider.Pay(ctx, o) // want `downstreamkey: `
		})
	})
	return nil
}

// ownKeys sends other keys than the result of DownstreamKey.
func ownKeys(ctx context.Context, o provider.Order) error {
	e, _ := idempotent.FromContext(ctx)
	if _, err := idempotent.Step(ctx, "a", func(ctx context.Context) (string, error) {
		return payIn(ctx, "X-Request", e.RecordID().DownstreamKey())
	}); err != nil {
		return err
	}
	if _, err := idempotent.Step(ctx, "b", func(ctx context.Context) (string, error) {
		return payIn(ctx, "X-Request", e.RecordID().StepKey("b"))
	}); err != nil {
		return err
	}
	if _, err := idempotent.Step(ctx, "c", func(ctx context.Context) (string, error) {
		return payIn(ctx, "X-Request", idempotent.DownstreamKey(ctx))
	}); err != nil {
		return err
	}
	if _, err := idempotent.Step(ctx, "d", func(ctx context.Context) (string, error) {
		return payIn(ctx, "X-Request", o.ID) // want `downstreamkey: `
	}); err != nil {
		return err
	}
	_, err := idempotent.Step(ctx, "e", func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", nil)
		if err != nil {
			return "", err
		}
		add, clone := req.Header.Add, req.Clone
		add("idempotency-key", o.ID)
		req = clone(ctx)
		_, err = http.DefaultClient.Do(req)
		return "", err
	})
	return err
}

func payIn(ctx context.Context, header, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(header, key)
	_, err = http.DefaultClient.Do(req)
	return "", err
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

func defaults(key idempotent.KeyFunc[provider.Order], optFns []func(*idempotent.Options)) error {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Retention = 48 * time.Hour })
	if err != nil {
		return err
	}
	idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) { // under Reconcile it runs once
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) { return provider.Pay(ctx, o) })
	})
	other, err := idempotent.New(memstore.New(), optFns...)
	if err != nil {
		return err
	}
	idempotent.Wrap(other, key, func(ctx context.Context, o provider.Order) (string, error) {
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return provider.Pay(ctx, o) // want `downstreamkey: `
		})
	})
	return nil
}

func replaces(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	idempotent.Wrap(guard, key, func(ctx context.Context, o provider.Order) (string, error) { // a repeated PUT or DELETE has no second effect
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://bank.test", nil)
		if err != nil {
			return "", err
		}
		if _, err = http.DefaultClient.Do(req); err != nil {
			return "", err
		}
		req, err = http.NewRequestWithContext(ctx, http.MethodDelete, "https://bank.test", nil)
		if err != nil {
			return "", err
		}
		_, err = http.DefaultClient.Do(req)
		return "", err
	}, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
}
