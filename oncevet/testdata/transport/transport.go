// SPDX-License-Identifier: Apache-2.0

// Package transport has a transport that adds the key, so no call has to.
package transport

import (
	"context"
	"net/http"

	"github.com/once-lambda/once/idempotent"
)

type keyed struct{ http.RoundTripper }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", idempotent.DownstreamKey(r.Context()))
	return k.RoundTripper.RoundTrip(r)
}

func pay(ctx context.Context, client *http.Client) (string, error) {
	return idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
		_, err := client.Post("https://bank.test", "", nil)
		return "ch_1", err
	})
}
