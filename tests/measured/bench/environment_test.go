// SPDX-License-Identifier: Apache-2.0

//go:build linux && !race

package bench

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
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
	roots := filepath.Join(tb.TempDir(), "roots.pem")
	variables := []string{"AWS_ENDPOINT_URL_DYNAMODB=" + slowProxy(tb, roots), "SSL_CERT_FILE=" + roots, "ONCE_TABLE=" + table}
	if cold {
		variables = append(variables, "COLD=1")
	}
	began := time.Now()
	p := startProcess(tb, os.Args[0], variables...)
	defer p.end()
	p.wait()
	spentUntil := func(began time.Time, cpu time.Duration) cost {
		return cost{time.Since(began), kit.ProcessorTimeOf(p.cmd.Process.Pid) - cpu}
	}
	s.start = spentUntil(began, 0)
	if share < 1 {
		stop := make(chan struct{})
		defer close(stop)
		go throttle(p.cmd.Process, share, stop)
	}
	for i := range s.requests {
		if i > 0 {
			p.wait()
		}
		event, err := json.Marshal(newCharge())
		if err != nil {
			tb.Fatal(err)
		}
		began, cpu := time.Now(), kit.ProcessorTimeOf(p.cmd.Process.Pid)
		got := p.send(event)
		s.requests[i] = spentUntil(began, cpu)
		if !strings.HasPrefix(got, "response ") {
			tb.Fatalf("the function answered %s: %s", got, &p.stderr)
		}
	}
	if p.stderr.Len() > 0 {
		tb.Errorf("the function logged %s", &p.stderr)
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
const environmentLimit = 1.6 // the goal is 1.3; measured: 1.26 to 1.39, and 12 to 14 without the call

// The first request of an environment costs little more than the next, because Open has made
// a call while the function started.
func TestFirstRequestOfAnEnvironment(t *testing.T) {
	t.Logf("without the call, the first request takes %.2f of the next", firstToNext(t, true, 11))
	kit.Within(t, func() (string, bool) {
		part := firstToNext(t, false, pairs)
		return fmt.Sprintf("the first request takes %.2f of the next, the limit is %.2f", part, environmentLimit), part <= environmentLimit
	})
}

// firstToNext returns the processor time of the first request of n environments relative to
// that of the second: of their medians, because a collection of garbage in one of the two
// takes twice as long as a request.
func firstToNext(t testing.TB, cold bool, n int) float64 {
	t.Helper()
	var first, next []time.Duration
	for range n {
		s := environment(t, cold, 1)
		first, next = append(first, s.requests[0].cpu), append(next, s.requests[1].cpu)
	}
	return float64(kit.Median(t, first)) / float64(kit.Median(t, next))
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
