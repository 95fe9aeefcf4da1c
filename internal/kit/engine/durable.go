// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// Durable is a DynamoDB Local whose tables are files: they survive its death,
// and the next start reads them. Its methods are safe for concurrent use.
type Durable struct {
	port   int
	folder string

	mu   sync.Mutex
	life *Process // nil: the engine is dead
}

// NewDurable starts DynamoDB Local with its tables in folder.
func NewDurable(folder string) (*Durable, error) {
	port, err := steadyPort()
	if err != nil {
		return nil, err
	}
	d := &Durable{port: port, folder: folder}
	return d, d.Start()
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
func (d *Durable) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life != nil {
		return nil
	}
	cmd := exec.Command(filepath.Join(Root(), "localstack", "dynamodb-local"), "--port", strconv.Itoa(d.port), "--data", d.folder)
	EndWithParent(cmd)
	p, _, err := StartUntil(cmd, d.Endpoint())
	if err != nil {
		return err
	}
	d.life = p
	return nil
}

// Kill ends the engine with SIGKILL and returns when it is dead.
func (d *Durable) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil {
		return nil
	}
	err := d.life.Signal(os.Kill)
	_ = d.life.Wait() // reports the signal
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
	return d.life.Signal(s)
}
