// SPDX-License-Identifier: Apache-2.0

// Package crash kills processes at every moment of a request and checks how
// their clients, and a reconciler, recover.
//
// A test starts DynamoDB Local and a provider that counts its effects. For each
// key it starts a separate process of its own binary, which sends one request
// through the toolkit and stops at a barrier: before, during or after a write or
// the effect. There it is killed. Everything after that happens in the test's
// own process.
package crash

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/engine"
)

func TestMain(m *testing.M) {
	if os.Getenv(envBarrier) != "" {
		child()
		return
	}
	os.Exit(runAll(m))
}

// endpoint and store are the engine that all processes share.
var (
	endpoint string
	store    *dynamostore.Store
)

func runAll(m *testing.M) int {
	// Most keys wait for the end of a lease.
	err := flag.Set("test.parallel", "12")
	if err == nil {
		var stop func()
		if endpoint, stop, err = engine.DynamoDBLocal(); err == nil {
			defer stop()
			err = createTable()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var closeProvider func()
	bank, closeProvider = newProvider()
	defer closeProvider()
	providerURL = bank.url
	return m.Run()
}

func createTable() (err error) {
	store, err = dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), "crash-"+strings.ToLower(rand.Text()))
	if err != nil {
		return err
	}
	ledgerTable = store.Table()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return store.CreateTable(ctx)
}

// Each kill is repeated, during a write more often: where the write then is,
// varies.
const repeats, repeatsDuring = 2, 4

// The time of a request.
const (
	deadline = time.Second
	margin   = 100 * time.Millisecond
)

// F90, FM57: a process is killed at every barrier of a request, with real
// SIGKILL. Whatever state it leaves, the client's retries and the reconciler
// lead every key to exactly one effect at the provider, and to a stored result.
func TestKillAtEveryBarrier(t *testing.T) {
	t.Parallel()
	for _, p := range policies {
		for _, barrier := range p.barriers() {
			times := repeats
			if strings.HasPrefix(barrier, "during") {
				times = repeatsDuring
			}
			for range times {
				t.Run(p.name+"/"+barrier, func(t *testing.T) {
					t.Parallel()
					after, final, err := survive(t.Context(), p, barrier)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("the record was %s after the kill, and is %s", after, final)
				})
			}
		}
	}
}

// survive kills a process for a new key, and for another one while the machine is
// too busy: the time is up before the barrier, or before a large result is stored.
func survive(ctx context.Context, p policy, barrier string) (after, final string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		after, final, err = killed(ctx, p, newKey(p), barrier)
		busy := errors.Is(err, errBusy) || p.large && errors.As(err, new(*idempotent.ReplayUnavailableError))
		if !busy || ctx.Err() != nil {
			return after, final, err
		}
	}
}

// killed kills a separate process at a barrier, and then does what a client and a
// schedule do. It returns the state of the record after the kill, and in the end.
func killed(ctx context.Context, p policy, key idempotent.Key, barrier string) (after, final string, err error) {
	if err := killAt(ctx, p, key, barrier); err != nil {
		return "", "", err
	}
	after = p.state(ctx, key)
	guard, err := p.guard(store)
	if err != nil {
		return "", "", err
	}
	value, err := p.retry(ctx, guard, key)
	if err != nil {
		return after, "", err
	}
	calls, effects, err := p.count(ctx, key)
	if err != nil {
		return after, "", err
	}
	if effects != 1 {
		return after, "", fmt.Errorf("there are %d effects after %d calls", effects, calls)
	}
	again, err := p.request(ctx, guard, key, nil)
	for errors.As(err, new(*idempotent.StoreError)) && ctx.Err() == nil { // a busy engine
		again, err = p.request(ctx, guard, key, nil)
	}
	if err != nil || again != value {
		return after, "", fmt.Errorf("a last retry gets %.80q (%d bytes), %v after %.80q (%d bytes)", again, len(again), err, value, len(value))
	}
	return after, p.state(ctx, key), nil
}

// state returns the recorded state of a key.
func (p policy) state(ctx context.Context, key idempotent.Key) string {
	r, err := store.Get(ctx, key.RecordID())
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return "no record"
	case err != nil:
		return err.Error()
	}
	return r.State.String()
}

// retry sends the request until it gets a result, as a client does, while the
// reconciler runs on its schedule.
func (p policy) retry(ctx context.Context, g *idempotent.Guard, key idempotent.Key) (string, error) {
	for {
		value, err := p.request(ctx, g, key, nil)
		if err == nil {
			return value, nil
		}
		var running *idempotent.InProgressError
		switch {
		case errors.As(err, &running):
			if err := pause(ctx, running.RetryAfter); err != nil {
				return "", err
			}
		case errors.As(err, new(*idempotent.UnresolvedError)):
			if _, err := idempotent.ReconcileDue(ctx, g, bank.resolve, func(o *idempotent.ReconcileOptions) {
				o.Operations, o.Backoff, o.MaxBackoff = []string{key.Operation}, 10*time.Millisecond, 10*time.Millisecond

			}); err != nil {
				return "", err
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return "", err
			}
		case errors.As(err, new(*idempotent.StoreError)), errors.As(err, new(*idempotent.NoTimeError)):
			// Nothing was executed: with a busy engine, try again.
			if ctx.Err() != nil {
				return "", err
			}
		default:
			return "", err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
