// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/policy"
)

// A policy is rendered from the options of the handler, so the two agree.
func Example() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	options := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.DocsURL = "https://api.example.com/docs/idempotency"
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, options)
	rules := policy.New(guard, options)
	page, document := rules.Markdown(), rules.OpenAPI()

	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| retention") || strings.HasPrefix(line, "| 422") {
			fmt.Println(line[:46])
		}
	}
	fmt.Println(json.Valid(document))
	_ = handler // in main: lambda.StartHandlerFunc(handler)
	// Output:
	// | retention | 24 h after the response was stor
	// | 422 Unprocessable Entity | <a id="key-reused
	// | 422 Unprocessable Entity | <a id="final"></a
	// true
}

// pay is the handler of the example.
func pay(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"id":"ch_1"}`}, nil
}
