// SPDX-License-Identifier: Apache-2.0

// Command stubborn is the charge example as a Lambda function, but its client for
// the payment provider ignores contexts: it runs past the time-out, or kills the
// process.
//
// Environment: that of the charge example. ENDING is what happens once the
// provider has answered: sleep, until Lambda ends the process at the time-out, or
// kill. OPERATION is the operation of the records, RECOVERY their promise, reconcile or
// rerun.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	h, err := newHandler()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stubborn:", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

func newHandler() (charge.HandlerFunc, error) {
	recovery, ok := map[string]idempotent.Recovery{"reconcile": idempotent.Reconcile, "rerun": idempotent.Rerun}[os.Getenv("RECOVERY")]
	if !ok {
		return nil, fmt.Errorf("invalid RECOVERY %q", os.Getenv("RECOVERY"))
	}
	store, err := dynamostore.Open(context.Background())
	if err != nil {
		return nil, err
	}
	guard, err := idempotent.New(store)
	if err != nil {
		return nil, err
	}
	provider, err := charge.NewClient(os.Getenv("PROVIDER_URL"))
	if err != nil {
		return nil, err
	}
	h := charge.New(guard, provider, func(o *lambdahttp.Options) {
		o.Operation = func(*lambdahttp.Request) string { return os.Getenv("OPERATION") }
		o.Guard = func(o *idempotent.Operation) { o.Recovery = recovery }
	})
	// The example's client uses the default transport; the AWS SDK and Lambda's
	// runtime have created their own by the time of the first event.
	turn := sync.OnceFunc(func() { http.DefaultTransport = stubborn{http.DefaultTransport} })
	return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		turn()
		return h(ctx, ev)
	}, nil
}

// stubborn sends requests, and does not return from them.
type stubborn struct{ http.RoundTripper }

func (s stubborn) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	resp, err := s.RoundTripper.RoundTrip(r)
	if os.Getenv("ENDING") == "kill" {
		// As the kernel does if it uses too much memory: no further code of it runs.
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	time.Sleep(time.Hour)
	return resp, err
}
