// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/playground"
	"github.com/once-lambda/once/examples/charge-lambda/worker"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// withoutOnce is the argument of a worker whose guard is disabled.
const withoutOnce = "without-once"

// workerCommand returns the command that starts this program again, as a worker.
func workerCommand(c *config, providerURL string, stderr io.Writer, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		cmd := exec.Command(self, append([]string{"worker"}, args...)...)
		cmd.Env = append(os.Environ(), "PROFILE="+c.profile, "PROVIDER_URL="+providerURL)
		cmd.Stderr = stderr
		return cmd
	}
}

// work handles requests as a worker of the process that started it. It serves the
// function as cmd/lambda does, with the store of that process. optFns are applied to
// the guard's options. Without the guard, a charge names the record that the guard
// would have written.
func work(getenv func(string) string, logger *slog.Logger, optFns ...func(*idempotent.Options)) error {
	keys, err := charge.Profile(getenv("PROFILE"))
	if err != nil {
		return err
	}
	client, err := charge.NewClient(getenv("PROVIDER_URL"))
	if err != nil {
		return err
	}
	return worker.Serve(func(store driver.Store) (worker.Handler, error) {
		guard, err := newGuard(store, logger, optFns...)
		if err != nil {
			return nil, err
		}
		function := charge.New(guard, client, keys)
		return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return function(charge.WithRecord(ctx, charge.RecordIDOf(playground.KeyOf(&ev))), ev)
		}, nil
	})
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
