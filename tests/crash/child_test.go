package crash

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/engine"
)

// What a child is told.
const (
	envBarrier  = "ONCE_CRASH_BARRIER"
	envPolicy   = "ONCE_CRASH_POLICY"
	envKey      = "ONCE_CRASH_KEY"
	envEngine   = "ONCE_CRASH_ENGINE"
	envTable    = "ONCE_CRASH_TABLE"
	envProvider = "ONCE_CRASH_PROVIDER"
)

// reached is what a child says when it stands at its barrier.
const reached = "at the barrier"

// killAt starts a process that sends the request of key, and kills it where it
// says that it has reached the barrier.
func killAt(ctx context.Context, p policy, key idempotent.Key, barrier string) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(),
		envBarrier+"="+barrier, envPolicy+"="+p.name, envKey+"="+key.ID,
		envEngine+"="+endpoint, envTable+"="+store.Table(), envProvider+"="+bank.url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil { // SIGKILL
		return err
	}
	_ = cmd.Wait() // it was killed
	if strings.TrimSpace(line) != reached {
		return fmt.Errorf("the process said %q and not that it stands %s: %s", line, barrier, stderr.String())
	}
	return nil
}

// child sends one request and never comes back from its barrier.
func child() {
	barrier := os.Getenv(envBarrier)
	reach := func(at string) {
		if at == barrier {
			fmt.Println(reached)
			select {} // until it is killed
		}
	}
	providerURL = os.Getenv(envProvider)
	p := policyNamed(os.Getenv(envPolicy))
	s, err := dynamostore.New(dynamostore.NewClient(engine.Config(os.Getenv(envEngine))), os.Getenv(envTable))
	if err == nil {
		var g *idempotent.Guard
		if g, err = p.guard(&barred{Store: s, reach: reach}); err == nil {
			_, err = p.request(context.Background(), g, keyOf(p, os.Getenv(envKey)), reach)
			reach("before the response")
		}
	}
	fmt.Fprintln(os.Stderr, "the barrier was not reached:", err)
	os.Exit(1)
}

// barred is a store with barriers around its writes. During a write means that
// it is on its way: whether it arrives before the process dies is open.
type barred struct {
	driver.Store
	reach  func(string)
	writes atomic.Int32
}

func (b *barred) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	b.reach("before the claim")
	met, err := b.around("during the claim", func() (*driver.Record, error) { return b.Store.Insert(ctx, r, now) })
	b.reach("after the claim")
	return met, err
}

func (b *barred) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	n := b.writes.Add(1)
	b.reach(fmt.Sprintf("before write %d", n))
	met, err := b.around(fmt.Sprintf("during write %d", n), func() (*driver.Record, error) { return b.Store.Replace(ctx, r, was) })
	b.reach(fmt.Sprintf("after write %d", n))
	return met, err
}

func (b *barred) around(barrier string, write func() (*driver.Record, error)) (met *driver.Record, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		met, err = write()
	}()
	b.reach(barrier)
	<-done
	return met, err
}
