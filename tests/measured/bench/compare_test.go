// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// side is one operation of one of the two sides that are compared.
type side = func()

// pairs is the number of turns of each side.
const pairs = 61

// ratios are medians over pairs of turns: the cost of the toolkit relative to
// the other side.
type ratios struct{ wall, cpu float64 }

func (r ratios) String() string {
	if r.wall == 0 {
		return fmt.Sprintf("processor %.3f", r.cpu)
	}
	return fmt.Sprintf("wall %.3f, processor %.3f", r.wall, r.cpu)
}

// wantWithin compares both sides in turns of n operations. Without a limit for
// the wall time, only the processor time counts.
func wantWithin(t *testing.T, limit ratios, ours, theirs side, n int) {
	t.Helper()
	turn(ours, n) // connections and caches are warm after this
	turn(theirs, n)
	kit.Within(t, func() (string, bool) {
		took := kit.Turns(pairs, func() cost { return turn(ours, n) }, func() cost { return turn(theirs, n) })
		var wall, cpu []float64
		for i, a := range took[0] {
			b := took[1][i]
			wall = append(wall, float64(a.wall)/float64(b.wall))
			cpu = append(cpu, float64(a.cpu)/float64(b.cpu))
		}
		got := ratios{kit.Median(t, wall), kit.Median(t, cpu)}
		return fmt.Sprintf("%s; the limits are %s; medians of %d pairs of %d operations", got, limit, pairs, n),
			(limit.wall == 0 || got.wall <= limit.wall) && got.cpu <= limit.cpu
	})
}

// cost is the cost of several operations: wall time, and the processor time of
// this process, user and system, including the runtime.
type cost struct{ wall, cpu time.Duration }

// turn runs n operations from a clean heap, so that one side does not collect
// the other's garbage.
func turn(op side, n int) cost {
	runtime.GC()
	cpu, start := kit.ProcessorTime(), time.Now()
	for range n {
		op()
	}
	return cost{time.Since(start), kit.ProcessorTime() - cpu}
}

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
