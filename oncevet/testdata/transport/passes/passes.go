// SPDX-License-Identifier: Apache-2.0

// Package passes gives the function that makes the key to a client.
package passes

import (
	"context"
	"net/http"

	"github.com/once-lambda/once/idempotent"
)

type client struct {
	http.Client
	key func(context.Context) string
}

func newClient() *client { return &client{key: idempotent.DownstreamKey} }

func pay(ctx context.Context, c *client) (string, error) {
	return idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
		_, err := c.Post("https://bank.test", "", nil)
		return "ch_1", err
	})
}
