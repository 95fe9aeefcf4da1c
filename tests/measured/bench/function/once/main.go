// SPDX-License-Identifier: Apache-2.0

// Command once is the Lambda function of command bare, written with the
// toolkit.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/tests/measured/bench/function/payment"
)

type (
	request  = events.APIGatewayV2HTTPRequest
	response = events.APIGatewayV2HTTPResponse
)

func main() {
	cfg, err := awsconfig.LoadDefaultConfig(context.Background())
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
	lambda.Start(lambdahttp.APIGatewayV2(guard, handle, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
	}))
}

func handle(ctx context.Context, ev request) (response, error) {
	r, err := payment.Parse(ev.Body)
	if err != nil {
		return response{StatusCode: 400}, nil
	}
	charge, err := payment.Do(ctx, idempotent.DownstreamKey(ctx), r)
	if err != nil {
		return response{}, err
	}
	body, err := json.Marshal(charge)
	if err != nil {
		return response{}, err
	}
	return response{StatusCode: 201, Body: string(body)}, nil
}
