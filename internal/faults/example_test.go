// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit/engine"
)

// The reply to the claim is lost. The SDK retries, DynamoDB refuses the second
// write, and the guard recognises the record as its own.
func ExampleInjector_Transport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("received", r.Header.Get("X-Amz-Target"))
		io.WriteString(w, "{}")
	}))
	defer server.Close()

	lossy := &faults.Injector{Plan: faults.On("PutItem", faults.LostReply, 1)}
	config := engine.Config(server.URL)
	config.HTTPClient = &http.Client{Transport: lossy.Transport(nil)}
	store, err := dynamostore.New(dynamostore.NewClient(config), "idempotency")
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		panic(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	id, err := idempotent.Do(context.Background(), guard, key, func(context.Context) (string, error) {
		fmt.Println("charged")
		return "ch_1", nil
	})
	fmt.Println(id, "error:", err)
	// Output:
	// received DynamoDB_20120810.PutItem
	// received DynamoDB_20120810.PutItem
	// charged
	// received DynamoDB_20120810.PutItem
	// ch_1 error: <nil>
}
