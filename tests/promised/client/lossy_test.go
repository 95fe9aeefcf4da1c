// SPDX-License-Identifier: Apache-2.0

// Package client tests idempotencyclient with the servers of this repository: what its
// page shows, the three profiles, and 10,000 requests through a server that loses
// requests and replies, while the programs that send them are killed.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdahttp"
)

// A process that the test starts is a client.
func TestMain(m *testing.M) {
	if plan := os.Getenv(envPlan); plan != "" {
		if err := sendAll(context.Background(), plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// body is the body of each request.
type body struct {
	Name int `json:"name"`
}

// guarded returns the service of the page http.md for a handler.
func guarded(t *testing.T, h http.HandlerFunc, optFns ...func(*lambdahttp.Options)) http.Handler {
	t.Helper()
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	optFns = append(optFns, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant })
	return lambdahttp.Middleware(guard, optFns...)(h)
}

func nameOf(r *http.Request) int {
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		return -1
	}
	return b.Name
}

func created(w http.ResponseWriter, name int) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":"ch_%d"}`, name)
}

// Two programs send 10,000 requests, 2,000 of which both send. They have one folder of
// pending keys. The server loses requests and replies, and both programs are killed and
// started again. Then each request had one effect, and one key.
func TestLossy(t *testing.T) {
	t.Parallel()
	const requests, shared, kills, life = 10_000, 2_000, 3, 800
	w := &world{tally: &kit.Tally{}, keys: map[int][]string{}, tries: map[int]int{}, refused: map[int]chan struct{}{}, effects: map[int]int{}, kills: map[int]chan struct{}{}}
	w.service = guarded(t, w.effect)
	web := httptest.NewServer(w)
	defer web.Close()

	dir := t.TempDir()
	plan := func(name string, from, to int) string {
		p := plan{URL: web.URL, Pending: filepath.Join(dir, "pending"), Done: filepath.Join(dir, name), From: from, To: to, Shared: (requests - shared) / 2, SharedEnd: (requests + shared) / 2}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var programs sync.WaitGroup
	for _, p := range []string{plan("upward", 0, (requests+shared)/2), plan("downward", requests-1, (requests-shared)/2-1)} {
		programs.Go(func() {
			for range kills {
				w.run(t, p, life)
			}
			w.run(t, p, 0)
		})
	}
	programs.Wait()
	t.Logf("%d requests:%s", requests, w.tally)

	for name := range requests {
		if len(w.keys[name]) != 1 {
			t.Fatalf("the request %d had %d keys", name, len(w.keys[name]))
		}
	}
	w.late.Wait() // each has ended, because a retry with its key was refused
	for name := range requests {
		if w.effects[name] != 1 {
			t.Fatalf("the request %d had %d effects", name, w.effects[name])
		}
	}
	if len(w.effects) != requests {
		t.Errorf("%d requests had an effect, want %d", len(w.effects), requests)
	}
	w.tally.Least(t, 300, "request lost", "reply lost", "response broken off", "503", "409 in progress", "replayed")
	w.tally.Least(t, 2*kills, "program killed")
	// Only the keys that a program must not forget are stored.
	files, err := filepath.Glob(filepath.Join(dir, "pending", strings.Repeat("?", 64)))
	if err != nil || len(files) != shared {
		t.Errorf("%d keys are stored, %v; want %d", len(files), err, shared)
	}
}

// world is the server, and the network in front of it.
type world struct {
	tally   *kit.Tally
	service http.Handler

	mu      sync.Mutex
	keys    map[int][]string      // that arrived, by the request's name
	tries   map[int]int           // that arrived
	refused map[int]chan struct{} // closed when a try got 409, while the first runs
	effects map[int]int
	arrived int
	kills   map[int]chan struct{} // closed when so many requests have arrived

	late sync.WaitGroup // requests whose connection was closed while they ran
}

// effect is the handler of the service.
func (w *world) effect(rw http.ResponseWriter, r *http.Request) {
	name := nameOf(r)
	if until, ok := r.Context().Value(untilRefused{}).(chan struct{}); ok {
		<-until // a retry comes while this request runs
	}
	w.mu.Lock()
	w.effects[name]++
	w.mu.Unlock()
	created(rw, name)
}

type untilRefused struct{}

// ServeHTTP passes a request to the service, or not, and its reply, or not. The
// request's name and the number of its try decide.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client was killed
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	var b body
	if err := json.Unmarshal(data, &b); err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	try, refused := w.arrive(b.Name, r.Header.Get("Idempotency-Key"))
	reply := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		w.service.ServeHTTP(rec, r.WithContext(context.WithoutCancel(r.Context())))
		if rec.Code == http.StatusConflict {
			w.tally.Add("409 in progress", 1)
			w.mu.Lock()
			defer w.mu.Unlock()
			if refused != nil && w.refused[b.Name] == refused {
				close(refused)
				w.refused[b.Name] = nil
			}
		}
		return rec
	}
	dice := fnv.New32a()
	fmt.Fprint(dice, b.Name, " ", try)
	fault := dice.Sum32() % 100
	if try > 4 {
		fault = 99
	}
	switch {
	case fault < 8:
		w.tally.Add("request lost", 1)
		panic(http.ErrAbortHandler)
	case fault < 16:
		w.tally.Add("reply lost", 1)
		reply()
		panic(http.ErrAbortHandler)
	case fault < 24:
		w.tally.Add("response broken off", 1)
		rec := reply()
		write(rw, rec, rec.Body.Len()-1)
		panic(http.ErrAbortHandler)
	case fault < 30:
		w.tally.Add("503", 1)
		rw.WriteHeader(http.StatusServiceUnavailable)
	case fault < 36 && try == 1:
		until := make(chan struct{})
		w.mu.Lock()
		w.refused[b.Name] = until
		w.mu.Unlock()
		ctx := context.WithValue(context.WithoutCancel(r.Context()), untilRefused{}, until)
		w.late.Go(func() { w.service.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx)) })
		panic(http.ErrAbortHandler)
	default:
		rec := reply()
		if rec.Header().Get("Idempotent-Replayed") != "" {
			w.tally.Add("replayed", 1)
		}
		write(rw, rec, rec.Body.Len())
	}
}

