// SPDX-License-Identifier: Apache-2.0

// Package imports uses the transport of another package.
package imports

import (
	"context"
	"net/http"

	_ "example.com/vet/transport"

	"github.com/once-lambda/once/idempotent"
)

func pay(ctx context.Context, client *http.Client) (string, error) {
	return idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
		_, err := client.Post("https://bank.test", "", nil)
		return "ch_1", err
	})
}
