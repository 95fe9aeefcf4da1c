package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

const enginePatience = 10 * time.Minute // it is downloaded when it is first started

// startEngine returns the address of DynamoDB Local: the one that
// DYNAMODB_ENDPOINT names, or one of our own, which stop ends.
func startEngine(ctx context.Context, script string) (endpoint string, stop func(), err error) {
	if endpoint := os.Getenv("DYNAMODB_ENDPOINT"); endpoint != "" {
		return endpoint, func() {}, nil
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	// The shell ends the engine when its standard input ends: also when this
	// process is killed and cannot do it.
	cmd := exec.Command("sh", "-c", `"$0" --port "$1" </dev/null & engine=$!; cat >/dev/null; kill $engine; wait $engine`, script, port)
	stdin, err := cmd.StdinPipe()
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
		_ = cmd.Wait() // it was told to end
	}
	endpoint = "http://127.0.0.1:" + port
	if err := answers(ctx, endpoint); err != nil {
		stop()
		return "", nil, fmt.Errorf("DynamoDB Local did not start (%w):\n%s", err, &stderr)
	}
	return endpoint, stop, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// answers waits until an HTTP server answers, whatever it says.
func answers(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			return resp.Body.Close()
		}
		if wait(ctx, 100*time.Millisecond) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// wait takes d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
