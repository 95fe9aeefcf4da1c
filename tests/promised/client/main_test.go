// SPDX-License-Identifier: Apache-2.0

// Package client tests idempotencyclient with the servers of this repository: what its
// page shows, the three profiles, and 10,000 requests through a server that loses
// requests and replies, while the programs that send them are killed.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

// A process that the test starts is a client.
func TestMain(m *testing.M) {
	if plan := os.Getenv(envPlan); plan != "" {
		if err := sendAll(context.Background(), plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// body is the body of each request.
type body struct {
	Name int `json:"name"`
}

// guarded returns the service of the page http.md for a handler.
func guarded(t *testing.T, h http.HandlerFunc, optFns ...func(*lambdahttp.Options)) http.Handler {
	t.Helper()
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	optFns = append(optFns, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
	return lambdahttp.Middleware(guard, optFns...)(h)
}

func nameOf(r *http.Request) int {
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return -1
	}
	return b.Name
}

func created(w http.ResponseWriter, name int) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"ch_%d"}`, name)
}
