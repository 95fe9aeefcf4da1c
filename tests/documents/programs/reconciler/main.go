// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/telemetry/emf"
)

func main() {
	store, err := dynamostore.Open(context.Background()) // the table in ONCE_TABLE
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := emf.New(os.Stdout, os.Getenv("ONCE_METRICS_NAMESPACE")) // for the alarms
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Logger = lambdacontext.NewLogger() // lines of JSON, for queries
		o.Observer = event.Observers(metrics, event.LogObserver(o.Logger))
	})
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(newReconciler(guard))
}

// charge is the handler's response.
type charge struct {
	ID string `json:"id"`
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
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound: // and no charge can follow: the worker is dead
		return idempotent.ProvenNotExecuted(r.Token), nil
	default:
		return idempotent.Resolution{}, fmt.Errorf("the provider answered %s", answer.Status)
	}
	var c charge
	if err := json.NewDecoder(answer.Body).Decode(&c); err != nil {
		return idempotent.Resolution{}, err
	}
	return lambdahttp.JSON[any, charge]{}.Resolved(c)
}
