// SPDX-License-Identifier: Apache-2.0

// Package engine starts the real engines that tests need, and stops them.
// Nothing has to be installed or started by hand.
package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

// startTimeout limits a start with an empty cache, which downloads the engines.
const startTimeout = 10 * time.Minute

// DynamoDBLocal returns the address of DynamoDB Local: that of
// DYNAMODB_ENDPOINT, or of a new process, which stop ends.
func DynamoDBLocal() (endpoint string, stop func(), err error) {
	if endpoint := os.Getenv("DYNAMODB_ENDPOINT"); endpoint != "" {
		return endpoint, func() {}, nil
	}
	// The process ends when its standard input does, also if this process is
	// killed and cannot stop it.
	cmd := exec.Command(filepath.Join(Root(), "localstack", "dynamodb-local"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		stdin.Close()
		cmd.Wait()
	}
	timer := time.AfterFunc(startTimeout, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer timer.Stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("DynamoDB Local did not start:\n%s", &stderr)
	}
	return strings.TrimSpace(line), stop, nil
}

// LocalStack returns the address of LocalStack: that of LOCALSTACK_ENDPOINT, or
// of a new process on its own port, which stop ends.
func LocalStack() (endpoint string, stop func(), err error) {
	up := exec.Command(filepath.Join(Root(), "localstack", "up"))
	if os.Getenv("LOCALSTACK_ENDPOINT") != "" {
		endpoint, err := output(up) // checks that it answers
		return endpoint, func() {}, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	env := append(os.Environ(), "LOCALSTACK_PORT="+strconv.Itoa(port))
	up.Env = env
	endpoint, err = output(up)
	if err != nil {
		return "", nil, err
	}
	return endpoint, func() {
		down := exec.Command(filepath.Join(Root(), "localstack", "down"))
		down.Env = env
		if err := run(down); err != nil {
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

func run(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

// output runs cmd with a time limit, and returns its standard output.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(startTimeout, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
