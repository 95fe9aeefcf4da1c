// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

func TestNewHandler(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	complete := map[string]string{"ONCE_TABLE": "once", "SHOP_TABLE": "shop", "PROVIDER_URL": "https://pay.example.com"}
	for name, value := range complete {
		t.Setenv(name, value)
	}
	for name, value := range complete {
		t.Setenv(name, "")
		if _, err := newHandler(t.Context(), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		t.Setenv(name, value)
	}
	var out bytes.Buffer
	h, err := newHandler(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := h(t.Context(), events.SQSEvent{}); err != nil || len(response.BatchItemFailures) != 0 {
		t.Errorf("an empty batch: %+v %v", response, err)
	}
	// A message without a key makes one event, which is flushed. It calls no
	// service.
	response, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", EventSourceARN: "arn", Body: "{}"}}})
	if err != nil || len(response.BatchItemFailures) != 1 {
		t.Errorf("a message without a key: %+v %v", response, err)
	}
	t.Setenv("PROVIDER_URL", "pay")
	if _, err := newHandler(t.Context(), &out); err == nil {
		t.Error("a provider without an address was accepted")
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	if id := requestID(lambdacontext.NewContext(context.Background(), &lambdacontext.LambdaContext{AwsRequestID: "r-1"})); id != "r-1" {
		t.Errorf("the request id is %q", id)
	}
	if id := requestID(t.Context()); id != "" {
		t.Errorf("the request id is %q", id)
	}
}
