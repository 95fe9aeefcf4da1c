package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const enginePatience = 10 * time.Minute // the first start downloads it

// startEngine returns the address of DynamoDB Local: that of DYNAMODB_ENDPOINT,
// or of a new process, which stop ends.
func startEngine(ctx context.Context, script string) (endpoint string, stop func(), err error) {
	if endpoint := os.Getenv("DYNAMODB_ENDPOINT"); endpoint != "" {
		return endpoint, func() {}, nil
	}
	// The process ends when its standard input ends, also if this process is
	// killed.
	cmd := exec.Command(script)
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
		_ = cmd.Wait() // stop ended it
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("DynamoDB Local did not start:\n%s", &stderr)
	}
	return strings.TrimSpace(line), stop, nil
}
