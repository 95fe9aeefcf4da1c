// SPDX-License-Identifier: Apache-2.0

// Package deploy deploys the example's stack with the CDK to LocalStack and
// tests it as its clients would, on real Lambda processes: they are killed at
// their time-outs, crash, and are replaced while requests run. The effects are
// counted in the payment provider's ledger, which is in this process.
package deploy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
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

// family finds the descendants of this process by a variable in their
// environment. Functions do not inherit it; they are found by their LocalStack's.
type family struct {
	mark string
	runs map[string]bool // of this test's LocalStack
}

func newFamily() (family, error) {
	f := family{rand.Text(), map[string]bool{}}
	return f, os.Setenv("ONCE_DEPLOY_TEST", f.mark)
}

// members returns the running processes with their command lines.
func (f family) members() map[int]string {
	all := engine.Environments()
	mine := func(pid int) bool { return pid != os.Getpid() && all[pid]["ONCE_DEPLOY_TEST"] == f.mark }
	for pid, env := range all {
		if run := env["ONCE_LOCALSTACK_RUN"]; run != "" && mine(pid) {
			f.runs[run] = true
		}
	}
	found := map[int]string{}
	for pid, env := range all {
		if mine(pid) || f.runs[env["ONCE_LOCALSTACK_RUN"]] {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			found[pid] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// waitForEnd returns the processes that do not end.
func (f family) waitForEnd() (left map[int]string) {
	for deadline := time.Now().Add(kit.Patience); ; time.Sleep(100 * time.Millisecond) {
		if left = f.members(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}