// arrive records a try.
func (w *world) arrive(name int, key string) (try int, refused chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.keys[name], key) {
		w.keys[name] = append(w.keys[name], key)
	}
	w.tries[name]++
	w.arrived++
	if kill := w.kills[w.arrived]; kill != nil {
		close(kill)
	}
	return w.tries[name], w.refused[name]
}

// write sends n bytes of the body of a reply.
func write(rw http.ResponseWriter, rec *httptest.ResponseRecorder, n int) {
	for name, values := range rec.Header() {
		rw.Header()[name] = values
	}
	rw.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	rw.WriteHeader(rec.Code)
	_, _ = rw.Write(rec.Body.Bytes()[:n])
	if n < rec.Body.Len() {
		_ = http.NewResponseController(rw).Flush()
	}
}

// run runs a program until it ends. It kills it, unless life is 0, when so many more
// requests have arrived.
func (w *world) run(t *testing.T, plan string, life int) {
	kill := make(chan struct{})
	if life > 0 {
		w.mu.Lock()
		at := w.arrived + life
		for w.kills[at] != nil { // for the other program
			at++
		}
		w.kills[at] = kill
		w.mu.Unlock()
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), envPlan+"="+plan), &said, &said
	engine.EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-kill:
		_ = cmd.Process.Kill()
		if err := <-ended; err != nil {
			w.tally.Add("program killed", 1)
		}
	case err := <-ended:
		if err != nil {
			t.Errorf("a program failed: %v\n%s", err, said.String())
		}
	}
}

// The environment of a program.
const envPlan = "ONCE_CLIENT_PLAN"

// plan is what a program has to do: the requests from From to before To, upward or
// downward. The requests of another program too are shared: their keys stay.
type plan struct {
	URL, Pending, Done string
	From, To           int
	Shared, SharedEnd  int
}

// sendAll is the program: it sends each request that it has not recorded as done,
// records it, and forgets its key.
func sendAll(ctx context.Context, text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
		o.Hosts, o.PendingDir, o.MinDelay = []string{"127.0.0.1"}, p.Pending, time.Millisecond
		o.Timeout, o.AttemptTimeout, o.MaxAttempts = kit.Patience, kit.Patience, 1000 // the machine may be busy
		o.Base = &http.Transport{MaxIdleConnsPerHost: workers}
	})
	if err != nil {
		return err
	}
	done, err := os.OpenFile(p.Done, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	before, err := io.ReadAll(done)
	if err != nil {
		return err
	}
	settled := map[int]bool{}
	for line := range strings.Lines(string(before)) {
		name, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		settled[name] = true
		if err := p.forget(transport, name); err != nil { // it was killed before it did
			return err
		}
	}
	names := make(chan int)
	failures := make(chan error, workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for name := range names {
				err := p.send(ctx, transport, name)
				if err == nil {
					_, err = fmt.Fprintf(done, "%d\n", name)
				}
				if err == nil {
					err = p.forget(transport, name)
				}
				if err != nil {
					failures <- fmt.Errorf("request %d: %w", name, err)
					return
				}
			}
		})
	}
	step := 1
	if p.To < p.From {
		step = -1
	}
	for name := p.From; name != p.To; name += step {
		if settled[name] {
			continue
		}
		select {
		case names <- name:
		case err := <-failures:
			return err
		}
	}
	close(names)
	group.Wait()
	close(failures)
	return errors.Join(<-failures, done.Close())
}

const workers = 48

// send sends a request and reads its response.
func (p *plan) send(ctx context.Context, transport http.RoundTripper, name int) error {
	ctx = idempotencyclient.WithName(ctx, fmt.Sprint("request ", name))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/charges", strings.NewReader(fmt.Sprintf(`{"name":%d}`, name)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := idempotencyclient.Check(resp); err != nil {
		return err
	}
	got, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf(`{"id":"ch_%d"}`, name); err != nil || string(got) != want {
		return fmt.Errorf("got %s, %v; want %s", got, err, want)
	}
	return nil
}

func (p *plan) forget(transport *idempotencyclient.Transport, name int) error {
	if p.Shared <= name && name < p.SharedEnd {
		return nil
	}
	return transport.Forget(fmt.Sprint("request ", name))
}
