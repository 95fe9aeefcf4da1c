// SPDX-License-Identifier: Apache-2.0

// Package deploy deploys the example's stack with the CDK to LocalStack and
// tests it as its clients would, on real Lambda processes: they are killed at
// their time-outs, crash, and are replaced while requests run. The effects are
// counted in the payment provider's ledger, which is in this process.
package deploy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
)

// All tests share these. Their keys and customers are unique.
var (
	pay      *payments
	stack    *deployment
	children family
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func runAll(m *testing.M) (code int, err error) {
	if children, err = newFamily(); err != nil {
		return 0, err
	}
	defer func() {
		if left := children.waitForEnd(); len(left) > 0 && err == nil {
			err = fmt.Errorf("processes were left running: %q", slices.Sorted(maps.Values(left)))
		}
	}()
	scratch, err := os.MkdirTemp("", "once-deploy")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	pay, err = newPayments(scratch)
	if err != nil {
		return 0, err
	}
	defer pay.close()

	ctx := context.Background() // downloads and compilers take as long as they take
	prepared := make(chan error, 1)
	began := time.Now()
	note := func(what string) { fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), what) }
	go func() { prepared <- build(ctx, scratch); note("functions built") }()
	endpoint, stop, err := engine.LocalStack()
	if err != nil {
		return 0, err
	}
	defer stop()
	note("LocalStack is up")
	cdk, err := newCDK(ctx, scratch, endpoint)
	if err != nil {
		return 0, err
	}
	note("CDK installed")
	if err := cdk.bootstrap(ctx); err != nil {
		return 0, err
	}
	note("bootstrapped")
	if err := <-prepared; err != nil {
		return 0, err
	}
	stack, err = deploy(ctx, cdk, pay.address("v1"))
	if err != nil {
		return 0, err
	}
	note("deployed")
	if len(children.members()) == 0 && os.Getenv("LOCALSTACK_ENDPOINT") == "" {
		return 0, errors.New("even LocalStack is not found among the processes")
	}
	// These tests mostly wait.
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		return 0, err
	}
	code = m.Run()
	note("tested")
	return code, nil
}
