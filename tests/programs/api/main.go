// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.New(dynamostore.NewClient(cfg), os.Getenv("ONCE_TABLE"))
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newHandler(guard))
}

// newHandler returns the handler of POST /charges behind an HTTP API.
func newHandler(guard *idempotent.Guard) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return lambdahttp.APIGatewayV2(guard, charge, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub") // a key is valid for one caller
	})
}

// charge asks the payment provider for the charge in the body. Its response,
// also a refusal, is stored and replayed.
func charge(ctx context.Context, r events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PROVIDER_URL"), strings.NewReader(r.Body))
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, idempotent.NotExecuted(err) // the same key may run again
	}
	req.Header.Set("Idempotency-Key", idempotent.DownstreamKey(ctx))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return events.APIGatewayV2HTTPResponse{}, err // the charge may have been made: the outcome is unknown
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return events.APIGatewayV2HTTPResponse{StatusCode: answer.StatusCode, Body: string(body)}, err
}
