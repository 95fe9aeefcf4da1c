// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

var t *testing.T // the *testing.T of the enclosing test

// Test a store with two lines: the fixture opens it.
func ExampleRunStore() {
	fixture := idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
		// Reopen: for a store that outlives its process. Remove: if records can
		// be deleted directly. Wire: if the store has its own client.
	}
	t.Run("Store", func(t *testing.T) { idempotenttest.RunStore(t, fixture) })
	t.Run("FailureModes", func(t *testing.T) { idempotenttest.RunFailureModes(t, fixture) })
}

// Each row also runs under four schedules of faults, between the guard and the store
// and between the store and its service. To run a failed seed alone, set
// IDEMPOTENTTEST_SEED, as the failure message shows.
func ExampleRunFailureModes() {
	fixture := idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newStore(http.DefaultTransport) },
		Wire: func(_ testing.TB, faulty http.RoundTripper) driver.Store { return newStore(faulty) },
	}
	idempotenttest.RunFailureModes(t, fixture, func(o *idempotenttest.FailureModesOptions) { o.Seeds = 4 })
}

// The process is killed while it stores the outcome: the write arrives, and the
// process makes no other call. The next one replays the outcome.
func ExampleIntercept() {
	store, killed := memstore.New(), false
	dying := idempotenttest.Intercept(store, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if killed {
			c.Err = errors.New("the process was killed")
			return
		}
		c.Do(ctx)
		killed = c.Op == driver.OpReplace
	})
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	for _, s := range []driver.Store{dying, store} {
		guard, err := idempotent.New(s)
		if err != nil {
			panic(err)
		}
		out, err := idempotent.DoOutcome(context.Background(), guard, key, func(context.Context) (string, error) {
			fmt.Println("charged")
			return "ch_1", nil
		})
		fmt.Println(out.Value, "replayed:", out.Replayed, "error:", err)
	}
	// Output:
	// charged
	// ch_1 replayed: false error: <nil>
	// ch_1 replayed: true error: <nil>
}

func newStore(transport http.RoundTripper) driver.Store {
	store, err := dynamostore.New(dynamostore.NewClient(aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String("http://127.0.0.1:8000"),
		Credentials:  aws.AnonymousCredentials{},
		HTTPClient:   &http.Client{Transport: transport},
	}), "idempotency")
	if err != nil {
		t.Fatal(err)
	}
	return store
}
