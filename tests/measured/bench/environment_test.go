// SPDX-License-Identifier: Apache-2.0

//go:build linux && !race

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// function is the Lambda function of an environment: this test binary, started again. It
// opens its table and guards a handler that makes no call.
func function() int {
	store, err := dynamostore.Open(context.Background(), func(o *dynamostore.Options) { o.NoWarmUp = os.Getenv("COLD") != "" })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lambda.Start(idempotent.Wrap(guard, byOrder, handle))
	return 0
}

// spent is what an environment took: until its start was over, and for each request.
type spent struct {
	start    cost
	requests [2]cost
}

// environment starts a function whose table is behind TLS and answers 2 ms later, sends it
// two new requests, and ends it. While it starts it has a whole core. A share below 1 is its part
// of a core afterwards: the process is stopped for the rest of each 20 ms.
func environment(tb testing.TB, cold bool, share float64) (s spent) {
	tb.Helper()
	asked, events, answered := make(chan struct{}), make(chan []byte), make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		select {
		case event := <-events:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(kit.Patience).UnixMilli()))
			w.Write(event)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/request/{outcome}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answered <- r.PathValue("outcome") + " " + string(body)
		w.WriteHeader(http.StatusAccepted)
	})
	api := httptest.NewServer(mux)
	defer api.Close()

	roots := filepath.Join(tb.TempDir(), "roots.pem")
	proxy := slowProxy(tb, roots)
	cmd := exec.CommandContext(tb.Context(), os.Args[0])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(api.URL, "http://"), "AWS_LAMBDA_FUNCTION_NAME=charge",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_ENDPOINT_URL_DYNAMODB=" + proxy, "SSL_CERT_FILE=" + roots, "ONCE_TABLE=" + table,
	}
	if cold {
		cmd.Env = append(cmd.Env, "COLD=1")
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	defer func() {
		cmd.Process.Kill()
		<-ended
	}()
	wait := func(c <-chan struct{}) {
		tb.Helper()
		select {
		case <-c:
		case <-ended:
			tb.Fatalf("the function ended: %s", &stderr)
		}
	}
	wait(asked)
	spentUntil := func(began time.Time, cpu time.Duration) cost {
		return cost{time.Since(began), kit.ProcessorTimeOf(cmd.Process.Pid) - cpu}
	}
	s.start = spentUntil(began, 0)
	if share < 1 {
		stop := make(chan struct{})
		defer close(stop)
		go throttle(cmd.Process, share, stop)
	}
	for i := range s.requests {
		if i > 0 {
			wait(asked)
		}
		event, err := json.Marshal(newCharge())
		if err != nil {
			tb.Fatal(err)
		}
		began, cpu := time.Now(), kit.ProcessorTimeOf(cmd.Process.Pid)
		events <- event
		select {
		case got := <-answered:
			s.requests[i] = spentUntil(began, cpu)
			if !strings.HasPrefix(got, "response ") {
				tb.Fatalf("the function answered %s: %s", got, &stderr)
			}
		case <-ended:
			tb.Fatalf("the function ended: %s", &stderr)
		}
	}
	if stderr.Len() > 0 {
		tb.Errorf("the function logged %s", &stderr)
	}
	return s
}

// slowProxy returns the address of a proxy for the engine, with TLS, whose certificate is
// in the file roots. It passes each request on after 2 ms.
func slowProxy(tb testing.TB, roots string) string {
	tb.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * time.Millisecond)
		pass.ServeHTTP(w, r)
	}))
	tb.Cleanup(proxy.Close)
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return proxy.URL
}

// throttle gives the process a share of a core.
func throttle(p *os.Process, share float64, stop <-chan struct{}) {
	const period = 20 * time.Millisecond
	for {
		p.Signal(syscall.SIGSTOP)
		time.Sleep(time.Duration((1 - share) * float64(period)))
		p.Signal(syscall.SIGCONT)
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(share * float64(period))):
		}
	}
}

// environmentLimit is the limit for the processor time of the first request of an
// environment, relative to the next one.
const environmentLimit = 1.3

// The first request of an environment costs little more than the next, because Open has made
// a call while the function started.
func TestFirstRequestOfAnEnvironment(t *testing.T) {
	kit.Within(t, func() (string, bool) {
		took := kit.Turns(21, func() spent { return environment(t, false, 1) }, func() spent { return environment(t, true, 1) })
		warm, cold := firstToNext(t, took[0]), firstToNext(t, took[1])
		return fmt.Sprintf("the first request takes %.2f of the next, the limit is %.2f; %.2f without the call", warm, environmentLimit, cold), warm <= environmentLimit
	})
}

// firstToNext returns the median of the first request's processor time relative to the second.
func firstToNext(t testing.TB, all []spent) float64 {
	t.Helper()
	var part []float64
	for _, s := range all {
		part = append(part, float64(s.requests[0].cpu)/float64(s.requests[1].cpu))
	}
	return kit.Median(t, part)
}

// The time of the start and of both requests, in milliseconds, with a fourteenth of a core,
// which a function of 128 MB has.
func BenchmarkEnvironment(b *testing.B) {
	for name, cold := range map[string]bool{"call=1": false, "call=0": true} {
		b.Run(name, func(b *testing.B) {
			var start, first, next []time.Duration
			for range b.N {
				s := environment(b, cold, 1.0/14)
				start, first, next = append(start, s.start.wall), append(first, s.requests[0].wall), append(next, s.requests[1].wall)
			}
			for unit, all := range map[string][]time.Duration{"start-ms": start, "first-ms": first, "next-ms": next} {
				b.ReportMetric(float64(kit.Median(b, all).Microseconds())/1000, unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
