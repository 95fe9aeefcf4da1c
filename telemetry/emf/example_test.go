// SPDX-License-Identifier: Apache-2.0

package emf_test

import (
	"context"
	"os"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry/emf"
)

func ExampleFlushed() {
	at := time.UnixMilli(1795262400000)
	clock := func() time.Time { return at }
	charge := func(_ context.Context, order string) (string, error) {
		at = at.Add(200 * time.Millisecond) // how long the provider takes
		return "ch_1", nil
	}
	metrics, err := emf.New(os.Stdout, "Charges", func(o *emf.Options) { o.Now = clock })
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer, o.Now = metrics, clock })
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(order string) (scope, id string) { return idempotent.Global, order })
	handler := emf.Flushed(metrics, idempotent.Wrap(guard, byOrder, charge)) // for lambda.Start
	handler(context.Background(), "o-1")
	handler(context.Background(), "o-1")
	// Output:
	// {"_aws":{"Timestamp":1795262400200,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[{"Name":"once.request_ended","Unit":"Count"},{"Name":"once.reserved","Unit":"Count"},{"Name":"once.completed","Unit":"Count"}]},{"Namespace":"Charges","Dimensions":[["operation"]],"Metrics":[{"Name":"once.handler.duration","Unit":"Seconds"}]}]},"timestamp":"2026-11-21T12:00:00.200Z","level":"INFO","kind":"metric","operation":"charge","once.request_ended":1,"once.reserved":1,"once.completed":1,"once.handler.duration":[0.200000]}
	// {"_aws":{"Timestamp":1795262400200,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[{"Name":"once.request_ended","Unit":"Count"},{"Name":"once.replayed","Unit":"Count"}]}]},"timestamp":"2026-11-21T12:00:00.200Z","level":"INFO","kind":"metric","operation":"charge","once.request_ended":1,"once.replayed":1}
}
