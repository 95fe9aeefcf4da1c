// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// The limits of what the toolkit adds to a function.
const (
	sizeLimit  = 700_000 // bytes of the archive
	startLimit = 0.5     // relative to the time until the bare function is ready, which calls nothing
)

const (
	bareFunction   = "tests/measured/bench/function/bare" // without the toolkit
	onceFunction   = "tests/measured/bench/function/once" // the same with it
	chargeFunction = "examples/charge-lambda/cmd/lambda"  // which also has telemetry
)

func archive(t *testing.T, pkg, arch string) []byte {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./bundle", "-arch", arch, "-o", dir, "program=github.com/once-lambda/once/"+pkg)
	cmd.Dir = filepath.Join(engine.Root(), "examples/charge-lambda/stack")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	zipped, err := os.ReadFile(filepath.Join(dir, "program-"+arch+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	return zipped
}

func TestSize(t *testing.T) {
	for _, arch := range []string{"arm64", "amd64"} {
		without, with := len(archive(t, bareFunction, arch)), len(archive(t, onceFunction, arch))
		t.Logf("%s: %.2f MB against %.2f MB, %.2f MB more; the limit is %.2f", arch,
			float64(with)/1e6, float64(without)/1e6, float64(with-without)/1e6, sizeLimit/1e6)
		if with-without > sizeLimit {
			t.Errorf("%s: %d bytes more", arch, with-without)
		}
		if with <= without {
			t.Errorf("%s: nothing was measured", arch)
		}
	}
}

// The time from the start of the process until the function asks for its first
// event: Lambda's log calls it init duration.
func TestStart(t *testing.T) {
	const starts = 41 // of each
	programs := []string{bareFunction, onceFunction, chargeFunction}
	ops := make([]func() time.Duration, len(programs))
	for i, pkg := range programs {
		bootstrap := unpack(t, archive(t, pkg, runtime.GOARCH))
		ops[i] = func() time.Duration { return start(t, bootstrap) }
		ops[i]() // in the page cache after this
	}
	kit.Within(t, func() (string, bool) {
		took := kit.Turns(starts, ops...)
		bare := kit.Median(t, took[0])
		result, within := fmt.Sprintf("medians of %d starts; the limit is %.2f more; %s takes %s", starts, startLimit, programs[0], bare), true
		for i, pkg := range programs[1:] {
			more := float64(kit.Median(t, took[i+1]))/float64(bare) - 1
			result += fmt.Sprintf(", %s %.2f more", pkg, more)
			within = within && more <= startLimit
		}
		return result, within
	})
}

func unpack(t *testing.T, zipped []byte) string {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		t.Fatal(err)
	}
	program, err := r.Open("bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	code, err := io.ReadAll(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bootstrap")
	if err := os.WriteFile(path, code, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts a bootstrap, sends it one event, which is an invalid charge, and
// ends it. It returns how long it took until the bootstrap asked for the event.
func start(t *testing.T, bootstrap string) time.Duration {
	t.Helper()
	database := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })) // Open makes a call
	defer database.Close()
	began := time.Now()
	p := startProcess(t, bootstrap, "AWS_ENDPOINT_URL_DYNAMODB="+database.URL, "ONCE_TABLE=records", "ONCE_METRICS_NAMESPACE=Charges", "PROVIDER_URL=http://127.0.0.1:1")
	defer p.end()
	p.wait()
	took := time.Since(began)
	body := p.send([]byte(`{"version": "2.0", "rawPath": "/charges", "headers": {"idempotency-key": "\"key-1\""},
		"requestContext": {"http": {"method": "POST", "path": "/charges"}}, "body": "not a charge"}`))
	if !strings.Contains(body, `"statusCode":400`) {
		t.Fatalf("the function answered %q\n%s", body, &p.stderr)
	}
	return took
}

// process is a function in a process with a runtime interface of Lambda, as in an
// environment.
type process struct {
	tb       testing.TB
	cmd      *exec.Cmd
	api      *httptest.Server
	stderr   bytes.Buffer
	asked    chan struct{} // the function asks for an event
	events   chan []byte
	answered chan string
	ended    chan struct{}
}

// startProcess starts a program with these variables.
func startProcess(tb testing.TB, program string, variables ...string) *process {
	tb.Helper()
	p := &process{tb: tb, asked: make(chan struct{}), events: make(chan []byte), answered: make(chan string), ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.asked <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		select {
		case event := <-p.events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(kit.Patience).UnixMilli()))
			w.Write(event)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/request/{outcome}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.answered <- r.PathValue("outcome") + " " + string(body)
		w.WriteHeader(http.StatusAccepted)
	})
	p.api = httptest.NewServer(mux)
	p.cmd = exec.CommandContext(tb.Context(), program)
	p.cmd.Stderr = &p.stderr
	p.cmd.Env = append(variables, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(p.api.URL, "http://"), "AWS_LAMBDA_FUNCTION_NAME=charge",
		"_HANDLER=bootstrap", "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// wait waits until the function asks for an event.
func (p *process) wait() {
	p.tb.Helper()
	select {
	case <-p.asked:
	case <-p.ended:
		p.tb.Fatalf("the function ended: %s", &p.stderr)
	}
}

// send gives the function the event that it asks for, and returns what it answers.
func (p *process) send(event []byte) string {
	p.tb.Helper()
	p.events <- event
	select {
	case body := <-p.answered:
		return body
	case <-p.ended:
		p.tb.Fatalf("the function ended: %s", &p.stderr)
		return ""
	}
}

// end kills the process.
func (p *process) end() {
	p.cmd.Process.Kill()
	<-p.ended
	p.api.Close()
}
