// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

var t *testing.T // the *testing.T of the enclosing test

// Test a store with three lines: the fixture opens it.
func ExampleRunStore() {
	fixture := idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
		// Reopen: for a store that outlives its process. Remove: if records can
		// be deleted directly. Wire: if the store has its own client.
	}
	t.Run("Store", func(t *testing.T) { idempotenttest.RunStore(t, fixture) })
	t.Run("FailureModes", func(t *testing.T) { idempotenttest.RunFailureModes(t, fixture) })
	t.Run("UnderFaults", func(t *testing.T) { idempotenttest.RunFailureModesUnderFaults(t, fixture) })
}

// Fewer seeds are enough for a store on a network. To run a failed seed alone,
// set IDEMPOTENTTEST_SEED, as the failure message shows.
func ExampleRunFailureModesUnderFaults() {
	fixture := idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newStore(nil) },
		Wire: func(_ testing.TB, faults *idempotenttest.Faults) driver.Store {
			return newStore(&http.Client{Transport: faults.Transport(nil)})
		},
	}
	idempotenttest.RunFailureModesUnderFaults(t, fixture, func(o *idempotenttest.FaultOptions) { o.Seeds = 4 })
}

// G11: the handler has charged, and the reply to the write of its outcome is
// lost. The outcome was stored all the same, so a retry gets it.
func ExampleFaults_Store() {
	faults := &idempotenttest.Faults{
		Plan: idempotenttest.On(driver.OpReplace, idempotenttest.LostReply, 1),
	}
	guard, err := idempotent.New(faults.Store(memstore.New()))
	if err != nil {
		panic(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes(nil)}
	charge := func(context.Context) (string, error) {
		fmt.Println("charged")
		return "ch_1", nil
	}
	for range 2 {
		out, err := idempotent.DoOutcome(context.Background(), guard, key, charge)
		fmt.Println(out.Value, "replayed:", out.Replayed, "error:", err)
	}
	fmt.Println(faults.Injected())
	// Output:
	// charged
	// ch_1 replayed: false error: <nil>
	// ch_1 replayed: true error: <nil>
	// map[{replace lost reply}:1]
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

// The reply to the claim is lost. The SDK retries, DynamoDB refuses the second
// write, and the guard recognises the record as its own.
func ExampleFaults_Transport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("received", r.Header.Get("X-Amz-Target"))
		io.WriteString(w, "{}")
	}))
	defer server.Close()

	faults := &idempotenttest.Faults{Plan: idempotenttest.On("PutItem", idempotenttest.LostReply, 1)}
	client := dynamostore.NewClient(config(server.URL), func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: faults.Transport(nil)}
	})
	store, err := dynamostore.New(client, "idempotency")
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

// Equal seeds make equal plans, so a test can repeat a failure that it found.
func ExampleSeeded() {
	plan := func(seed uint64) idempotenttest.Plan {
		return idempotenttest.Seeded(seed,
			idempotenttest.Odds{Op: driver.OpInsert, Fault: idempotenttest.LostReply, P: 0.5},
			idempotenttest.Odds{Fault: idempotenttest.LostRequest, P: 0.2},
		)
	}
	failures := func(seed uint64) (n int) {
		faults := &idempotenttest.Faults{Plan: plan(seed)}
		store := faults.Store(memstore.New())
		for range 100 {
			if _, err := store.Get(context.Background(), "charge#"); errors.Is(err, idempotenttest.ErrInjected) {
				n++
			}
		}
		return n
	}
	first, again, other := failures(1), failures(1), failures(2)
	fmt.Println(first == again, first == other)
	// Output: true false
}

func newStore(client *http.Client) driver.Store {
	store, err := dynamostore.New(dynamostore.NewClient(config("http://127.0.0.1:8000"), func(o *dynamodb.Options) {
		if client != nil {
			o.HTTPClient = client
		}
	}), "idempotency")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func config(endpoint string) aws.Config {
	return aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}
