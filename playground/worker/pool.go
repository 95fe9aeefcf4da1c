// SPDX-License-Identifier: Apache-2.0

// Package worker runs a Lambda handler in separate processes, as Lambda does: a
// process handles one request at a time, waits for the next one, and is killed if
// it outlives the deadline of a request. So you can kill a worker while it works,
// and see what happens to its request.
//
//	[Pool], in the parent:  a request ─► a worker that is idle, or a new one ─► its response
//	[Serve], in the worker: the handler, and a store that calls the parent's
//
// The file of package boltstore can be open in one process only, so the parent has
// it. A write that a worker has sent happens even if the worker dies, as with a
// database on another machine. The two exchange JSON over pipes: the parent calls the
// handler over the worker's standard input and output, and the worker calls the store
// over the next two file descriptors. A worker ends when its standard input does,
// even in the middle of a request, so no worker outlives the parent.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent/driver"
)

// maxWorkers limits the processes. Further requests wait for one.
const maxWorkers = 16

// Pool is the parent's side. It is safe for concurrent use.
type Pool struct {
	command func() *exec.Cmd
	store   func(pid int) driver.Store
	slots   chan struct{} // holds a value for each request that has a worker

	mu      sync.Mutex
	workers []*process
	closed  bool
}

// New returns a pool without workers. command returns the command that calls
// [Serve]; the pool sets its standard input and output and its files. store returns
// the store for the worker with a process id.
func New(command func() *exec.Cmd, store func(pid int) driver.Store) *Pool {
	return &Pool{command: command, store: store, slots: make(chan struct{}, maxWorkers)}
}

// Worker describes a running worker.
type Worker struct {
	PID   int                             `json:"pid"`
	Event *events.APIGatewayV2HTTPRequest `json:"-"` // the request that it handles; nil if it is idle
}

// Workers returns the running workers, the oldest first.
func (p *Pool) Workers() []Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Worker, len(p.workers))
	for i, w := range p.workers {
		list[i] = Worker{PID: w.pid(), Event: w.event}
	}
	return list
}

// Kill sends SIGKILL to the worker with a process id, and reports whether there was
// one.
func (p *Pool) Kill(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.workers, func(w *process) bool { return w.pid() == pid })
	return i >= 0 && p.workers[i].cmd.Process.Kill() == nil
}

// Close kills the workers. Requests that are running fail.
func (p *Pool) Close() {
	p.mu.Lock()
	workers := slices.Clone(p.workers) // the workers that end are removed from p.workers
	p.closed = true
	p.mu.Unlock()
	for _, w := range workers {
		w.cmd.Process.Kill()
		<-w.gone
	}
}

// Invoke handles a request in a worker. ctx needs a deadline. A worker that has not
// answered when ctx ends is killed. The error is the handler's, or says that the worker died.
func (p *Pool) Invoke(ctx context.Context, ev events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return events.APIGatewayV2HTTPResponse{}, ctx.Err()
	}
	in := invocation{Event: ev}
	in.Deadline, _ = ctx.Deadline()
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		in.RequestID = lc.AwsRequestID
	}
	for {
		w, err := p.take(&in.Event)
		if err != nil {
			return events.APIGatewayV2HTTPResponse{}, err
		}
		out, answered, err := w.invoke(ctx, in)
		p.put(w, answered)
		if !errors.Is(err, syscall.EPIPE) { // it died while it was idle, and has read nothing
			return out, err
		}
	}
}

// take returns an idle worker, or a new one, and marks it as busy.
func (p *Pool) take(ev *events.APIGatewayV2HTTPRequest) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("worker: the pool is closed")
	}
	for _, w := range p.workers {
		if w.event == nil {
			w.event = ev
			return w, nil
		}
	}
	w, err := p.start()
	if err != nil {
		return nil, fmt.Errorf("worker: a process could not be started: %w", err)
	}
	w.event = ev
	p.workers = append(p.workers, w)
	return w, nil
}

