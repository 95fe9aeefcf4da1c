// SPDX-License-Identifier: Apache-2.0

// Package engine starts the real engines and other programs that tests need, and stops
// them. Nothing has to be installed or started by hand. It also simulates global tables.
package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
)

// Root returns the folder of the repository. It panics if the program did not
// start inside it; go test starts a test in the folder of its package.
func Root() string {
	if root == "" {
		panic("engine: no go.work above the folder in which the program started")
	}
	return root
}

var root = findRoot()

func findRoot() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// DynamoDBLocal returns the address of DynamoDB Local: that of
// DYNAMODB_ENDPOINT, or of a new process, which stop ends.
func DynamoDBLocal() (endpoint string, stop func(), err error) {
	if endpoint := os.Getenv("DYNAMODB_ENDPOINT"); endpoint != "" {
		return endpoint, func() {}, nil
	}
	// The process ends when its standard input does, also if this process is
	// killed and cannot stop it.
	cmd := exec.Command(filepath.Join(Root(), "localstack", "dynamodb-local"))
	timer := time.AfterFunc(kit.Patience, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	p, endpoint, err := StartUntil(cmd, "")
	return endpoint, func() {
		p.In.Close()
		p.Wait()
	}, err
}

// LocalStack returns the address of LocalStack: that of LOCALSTACK_ENDPOINT, or
// of a new process on its own port, which stop ends.
func LocalStack() (endpoint string, stop func(), err error) {
	up := exec.Command(filepath.Join(Root(), "localstack", "up"))
	if os.Getenv("LOCALSTACK_ENDPOINT") != "" {
		endpoint, err := Output(up) // checks that it answers
		return endpoint, func() {}, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	env := append(os.Environ(), "LOCALSTACK_PORT="+strconv.Itoa(port))
	up.Env = env
	endpoint, err = Output(up)
	if err != nil {
		return "", nil, err
	}
	return endpoint, func() {
		down := exec.Command(filepath.Join(Root(), "localstack", "down"))
		down.Env = env
		if _, err := Output(down); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}, nil
}

// Config returns an AWS configuration for an engine on this machine.
func Config(endpoint string) aws.Config {
	return aws.Config{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// CreateTable creates a table without an index, whose key is a string. A table that exists
// is one that an earlier attempt of the client created: no two tests use one name.
func CreateTable(ctx context.Context, client dynamostore.Client, table, key string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &key, KeyType: types.KeyTypeHash}},
	})
	if errors.As(err, new(*types.ResourceInUseException)) {
		return nil
	}
	return err
}

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
