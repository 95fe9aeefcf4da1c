// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// The workers of these tests are this program, started again.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[1] {
	case "worker":
		err = Serve(newHandler)
	case "parent":
		err = beParent()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beParent prints the process id of a worker whose request does not end.
func beParent() error {
	store := memstore.New()
	p := New(func() *exec.Cmd { return exec.Command(os.Args[0], "worker") }, func(int) driver.Store { return store })
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	go func() {
		for {
			if _, err := store.Get(ctx, aRecord.ID); err == nil {
				break // the handler works
			}
			<-time.After(time.Millisecond)
		}
		fmt.Println(p.Workers()[0].PID)
	}()
	_, err := p.Invoke(ctx, events.APIGatewayV2HTTPRequest{RawPath: "/hang"})
	return err
}

// newHandler returns a handler that does what the path of its request says. Its
// responses have the process id as their body.
func newHandler(store driver.Store) (Handler, error) {
	return func(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		var r events.APIGatewayV2HTTPResponse
		r.StatusCode, r.Body = 200, strconv.Itoa(os.Getpid())
		switch ev.RawPath {
		case "/write":
			_, err := store.Insert(ctx, aRecord, time.Now())
			return r, err
		case "/hang": // also when its context has ended
			if _, err := store.Insert(ctx, aRecord, time.Now()); err != nil {
				return r, err
			}
			select {}
		case "/fail":
			return r, errors.New("the handler failed")
		case "/panic":
			panic("the handler panicked")
		case "/context":
			lc, _ := lambdacontext.FromContext(ctx)
			end, _ := ctx.Deadline()
			r.Body = lc.AwsRequestID + " " + end.UTC().Format(time.RFC3339Nano)
		}
		return r, nil
	}, nil
}

var aRecord = driver.Record{ID: idempotent.Key{Operation: "work", Scope: "tenant", ID: "1"}.RecordID(), State: driver.StateInProgress, Attempt: 1}

func newPool(t *testing.T, store driver.Store) *Pool {
	t.Helper()
	p := New(func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "worker")
		cmd.Stderr = io.Discard
		return cmd
	}, func(int) driver.Store { return store })
	t.Cleanup(p.Close)
	return p
}

func invoke(t *testing.T, p *Pool, path string) (body string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	r, err := p.Invoke(ctx, events.APIGatewayV2HTTPRequest{RawPath: path})
	return r.Body, err
}

// One worker handles one request after the other, also after an error.
func TestWorkerIsUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t, memstore.New())
	first, err := invoke(t, p, "/")
	if err != nil || first == strconv.Itoa(os.Getpid()) {
		t.Fatalf("process %s, %v", first, err)
	}
	if _, err := invoke(t, p, "/fail"); err == nil || err.Error() != "the handler failed" {
		t.Errorf("got error %v", err)
	}
	if second, err := invoke(t, p, "/"); err != nil || second != first {
		t.Errorf("process %s (%v), want %s again", second, err, first)
	}
}

func TestContextArrives(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "the-id"}), end)
	defer cancel()
	r, err := newPool(t, memstore.New()).Invoke(ctx, events.APIGatewayV2HTTPRequest{RawPath: "/context"})
	if want := "the-id " + end.UTC().Format(time.RFC3339Nano); err != nil || r.Body != want {
		t.Errorf("got %q, %v, want %q", r.Body, err, want)
	}
}

// hang starts a request that does not end, waits until its worker has written to
// the store, and returns the worker.
func hang(t *testing.T, ctx context.Context, p *Pool, store driver.Store) (pid int, ended <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := p.Invoke(ctx, events.APIGatewayV2HTTPRequest{RawPath: "/hang"})
		done <- err
	}()
	for {
		if _, err := store.Get(t.Context(), aRecord.ID); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("the request ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	for _, w := range p.Workers() {
		if w.Event != nil && w.Event.RawPath == "/hang" {
			return w.PID, done
		}
	}
	t.Fatal("no worker has the request")
	return 0, nil
}

