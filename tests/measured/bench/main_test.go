// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// Both sides use one client and one table, so that neither has an advantage.
var (
	endpoint string
	client   *dynamodb.Client
	table    string
	wire     = &meteredTransport{}
)

// meteredTransport counts requests.
type meteredTransport struct{ requests atomic.Int64 }

func (m *meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	m.requests.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" { // a process of environment_test.go
		return function()
	}
	at, stop, err := engine.DynamoDBLocal()
	if err == nil {
		endpoint = at
		defer stop()
		client = dynamostore.NewClient(engine.Config(endpoint), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: wire} })
		table = "once-" + strings.ToLower(rand.Text())
		err = createTable()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func createTable() error {
	store, err := dynamostore.New(client, table)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	return store.CreateTable(ctx)
}
