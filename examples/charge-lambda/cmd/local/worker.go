// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"
	"os"
	"os/exec"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/worker"
	"github.com/once-lambda/once/idempotent/driver"
)

// workerCommand returns the command that starts this program again, as a worker.
func workerCommand(c *config, providerURL string, stderr io.Writer) func() *exec.Cmd {
	return func() *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		cmd := exec.Command(self, "worker")
		cmd.Env = append(os.Environ(), "PROFILE="+c.profile, "PROVIDER_URL="+providerURL)
		cmd.Stderr = stderr
		return cmd
	}
}

// work handles requests as a worker of the process that started it. It serves the
// function as cmd/lambda does, with the store of that process.
func work(getenv func(string) string, stderr io.Writer) error {
	keys, err := charge.Profile(getenv("PROFILE"))
	if err != nil {
		return err
	}
	client, err := charge.NewClient(getenv("PROVIDER_URL"))
	if err != nil {
		return err
	}
	return worker.Serve(func(store driver.Store) (worker.Handler, error) {
		guard, err := newGuard(store, newLogger(stderr))
		if err != nil {
			return nil, err
		}
		return charge.New(guard, client, keys), nil
	})
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
