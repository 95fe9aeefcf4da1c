// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/deployed/browser"
)

var (
	chromium *browser.Browser // of all tests
	programs string           // folder of the built programs
)

// pictures is the folder to which TestPictures writes.
var pictures = flag.String("pictures", "", "write the pictures of the documentation to this `folder`")

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) (code int) {
	// Most tests wait for a provider or a lease.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if programs, err = os.MkdirTemp("", "once-programs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	build := exec.Command("go", "build", "-o", programs+"/charge-local", "./examples/charge-lambda/cmd/local")
	build.Dir = engine.Root()
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the example: %v\n%s", err, out)
		return 1
	}
	if chromium, err = browser.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := chromium.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// example is the running example.
type example struct {
	url  string
	cmd  *exec.Cmd
	kill func()
}

// startExample starts the example on a free port with an empty store, and waits for
// it.
func startExample(t *testing.T, env ...string) *example {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "charge-local"))
	cmd.Env = append(append(os.Environ(), "PORT=0", "DATA="+t.TempDir()), env...)
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.WaitDelay = time.Second // a worker that outlives its parent keeps the log open
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &example{cmd: cmd}
	ended := false
	e.kill = func() {
		if !ended {
			ended = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	t.Cleanup(func() {
		e.kill()
		if t.Failed() {
			t.Logf("the example's log:\n%s", &log)
		}
	})
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	if err != nil {
		e.kill()
		t.Fatalf("the example did not start: %v\n%s", err, &log)
	}
	e.url = strings.TrimPrefix(strings.TrimSpace(first), "listening on ")
	go io.Copy(io.Discard, lines)
	return e
}
