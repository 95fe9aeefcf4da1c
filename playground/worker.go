// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/playground/web"
	"github.com/once-lambda/once/playground/worker"
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
// function as cmd/lambda of the example does, with the store of that process.
func work(getenv func(string) string, logger *slog.Logger, guarded bool) error {
	keys, err := profileKeys(getenv("PROFILE"))
	if err != nil {
		return err
	}
	client, err := charge.NewClient(getenv("PROVIDER_URL"))
	if err != nil {
		return err
	}
	if !guarded {
		http.DefaultTransport = naming{http.DefaultTransport} // which the client uses
	}
	return worker.Serve(func(store driver.Store) (worker.Handler, error) {
		guard, err := newGuard(store, logger, func(o *idempotent.Options) { o.Disabled = !guarded })
		if err != nil {
			return nil, err
		}
		function := charge.New(guard, client, keys)
		return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return function(context.WithValue(ctx, recordKey{}, charge.RecordIDOf(web.KeyOf(&ev))), ev)
		}, nil
	})
}

type recordKey struct{}

// naming is a transport that names in the metadata of each charge the record that a
// guard would have written, as the function does behind its guard. So the charges of a
// key can be compared with and without once.
type naming struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (n naming) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return n.next.RoundTrip(r)
	}
	defer r.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	body["metadata"] = map[string]any{charge.MetadataRecord: r.Context().Value(recordKey{})}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	named := r.Clone(r.Context())
	named.GetBody, named.ContentLength = nil, int64(len(text))
	named.Body = io.NopCloser(bytes.NewReader(text))
	return n.next.RoundTrip(named)
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
