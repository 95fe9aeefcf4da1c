// SPDX-License-Identifier: Apache-2.0

// Package first runs the store and two examples in LocalStack, as real Lambda functions,
// which it creates with the SDK. It needs no CDK and no Node, so it is the first test of
// a deployment that a contributor runs.
package first

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// All tests share these. Their keys are unique.
var (
	endpoint  string // of LocalStack
	database  *dynamodb.Client
	functions *lambda.Client
	queues    *sqs.Client
	records   = "once-" + strings.ToLower(rand.Text()) // the table of the records
	bundles   string                                   // the folder of the programs' archives
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	began := time.Now()
	note := func(what string) { fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), what) }
	note("starting LocalStack, and building three programs as Lambda functions")
	if bundles, err = os.MkdirTemp("", "once-first"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(bundles)
	built := make(chan error, 1)
	go func() { built <- bundle(); note("the functions are built") }()
	up, stop, err := engine.LocalStack()
	if err != nil {
		return 0, err
	}
	defer stop()
	note("LocalStack is up")
	endpoint = up
	cfg := engine.Config(endpoint)
	// The SDK's own client for DynamoDB: that of dynamostore gives a busy machine 5 s for an answer.
	database, functions, queues = dynamodb.NewFromConfig(cfg), lambda.NewFromConfig(cfg), sqs.NewFromConfig(cfg)
	store, err := dynamostore.New(database, records)
	if err != nil {
		return 0, err
	}
	if err := store.CreateTable(context.Background()); err != nil {
		return 0, err
	}
	if err := <-built; err != nil {
		return 0, err
	}
	// These tests mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 0, err
	}
	code = m.Run()
	note("tested")
	return code, nil
}

// bundle builds the programs for this machine's processor, as users do.
func bundle() error {
	const examples = "github.com/once-lambda/once/examples/"
	cmd := exec.Command("go", "run", "./bundle", "-arch", runtime.GOARCH, "-o", bundles,
		"charge="+examples+"charge-lambda/cmd/lambda", "orders="+examples+"order-queue/cmd/lambda", "watched=github.com/once-lambda/once/tests/deployed/first/watched")
	cmd.Dir = filepath.Join(engine.Root(), "examples/charge-lambda/stack")
	_, err := engine.Output(cmd)
	return err
}

// create creates a function from a program, and returns its name. Its time-out is in
// whole seconds.
func create(t *testing.T, program string, timeout time.Duration, env map[string]string) (name string) {
	t.Helper()
	archive, err := os.ReadFile(filepath.Join(bundles, program+"-"+runtime.GOARCH+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	name = program + "-" + strings.ToLower(rand.Text())
	env["ONCE_TABLE"] = records
	_, err = functions.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: aws.String("arn:aws:iam::000000000000:role/first"), Handler: aws.String("bootstrap"),
		Runtime: types.RuntimeProvidedal2023, Code: &types.FunctionCode{ZipFile: archive},
		Timeout: aws.Int32(int32(timeout.Seconds())), Environment: &types.Environment{Variables: env},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // LocalStack may be that of other tests
		if _, err := functions.DeleteFunction(context.Background(), &lambda.DeleteFunctionInput{FunctionName: &name}); err != nil {
			t.Error(err)
		}
	})
	// LocalStack waits for it, but only 10 s.
	active := lambda.NewFunctionActiveV2Waiter(functions, func(o *lambda.FunctionActiveV2WaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	})
	if err := active.Wait(t.Context(), &lambda.GetFunctionInput{FunctionName: &name}, kit.Patience); err != nil {
		t.Fatal(err)
	}
	return name
}

// payments is a payment provider. It lets a test act between a charge and its answer.
type payments struct {
	kit.Provider
	url     string
	charged func(customer string)

	mu    sync.Mutex
	asked map[string]int // requested charges, by customer
}

func newPayments(t *testing.T) *payments {
	p := &payments{charged: func(string) {}, asked: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *payments) serve(w http.ResponseWriter, r *http.Request) {
	var charge struct{ Customer string }
	if err := json.NewDecoder(r.Body).Decode(&charge); err != nil {
		http.Error(w, "no charge", http.StatusBadRequest)
		return
	}
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, r)
	p.mu.Lock()
	p.asked[charge.Customer]++
	p.mu.Unlock()
	p.charged(charge.Customer)
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes()) // an error means that the caller has ended
}

// times returns how often charges of a customer were requested.
func (p *payments) times(customer string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[customer]
}

// Without the lists, each of which sends 64 queries: tests/engines/integration runs the
// whole suite on DynamoDB Local.
func TestStore(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) driver.Store {
		s := newStore(t)
		return struct {
			driver.Store
			driver.ChunkStore
		}{s, s}
	}
	idempotenttest.RunStore(t, idempotenttest.Fixture{Open: open, Reopen: func(t testing.TB, _ driver.Store) driver.Store { return open(t) }})
}

func newStore(t testing.TB) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(database, records)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A wrapped handler runs once for two events of an order, each with a new store and guard,
// and refuses an event that differs.
func TestWrap(t *testing.T) {
	t.Parallel()
	type order struct {
		ID     string
		Amount int
	}
	runs := 0
	handle := func(o order) (string, error) {
		g, err := idempotent.New(newStore(t))
		if err != nil {
			t.Fatal(err)
		}
		key := idempotent.KeyFrom("charge", func(o order) (scope, id string) { return "acme", o.ID })
		return idempotent.Wrap(g, key, func(context.Context, order) (string, error) {
			runs++
			return "ch_1", nil
		})(t.Context(), o)
	}
	id := rand.Text()
	for range 2 {
		if got, err := handle(order{id, 4200}); got != "ch_1" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := handle(order{id, 9000}); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("got %v for another amount, want a refusal", err)
	}
	if runs != 1 {
		t.Errorf("the handler ran %d times, want once", runs)
	}
}
