// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"archive/zip"
	"bytes"
	"context"
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
	startLimit = 0.8     // relative to the time until the bare function is ready, which calls nothing
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
	asked, answered := make(chan time.Time, 1), make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- time.Now():
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request-1")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
			fmt.Fprint(w, `{"version": "2.0", "rawPath": "/charges", "headers": {"idempotency-key": "\"key-1\""},
				"requestContext": {"http": {"method": "POST", "path": "/charges"}}, "body": "not a charge"}`)
		default: // there is only one event; the process is ended below
			<-r.Context().Done()
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/request-1/response", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answered <- string(body)
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }) // DynamoDB: Open makes a call
	api := httptest.NewServer(mux)
	defer api.Close()

	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bootstrap)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(api.URL, "http://"), "AWS_LAMBDA_FUNCTION_NAME=charge", "_HANDLER=bootstrap",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_ENDPOINT_URL_DYNAMODB=" + api.URL,
		"ONCE_TABLE=records", "ONCE_METRICS_NAMESPACE=Charges", "PROVIDER_URL=http://127.0.0.1:1",
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var body string
	select {
	case body = <-answered:
	case <-ctx.Done():
	}
	cancel()
	cmd.Wait()
	if !strings.Contains(body, `"statusCode":400`) {
		t.Fatalf("the function answered %q\n%s", body, &stderr)
	}
	return (<-asked).Sub(began)
}
