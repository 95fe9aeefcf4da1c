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
	"github.com/once-lambda/once/tests/engine"
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	// How these tests run unless the command line says otherwise.
	for name, value := range map[string]string{
		"test.parallel":    "4",    // most of them wait for an engine
		"rapid.checks":     "50",   // sequences in a round of a property test
		"rapid.shrinktime": "3s",   // to shorten one that failed
		"rapid.nofailfile": "true", // the seed of a failure is printed, no file stays behind
	} {
		if err := flag.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
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

// dynamo returns a store in DynamoDB Local, which is started when it is first
// asked for. All tests share a table: their keys never meet.
func dynamo(t testing.TB) driver.Store {
	t.Helper()
	s, err := database()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var stopDatabase func()

var database = sync.OnceValues(func() (*dynamostore.Store, error) {
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		return nil, err
	}
	stopDatabase = stop
	// Without a time-out per try: on a busy machine a call would fail whose outcome
	// is then open, and the histories here have none.
	s, err := dynamostore.New(dynamodb.NewFromConfig(engine.Config(endpoint)), "once-"+strings.ToLower(rand.Text()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.CreateTable(ctx); err != nil {
		return nil, fmt.Errorf("DynamoDB Local: %w", err)
	}
	return s, nil
})

// began is when every clock of these tests starts: ahead of the real time, so
// that no engine takes a record for expired behind their back.
var began = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// The real time that a call may take is counted in the tests' own: minutes, so
// that a slow machine does not end one.
const (
	leaseMargin    = 2 * time.Minute
	requestTimeout = 10 * time.Minute
)

// moment turns the models' time into a record's.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func span(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))