// A killed worker leaves what it has written, and its request fails. Another worker
// handles other requests, before and after.
func TestKill(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	p := newPool(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	pid, ended := hang(t, ctx, p, store)
	other, err := invoke(t, p, "/")
	if err != nil || other == strconv.Itoa(pid) {
		t.Fatalf("process %s, %v", other, err)
	}
	if !p.Kill(pid) {
		t.Fatal("no such worker")
	}
	if err := <-ended; err == nil || ctx.Err() != nil {
		t.Errorf("the request of a killed worker got %v", err)
	}
	if r, err := store.Get(t.Context(), aRecord.ID); err != nil || r.State != driver.StateInProgress {
		t.Errorf("the record is %v, %v", r, err)
	}
	if again, err := invoke(t, p, "/"); err != nil || again != other {
		t.Errorf("process %s, %v", again, err)
	}
	if p.Kill(pid) {
		t.Error("the worker is still listed")
	}
}

// A worker that is killed while it is idle costs no request.
func TestKillIdle(t *testing.T) {
	t.Parallel()
	p := newPool(t, memstore.New())
	for range 20 {
		first, err := invoke(t, p, "/")
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(first)
		p.Kill(pid)
		if second, err := invoke(t, p, "/"); err == nil && second == first {
			t.Fatal("a killed worker answered")
		} else if err != nil {
			t.Logf("the worker died with the request: %v", err) // it had not ended yet
		}
	}
}

// Nothing outlives its deadline.
func TestDeadlineKills(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	p := newPool(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	pid, ended := hang(t, ctx, p, store)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	if p.Kill(pid) {
		t.Error("the worker lives")
	}
}

// A worker ends with its parent, also in the middle of a request.
func TestParentIsKilled(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0], "parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	kill := errors.Join(parent.Process.Kill(), err)
	parent.Wait() // it was killed
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(kill, err); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	kit.Eventually(t, fmt.Sprintf("worker %d ends with its parent", pid), func() bool { return !alive(pid) })
}

// alive reports whether a process runs. One that has ended may still be listed.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestPanicEndsTheWorker(t *testing.T) {
	t.Parallel()
	p := newPool(t, memstore.New())
	_, err := invoke(t, p, "/panic")
	if ended, ok := errors.AsType[*endedError](err); !ok || !regexp.MustCompile(`^worker: process \d+ ended during the request$`).MatchString(ended.LogValue().String()) {
		t.Errorf("got %v, want an error with a text for logs that names the process", err)
	}
	if _, err := invoke(t, p, "/write"); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	p := newPool(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	_, ended := hang(t, ctx, p, store)
	if _, err := invoke(t, p, "/"); err != nil { // in a second worker
		t.Error(err)
	}
	p.Close()
	if err := <-ended; err == nil {
		t.Error("a request in a closed pool succeeded")
	}
	if _, err := invoke(t, p, "/"); err == nil {
		t.Error("a closed pool has handled a request")
	}
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	p := New(func() *exec.Cmd { return exec.Command("/no/such/program") }, func(int) driver.Store { return memstore.New() })
	if _, err := invoke(t, p, "/"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

// The store of a worker keeps the contract of stores.
func TestStore(t *testing.T) {
	t.Parallel()
	idempotenttest.RunStore(t, idempotenttest.Fixture{Open: func(t testing.TB) driver.Store { return connect(t, memstore.New()) }})
}

func connect(t testing.TB, store driver.Store) driver.Store {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	callsOut, callsIn := pipe()
	answersOut, answersIn := pipe()
	go serve(newWire(callsOut, answersIn), (&storeService{store: store}).answer)
	near := newWire(answersOut, callsIn)
	t.Cleanup(func() { near.close() })
	return &remoteStore{near}
}

// failing returns a store whose calls fail.
func failing(err error) driver.Store {
	return idempotenttest.Intercept(nil, func(_ context.Context, c *idempotenttest.StoreCall) { c.Err = err })
}

func TestErrorsArrive(t *testing.T) {
	t.Parallel()
	for _, want := range []error{driver.ErrNoRecord, driver.ErrTooLarge} {
		if _, err := connect(t, failing(fmt.Errorf("wrapped: %w", want))).Get(t.Context(), aRecord.ID); !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	}
	if _, err := connect(t, failing(errors.New("on fire"))).Get(t.Context(), aRecord.ID); err == nil || err.Error() != "on fire" {
		t.Errorf("got error %v", err)
	}
}
