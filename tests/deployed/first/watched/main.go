// SPDX-License-Identifier: Apache-2.0

// Command watched is a function that a team puts a guard around: each request has an effect
// at PROVIDER_URL. GUARD is "off", or the guard is in the mode that ONCE_SHADOW says.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	if os.Getenv("GUARD") == "off" {
		lambda.Start(pay)
		return
	}
	h, err := guarded(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "watched:", err)
		os.Exit(1)
	}
	lambda.Start(h)
}

func guarded(ctx context.Context) (any, error) {
	store, err := dynamostore.Open(ctx)
	if err != nil {
		return nil, err
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(report{}, nil))
		o.Observer = event.LogObserver(o.Logger)
	})
	if err != nil {
		return nil, err
	}
	return lambdahttp.FunctionURL(guard, pay, func(o *lambdahttp.Options) {
		o.Operation = func(*lambdahttp.Request) string { return "pay" }
		o.Scope = lambdahttp.SingleTenant
	}), nil
}

// report is the log, which a test reads. LocalStack can lose the last lines of an environment
// that it ends because of a new configuration.
type report struct{}

func (report) Write(line []byte) (int, error) {
	answer, err := http.Post(os.Getenv("PROVIDER_URL")+"/log", "application/json", bytes.NewReader(line))
	if err != nil {
		return 0, err
	}
	return len(line), answer.Body.Close()
}

// pay has an effect, and returns its id and the mode in which it ran.
func pay(ctx context.Context, r events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), http.NoBody)
	if err != nil {
		return events.LambdaFunctionURLResponse{}, err
	}
	req.Header.Set("Reference", strings.Trim(r.Headers["idempotency-key"], `"`))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return events.LambdaFunctionURLResponse{}, err
	}
	defer answer.Body.Close()
	return events.LambdaFunctionURLResponse{StatusCode: answer.StatusCode, Body: os.Getenv("MODE")}, nil
}
