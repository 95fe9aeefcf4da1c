// SPDX-License-Identifier: Apache-2.0

// Package e2e starts the built charge example as a process, calls it over HTTP,
// kills it, starts it again, and counts the effects in the provider's ledger.
package e2e

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// binary is the built example.
var binary string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	// Most tests wait for a process or an engine.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "once-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// No test may depend on the length of a path, so the folders of all are long.
	long := filepath.Join(dir, strings.Repeat("long-", 40))
	if err := errors.Join(os.Mkdir(long, 0o700), os.Setenv("TMPDIR", long)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "playground")
	if err := engine.Build(binary, "./playground"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		for _, stop := range []func(){stopDatabase, stopCloud} {
			if stop != nil {
				stop()
			}
		}
	}()
	return m.Run()
}

// cloud returns the address of LocalStack, started on first use.
var cloud = sync.OnceValues(func() (endpoint string, err error) {
	endpoint, stopCloud, err = engine.LocalStack()
	return endpoint, err
})

// database returns the address of DynamoDB Local, started on first use.
var database = sync.OnceValues(func() (endpoint string, err error) {
	endpoint, stopDatabase, err = engine.DynamoDBLocal()
	return endpoint, err
})

var stopDatabase, stopCloud func()

const (
	aCharge = `{"amount":4200,"currency":"usd","customer":"cus_1"}`
	slow    = `{"amount":4200,"currency":"usd","customer":"cus_slow"}`
	key     = "8e03978e-40d5-43e8-bc93-6894a57f9324"
)

// The environment of an example that is killed during a charge, however busy the machine:
// the request has no time-out that matters, and the provider does not answer.
var long, stuck = "TIMEOUT=" + kit.Patience.String(), "SLOW=" + kit.Patience.String()

func tableName() string { return "once-" + strings.ToLower(rand.Text()) }

// dynamoEnv returns the environment for a table on the engine of this test run.
func dynamoEnv(t *testing.T, table string) []string {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"ONCE_TABLE=" + table, "AWS_ENDPOINT_URL=" + endpoint, "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// process is the running example.
type process struct {
	*engine.Process
	t   *testing.T
	url string
	env []string
}

// start starts the example on a free port, with data in dir, and waits for it.
func start(t *testing.T, dir string, env ...string) *process {
	t.Helper()
	return launch(t, exec.Command(binary), dir, env...)
}

// launch is start with another command. The process is the command's, or one
// that replaces it.
func launch(t *testing.T, cmd *exec.Cmd, dir string, env ...string) *process {
	t.Helper()
	p := &process{t: t, env: append([]string{"PORT=0", "DATA=" + dir}, env...)}
	cmd.Env = append(os.Environ(), p.env...)
	var err error
	if p.Process, p.url, err = engine.StartUntil(cmd, "listening on "); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() { p.End(syscall.SIGKILL) }

// restart kills the process and starts another one over the same data.
func (p *process) restart() *process {
	p.t.Helper()
	p.kill()
	return start(p.t, strings.TrimPrefix(p.env[1], "DATA="), p.env[2:]...)
}

// reply is an answer of the example.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // the connection broke
}

func (p *process) send(method, path, key, body string) reply {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
	return exchange(req)
}

func exchange(req *http.Request) reply {
	client := http.Client{Timeout: kit.Patience}
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(data), err}
}

func (p *process) post(key, body string) reply { return p.send("POST", "/charges", key, body) }

// want checks the status of an answer.
func (p *process) want(r reply, status int) {
	p.t.Helper()
	if r.err != nil || r.status != status {
		p.t.Fatalf("got %d (%v), want %d\n%v\n%s\nthe example's log:\n%s", r.status, r.err, status, r.header, r.body, p.Log())
	}
}

// wantProblem checks that an answer is a problem of a type.
func (p *process) wantProblem(r reply, status int, suffix string) {
	p.t.Helper()
	p.want(r, status)
	var problem struct{ Type, Title, Detail string }
	if err := json.Unmarshal([]byte(r.body), &problem); err != nil || !strings.HasSuffix(problem.Type, suffix) || problem.Title == "" || problem.Detail == "" {
		p.t.Fatalf("got problem %s (%v), want type %s with title and detail", r.body, err, suffix)
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		p.t.Fatalf("got content type %q", got)
	}
}

// charges returns how many charges the provider's ledger holds.
func (p *process) charges() int {
	p.t.Helper()
	r := p.send("GET", "/provider/charges", "", "")
	p.want(r, http.StatusOK)
	var ledger []json.RawMessage
	if err := json.Unmarshal([]byte(r.body), &ledger); err != nil {
		p.t.Fatalf("the ledger is not a JSON array: %v\n%s", err, r.body)
	}
	return len(ledger)
}

// book makes the provider charge under a key.
func (p *process) book(key string) {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.url+"/provider/charges", strings.NewReader(aCharge))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		p.t.Fatalf("the provider answered %s", resp.Status)
	}
}

func (p *process) wantCharges(want int) {
	p.t.Helper()
	if got := p.charges(); got != want {
		p.t.Fatalf("the ledger holds %d charges, want %d", got, want)
	}
}

// openFile opens the store of an example that does not run.
func openFile(t *testing.T, dir string) (s driver.Store, closed func()) {
	t.Helper()
	file, err := boltstore.Open(filepath.Join(dir, "once.db"))
	if err != nil {
		t.Fatal(err)
	}
	return file, func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}
