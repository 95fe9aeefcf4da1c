// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

func TestNewHandler(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	denied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"__type":"AccessDeniedException"}`, http.StatusBadRequest)
	}))
	defer denied.Close()
	t.Setenv("AWS_ENDPOINT_URL", denied.URL)
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
	if response, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{}}); err != nil || len(response.BatchItemFailures) != 0 {
		t.Errorf("an empty batch: %+v %v", response, err)
	}
	// A table that refuses the claim makes an event, which is counted, and the counts
	// are flushed.
	response, err := h(t.Context(), events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", EventSourceARN: "arn", Body: `{"order_id":"o-1"}`}}})
	if err != nil || len(response.BatchItemFailures) != 1 {
		t.Errorf("a claim that is refused: %+v %v", response, err)
	}
	if line := out.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `"Namespace":"OrderQueue"`) || !strings.Contains(line, `"once.store_error":1`) {
		t.Errorf("wrote %q, want one line with the count", line)
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
