// SPDX-License-Identifier: Apache-2.0

package types

import (
	"context"
	"math/big"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
)

type lossy struct{ Total, cents int }

type receipt struct {
	ID   string
	memo int `json:"-"`
}

func handlers(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order], bad idempotent.KeyFunc[provider.Lossy]) {
	idempotent.Wrap(guard, key, func(context.Context, provider.Order) (lossy, error) { return lossy{}, nil }) // want `types: unsupported result type: types.lossy.cents is not exported, .*; Wrap panics at start-up`
	idempotent.Wrap(guard, bad, func(context.Context, provider.Lossy) (string, error) { return "", nil })     // want `types: unsupported request type: provider.Lossy.total is not exported`
	idempotent.Wrap(guard, key, func(context.Context, provider.Order) (lossy, error) { return lossy{}, nil }, func(o *idempotent.Options) { o.Codec = codec })
	idempotent.Wrap(guard, key, func(context.Context, provider.Order) (receipt, error) { return receipt{}, nil })
}

var codec idempotent.Codec

func steps(ctx context.Context) error {
	if err := step[lossy](ctx); err != nil {
		return err
	}
	_, err := idempotent.Step(ctx, "sum", func(context.Context) (map[string]big.Int, error) { return nil, nil }) // want `types: unsupported result of a step: big.Int encodes itself through its pointer`
	if err != nil {
		return err
	}
	_, err = idempotent.FingerprintOf(lossy{}) // want `types: unsupported type`
	return err
}

// step is generic: its caller decides.
func step[T any](ctx context.Context) error {
	_, err := idempotent.Step(ctx, "any", func(context.Context) (t T, err error) { return t, nil })
	return err
}
