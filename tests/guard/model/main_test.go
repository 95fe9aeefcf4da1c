// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	if err := flag.Set("test.parallel", "4"); err != nil { // most tests wait for an engine
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if stopDatabase != nil {
			stopDatabase()
		}
	}()
	return m.Run()
}

func memory(testing.TB) driver.Store { return newMemory() }

func newMemory() driver.Store { return memstore.New() }

func bolt(t testing.TB) driver.Store {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "once.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// dynamo returns a store in DynamoDB Local, which is started on first use. All
// tests share a table, with unique keys.
func dynamo(t testing.TB) driver.Store {
	t.Helper()
	s, err := database()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// global returns a store in a global table with strong consistency, whose calls go to
// two regions at random.
func global(t testing.TB) driver.Store {
	t.Helper()
	const table = "once-global"
	both := engine.NewStrong(engine.Faults{}, table)
	s, err := dynamostore.New(both.Anywhere(), table, func(o *dynamostore.Options) { o.Consistency = dynamostore.Strong })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { both.Seen.Least(t, 10, engine.FactConflicts) })
	return s
}

var stopDatabase func()

var database = sync.OnceValues(func() (*dynamostore.Store, error) {
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		return nil, err
	}
	stopDatabase = stop
	// There is no time-out per try: on a busy machine a call would fail with an
	// unknown result, and the histories here have no such calls.
	s, err := dynamostore.New(dynamodb.NewFromConfig(engine.Config(endpoint)), "once-"+strings.ToLower(rand.Text()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	if err := s.CreateTable(ctx); err != nil {
		return nil, fmt.Errorf("DynamoDB Local: %w", err)
	}
	return s, nil
})

// began is when every clock of these tests starts: ahead of the real time, so
// that no engine treats a record as expired.
var began = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// The real time of a call counts in the tests' own time as minutes, so that a
// slow machine does not end one.
const (
	leaseMargin    = 2 * time.Minute
	requestTimeout = 10 * time.Minute
)

// moment converts the models' time into a record's.
func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func span(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))
