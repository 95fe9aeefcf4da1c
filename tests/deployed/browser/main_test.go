// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

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
	if err := engine.Build(programs+"/playground", "./playground"); err != nil {
		fmt.Fprintln(os.Stderr, err)
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

// startExample starts the example on a free port with an empty store, and waits for
// it.
func startExample(t *testing.T, env ...string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "playground"))
	cmd.Env = append(append(os.Environ(), "PORT=0", "DATA="+t.TempDir()), env...)
	p, url, err := engine.StartUntil(cmd, "listening on ")
	if err != nil {
		t.Fatal(err)
	}
	kill = func() { p.End(syscall.SIGKILL) }
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Logf("the example's log:\n%s", p.Log())
		}
	})
	return url, kill
}
