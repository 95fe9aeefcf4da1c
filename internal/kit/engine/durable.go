// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Durable is a DynamoDB Local whose tables are files: they survive its death,
// and the next start reads them. Its methods are safe for concurrent use.
type Durable struct {
	port   int
	folder string

	mu   sync.Mutex
	life *life // nil: the engine is dead
}

// life is one run of the engine.
type life struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer  // complete when dead is closed
	dead   chan struct{} // closed when the process has ended
}

// NewDurable starts DynamoDB Local with its tables in folder.
func NewDurable(ctx context.Context, folder string) (*Durable, error) {
	port, err := steadyPort()
	if err != nil {
		return nil, err
	}
	d := &Durable{port: port, folder: folder}
	return d, d.Start(ctx)
}

// steadyPort returns a port below those that the kernel assigns, so that no
// connection takes it while the engine is dead.
func steadyPort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("engine: no free port from 20000 to 31999")
}

// Endpoint returns the address of the engine. It is the same after each start.
func (d *Durable) Endpoint() string { return "http://127.0.0.1:" + strconv.Itoa(d.port) }

// Start starts the engine if it is not running, and returns when it answers.
func (d *Durable) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life != nil {
		return nil
	}
	r := &life{dead: make(chan struct{})}
	r.cmd = exec.Command(filepath.Join(Root(), "localstack", "dynamodb-local"), "--port", strconv.Itoa(d.port), "--data", d.folder)
	r.cmd.Stderr = &r.stderr
	EndWithParent(r.cmd)
	if err := r.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = r.cmd.Wait() // it is killed sooner or later
		close(r.dead)
	}()
	if err := r.answers(ctx, d.Endpoint()); err != nil {
		_ = r.cmd.Process.Kill() // it may have ended already
		<-r.dead
		return fmt.Errorf("engine: DynamoDB Local does not answer on %s: %w\n%s", d.Endpoint(), err, &r.stderr)
	}
	d.life = r
	return nil
}

// answers returns when the engine answers.
func (r *life) answers(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := dynamodb.NewFromConfig(Config(endpoint), func(o *dynamodb.Options) { o.RetryMaxAttempts = 1 })
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := client.ListTables(try, &dynamodb.ListTablesInput{Limit: aws.Int32(1)})
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.dead:
			return fmt.Errorf("the process ended: %s", r.cmd.ProcessState)
		case <-ctx.Done():
			return err
		}
	}
}

// Kill ends the engine with SIGKILL and returns when it is dead.
func (d *Durable) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return nil
	}
	err := d.life.cmd.Process.Kill()
	<-d.life.dead
	d.life = nil
	return err
}

// Signal sends the engine a signal if it is running.
func (d *Durable) Signal(s os.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return nil
	}
	return d.life.cmd.Process.Signal(s)
}
