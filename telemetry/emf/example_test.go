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
	charge := func(_ context.Context, order string) (string, error) { return "ch_1", nil }
	metrics, err := emf.New(os.Stdout, "Charges", func(o *emf.Options) {
		o.Now = func() time.Time { return time.UnixMilli(1795262400000) }
	})
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer = metrics })
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(order string) (scope, id string) { return idempotent.Global, order })
	handler := emf.Flushed(metrics, idempotent.Wrap(guard, byOrder, charge)) // for lambda.Start
	handler(context.Background(), "o-1")
	handler(context.Background(), "o-1")
	// Output:
	// {"_aws":{"Timestamp":1795262400000,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"]],"Metrics":[{"Name":"api.idempotency.reserve.created.count","Unit":"Count"},{"Name":"api.idempotency.complete.count","Unit":"Count"}]}]},"operation":"charge","api.idempotency.reserve.created.count":1,"api.idempotency.complete.count":1}
	// {"_aws":{"Timestamp":1795262400000,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"]],"Metrics":[{"Name":"api.idempotency.reserve.replay.count","Unit":"Count"}]}]},"operation":"charge","api.idempotency.reserve.replay.count":1}
}
