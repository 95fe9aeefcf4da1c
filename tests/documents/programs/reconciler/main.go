// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newReconciler(guard))
}

// newReconciler returns the handler of a schedule, for example once a minute.
func newReconciler(guard *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
	return idempotent.Reconciler(guard, map[string]idempotent.ResolveFunc{
		"POST /charges": resolveCharge,
	})
}

// resolveCharge asks the payment provider for the charge that was made under the
// key that the handler sent.
func resolveCharge(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	address := os.Getenv("PROVIDER_URL") + "?idempotency_key=" + url.QueryEscape(r.ID.DownstreamKey())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return idempotent.Resolution{}, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return idempotent.Resolution{}, err // asked again later
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return idempotent.Resolution{}, err
	case answer.StatusCode == http.StatusNotFound: // and no charge can follow: the worker is dead
		return idempotent.ProvenNotExecuted(r.Token), nil
	case answer.StatusCode != http.StatusOK:
		return idempotent.Resolution{}, fmt.Errorf("the provider answered %s", answer.Status)
	}
	return lambdahttp.Resolved(lambdahttp.Response{Status: http.StatusCreated, Body: body}), nil
}
