// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// The environment of a child.
const (
	envBarrier  = "ONCE_CRASH_BARRIER"
	envPolicy   = "ONCE_CRASH_POLICY"
	envKey      = "ONCE_CRASH_KEY"
	envEngine   = "ONCE_CRASH_ENGINE"
	envTable    = "ONCE_CRASH_TABLE"
	envProvider = "ONCE_CRASH_PROVIDER"
)

// reached is what a child prints when it reaches its barrier.
const reached = "at the barrier"

// A process whose time was up before the barrier, as on a busy machine, is not
// counted: another key takes its place.
const exitBusy = 3

var errBusy = errors.New("the time was up before the barrier")

// killAt starts a process that sends the request of key, and kills it when it
// reports that it has reached the barrier.
func killAt(ctx context.Context, policy policy, key idempotent.Key, barrier string) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(),
		envBarrier+"="+barrier, envPolicy+"="+policy.name, envKey+"="+key.ID,
		envEngine+"="+endpoint, envTable+"="+store.Table(), envProvider+"="+bank.url)
	p, _, err := engine.StartUntil(cmd, reached)
	switch {
	case err == nil:
		_ = p.End(syscall.SIGKILL) // reports the signal
	case cmd.ProcessState.ExitCode() == exitBusy:
		return errBusy
	}
	return err
}

// child sends one request and never returns from its barrier.
func child() {
	barrier := os.Getenv(envBarrier)
	reach := func(at string) {
		if at == barrier {
			fmt.Println(reached)
			select {} // until it is killed
		}
	}
	providerURL, ledgerTable = os.Getenv(envProvider), os.Getenv(envTable)
	p := policyNamed(os.Getenv(envPolicy))
	b := &barriers{reach: reach}
	client := dynamotest.Intercept(dynamostore.NewClient(engine.Config(os.Getenv(envEngine))), func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "TransactWriteItems" {
			b.around(b.nextWrite(), func() { c.Do(ctx) })
		} else {
			c.Do(ctx)
		}
	})
	s, err := dynamostore.New(client, os.Getenv(envTable))
	if err == nil {
		var g *idempotent.Guard
		if g, err = p.guard(b.store(s)); err == nil {
			_, err = p.request(context.Background(), g, keyOf(p, os.Getenv(envKey)), reach)
			reach("before the response")
		}
	}
	fmt.Fprintln(os.Stderr, "the barrier was not reached:", err)
	if errors.As(err, new(*idempotent.NoTimeError)) || errors.As(err, new(*idempotent.StoreError)) {
		os.Exit(exitBusy)
	}
	os.Exit(1)
}

// barriers are those around the writes of a process. During a write means that
// the write is in transit: it may or may not arrive before the process dies.
type barriers struct {
	reach  func(string)
	writes atomic.Int32
}

// store returns s with barriers around its writes, except transactions.
func (b *barriers) store(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		what := ""
		switch c.Op {
		case driver.OpInsert:
			what = "the claim"
		case driver.OpReplace:
			what = b.nextWrite()
		case driver.OpPutChunks:
			what = "the pieces"
		default:
			c.Do(ctx)
			return
		}
		b.around(what, func() { c.Do(ctx) })
	})
}

// nextWrite names a write of the record.
func (b *barriers) nextWrite() string { return fmt.Sprintf("write %d", b.writes.Add(1)) }

func (b *barriers) around(what string, write func()) {
	b.reach("before " + what)
	done := make(chan struct{})
	go func() {
		defer close(done)
		write()
	}()
	b.reach("during " + what)
	<-done
	b.reach("after " + what)
}
