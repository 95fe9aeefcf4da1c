// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/kit/exchange"
)

// build builds the playground, which runs the charge example, once, and returns the path of the program.
var build = sync.OnceValues(func() (string, error) {
	program := filepath.Join(scratch, "playground")
	return program, engine.Build(program, "./playground")
})

func (f failure) Error() string { return f.text }

// process is the charge example as a separate process, with the tests' provider.
type process struct {
	program     string
	dir         string
	env         []string
	providerURL string
	api         api

	running *engine.Process
}

// startProcess starts the example with a profile, on a free port.
func startProcess(t *testing.T, p *exchange.Profile, providerURL string, env ...string) (*process, error) {
	program, err := build()
	if err != nil {
		return nil, err
	}
	x := &process{program: program, dir: t.TempDir(), env: append(env, "PORT=0", "PROFILE="+p.Name), providerURL: providerURL}
	t.Cleanup(x.kill)
	return x, x.start()
}

func (x *process) start() (err error) {
	cmd := exec.Command(x.program)
	cmd.Env = append(os.Environ(), append(x.env, "DATA="+x.dir, "PROVIDER_URL="+x.providerURL)...)
	engine.EndWithParent(cmd)
	x.running, x.api.url, err = engine.StartUntil(cmd, "listening on ")
	return err
}

// kill ends the process with SIGKILL, and waits until it has ended.
func (x *process) kill() {
	if x.running != nil {
		_ = x.running.End(syscall.SIGKILL) // reports the signal
	}
}

// openProcess gives the check a running example: the one that all checks of the
// profile share, or its own.
func openProcess(c *check, shared *process, r *requirement) *api {
	x := shared
	if r.alone {
		providerURL := c.provider.URL
		if r.unreachable {
			providerURL = nowhere
		}
		var err error
		x, err = startProcess(c.t, c.profile, providerURL, r.env...)
		c.must(err)
	}
	return x.open(c)
}

func (x *process) open(c *check) *api {
	a := &api{url: x.api.url}
	a.document = func() []byte {
		cmd := exec.Command(x.program, "policy", "openapi")
		cmd.Env = append(os.Environ(), x.env...)
		out, err := cmd.Output()
		c.must(err)
		return out
	}
	a.settle = func(key string) {
		body, err := json.Marshal(map[string]string{"idempotency_key": key})
		c.must(err)
		c.want(c.charge("", at("POST", "/admin/resolve"), withBody(string(body))), http.StatusOK)
	}
	a.crash = func(...func(*life)) {
		x.kill()
		x.providerURL = c.provider.URL
		c.must(x.start())
		a.url = x.api.url
	}
	a.stored = func() string {
		data, err := os.ReadFile(filepath.Join(x.dir, "once.db"))
		c.must(err)
		dump := string(data)
		for _, r := range x.records(c) { // the file has bytes in base64
			dump += fmt.Sprintf("%+v %s\n", r, r.Result)
		}
		return dump
	}
	a.fingerprints = func() (all []string) {
		for _, r := range x.records(c) {
			all = append(all, string(r.Fingerprint[:]))
		}
		return all
	}
	return a
}

// records ends the process and returns what is in its file.
func (x *process) records(c *check) (all []driver.Record) {
	x.kill()
	store, err := boltstore.Open(filepath.Join(x.dir, "once.db"))
	c.must(err)
	defer store.Close()
	for r, err := range store.All(c.t.Context()) {
		c.must(err)
		all = append(all, r)
	}
	return all
}