// put gives a worker back: it is idle if it has answered. Otherwise it is ended,
// because its answer would belong to no request.
func (p *Pool) put(w *process, answered bool) {
	if !answered {
		w.cmd.Process.Kill()
		<-w.gone
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.event = nil
}

// process is a worker.
type process struct {
	cmd      *exec.Cmd
	function *wire         // calls the handler
	gone     chan struct{} // closed when the process has ended

	event *events.APIGatewayV2HTTPRequest // guarded by Pool.mu
}

func (w *process) pid() int { return w.cmd.Process.Pid }

func (p *Pool) start() (w *process, err error) {
	var opened []*os.File
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			opened = append(opened, r, w)
		}
		return r, w
	}
	callsOut, callsIn := pipe()     // calls of the handler, to the worker
	answersOut, answersIn := pipe() // and its answers
	wantsOut, wantsIn := pipe()     // calls of the store, from the worker
	givesOut, givesIn := pipe()     // and its answers
	if err != nil {
		return nil, errors.Join(append(closeAll(opened), err)...)
	}
	cmd := p.command()
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = callsOut, answersIn, []*os.File{givesOut, wantsIn}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(append(closeAll(opened), err)...)
	}
	closeAll([]*os.File{callsOut, answersIn, givesOut, wantsIn}) // the worker has them
	w = &process{cmd: cmd, gone: make(chan struct{}), function: newWire(answersOut, callsIn)}
	service := &storeService{store: p.store(w.pid())}
	go serve(newWire(wantsOut, givesIn), service.answer)
	go func() {
		cmd.Wait() // how it ended does not matter
		p.forget(w)
		w.function.close()
		close(w.gone)
	}()
	return w, nil
}

func (p *Pool) forget(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = slices.DeleteFunc(p.workers, func(o *process) bool { return o == w })
}

func closeAll(files []*os.File) (errs []error) {
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errs
}

// endedError reports that a worker ended before it answered.
type endedError struct {
	pid int
	err error // of the connection to the worker
}

func (e *endedError) Error() string {
	return fmt.Sprintf("worker: process %d ended during the request: %v", e.pid, e.err)
}

func (e *endedError) Unwrap() error { return e.err }

// LogValue returns the text without the connection's error, for a log.
func (e *endedError) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("worker: process %d ended during the request", e.pid))
}

// invoke calls the handler in the worker, and kills the worker when ctx ends. It
// also reports whether the handler has answered, with a response or with an error.
func (w *process) invoke(ctx context.Context, in invocation) (r events.APIGatewayV2HTTPResponse, answered bool, err error) {
	stop := context.AfterFunc(ctx, func() { w.cmd.Process.Kill() })
	var out outcome
	err = w.function.call(in, &out)
	switch {
	case !stop():
		return r, false, ctx.Err()
	case err != nil:
		return r, false, &endedError{w.pid(), err}
	case out.Error != "":
		return r, true, errors.New(out.Error)
	}
	return out.Response, true, nil
}

// Handler is a Lambda handler for an HTTP API.
type Handler = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// Serve handles requests of the parent, which is a [Pool]. When the parent ends, the
// process ends at once, also in the middle of a request. makeHandler is called once,
// with the store. Serve ignores Ctrl-C, which a
// terminal sends to all processes: the parent waits for running requests.
func Serve(makeHandler func(driver.Store) (Handler, error)) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	h, err := makeHandler(&remoteStore{newWire(os.NewFile(3, "store"), os.NewFile(4, "store"))})
	if err != nil {
		return err
	}
	f, parent, next := &function{h}, newWire(os.Stdin, os.Stdout), make(chan invocation)
	go func() {
		for {
			var in invocation
			if err := parent.in.Decode(&in); err != nil {
				os.Exit(0) // the parent has ended, perhaps in the middle of a request
			}
			next <- in
		}
	}()
	for {
		if err := parent.out.Encode(f.invoke(<-next)); err != nil {
			return err
		}
	}
}

// invocation is a request to the handler.
type invocation struct {
	Event     events.APIGatewayV2HTTPRequest
	Deadline  time.Time
	RequestID string
}

// outcome is what the handler returned.
type outcome struct {
	Response events.APIGatewayV2HTTPResponse
	Error    string
}

type function struct{ handler Handler }

// invoke handles a request. A panic of the handler ends the process, as on Lambda.
func (f *function) invoke(in invocation) (out outcome) {
	ctx, cancel := context.WithDeadline(context.Background(), in.Deadline)
	defer cancel()
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: in.RequestID})
	var err error
	if out.Response, err = f.handler(ctx, in.Event); err != nil {
		out.Error = err.Error()
	}
	return out
}
