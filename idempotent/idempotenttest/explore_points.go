// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing/iotest"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
)

// pointsOfStore returns the store, whose calls are points of the process that makes them.
func (w *World) pointsOfStore() driver.Store {
	return Intercept(w.store, func(ctx context.Context, c *StoreCall) {
		p, _ := w.process(ctx)
		do := func() error {
			c.Do(ctx)
			if c.Err == nil && c.Current == nil && (c.Op == driver.OpInsert || c.Op == driver.OpReplace) {
				w.wrote(p, c.Op, c.Record)
			}
			return c.Err
		}
		if c.Op == driver.OpListDue {
			if !p.settled { // or the lists are empty
				c.Do(ctx)
			}
			return
		}
		w.tries(c.Record.ID)
		if w.direct {
			_ = do()
			return
		}
		settles := c.Op == driver.OpReplace && c.Record.State != driver.StateInProgress
		pt := &pending{kind: storePoint, what: "store: " + string(c.Op), record: c.Record.ID, settles: settles, process: p, ctx: ctx, do: do}
		w.meet(pt)
		c.Err = pt.err
	})
}

// provided is the transport of the provider.
type provided struct{ world *World }

// RoundTrip makes the request at a point.
func (t *provided) RoundTrip(req *http.Request) (*http.Response, error) {
	w := t.world
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	p, foreign := w.process(req.Context())
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	if w.provider == nil {
		return nil, errors.New("idempotenttest: Explore: a request to " + req.URL.Host + " without a provider: call World.Provider")
	}
	var answer *http.Response
	kind, key := providerPoint, req.Header.Get("Idempotency-Key")
	if key != "" {
		kind = keyedPoint
	}
	pt := &pending{kind: kind, key: key, what: "provider: " + req.Method + " " + req.URL.Host + req.URL.Path, order: req.URL.RawQuery + string(body)}
	pt.process, pt.foreign, pt.ctx, pt.request, pt.host = p, foreign, req.Context(), req, req.URL.Host
	pt.do = func() error {
		arrived := req.Clone(context.Background())
		arrived.Body, arrived.RequestURI = io.NopCloser(bytes.NewReader(body)), req.URL.RequestURI()
		rec := httptest.NewRecorder()
		w.provider.ServeHTTP(rec, arrived)
		answer = rec.Result()
		return nil
	}
	h := w.meet(pt)
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil && h != refusedCall {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	switch {
	case pt.err != nil:
		return nil, pt.err
	case h == panics:
		panic("idempotenttest: a panic after " + pt.what)
	case h == cutReply:
		whole, _ := io.ReadAll(answer.Body) // of a recorder, without an error
		answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	case h == unavailable:
		answer = failure(http.StatusServiceUnavailable)
	case h == failedAfter:
		answer = failure(http.StatusInternalServerError)
	}
	answer.Request = req
	return answer, nil
}

func failure(status int) *http.Response {
	rec := httptest.NewRecorder()
	rec.WriteHeader(status)
	return rec.Result()
}

// Do makes call at a point, for an effect that is neither a request to the provider nor a
// statement of a [World.Connector]. The context shows which process calls. It returns the error of
// call, or that of a fault.
func (w *World) Do(ctx context.Context, name string, call func() error) error {
	p, foreign := w.process(ctx)
	kind := effectPoint
	switch {
	case strings.HasPrefix(name, sdkCall):
		kind = sdkPoint
	case strings.HasPrefix(name, sqlCall):
		kind = sqlPoint
	}
	pt := &pending{kind: kind, what: name, process: p, foreign: foreign, do: call, ctx: ctx}
	w.meet(pt)
	return pt.err
}

// meet waits until the driver lets the call go on, and makes it. It returns the harm. A
// call of the test itself, before the first process or while it counts, is no point.
func (w *World) meet(pt *pending) (h harm) {
	p := pt.process
	if p == nil || w.counting.Load() {
		pt.err = pt.do()
		return ""
	}
	pt.goOn = make(chan harm, 1)
	w.mu.Lock()
	if p.killed() {
		w.mu.Unlock()
		pt.err = errKilled
		return killedBefore
	}
	w.waiting = append(w.waiting, pt)
	effects := 0 // a guard can release its claim beside the answer
	if pt.kind != storePoint {
		effects = 1
		w.about(pt)
	}
	p.open += effects
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		p.open -= effects
		w.mu.Unlock()
	}()
	h = w.await(pt)
	pt.err = w.fate(pt, h).Meet(pt.do)
	return h
}

// fate returns what a harm does to a call.
func (w *World) fate(pt *pending, h harm) faults.Fate {
	switch h {
	case killedBefore, inFlight:
		return faults.Fate{Err: errKilled}
	case killedAfter:
		return faults.Fate{Arrives: 1, Err: errKilled}
	case refusedCall:
		return faults.Fate{Err: errRefused}
	case lostRequest:
		return faults.Fate{Err: errReply}
	case lostReply:
		return faults.Fate{Arrives: 1, Err: errReply}
	case lateReply:
		return faults.Fate{Arrives: 1, After: func() error { return w.park(pt) }}
	case sentTwice:
		return faults.Fate{Arrives: 2}
	case unavailable:
		return faults.Fate{}
	case hangs:
		return faults.Fate{Before: pt.hang}
	case hangsAfter:
		return faults.Fate{Arrives: 1, After: pt.hang}
	case panics:
		if !recovers() {
			pt.crashes = true
			return faults.Fate{Arrives: 1, Err: errKilled}
		}
	}
	return faults.Fate{Arrives: 1}
}

// recovers reports whether a panic of this goroutine is recovered: by the driver, or by the
// toolkit in a separate goroutine. In a goroutine of the handler it ends the process.
func recovers() bool {
	calls := make([]uintptr, 1<<10)
	goroutine := runtime.FuncForPC(calls[runtime.Callers(1, calls)-2]) // the outermost one is runtime.goexit
	began := runtime.FuncForPC(goroutine.Entry()).Name()               // and not what is inlined there
	toolkit := strings.TrimSuffix(reflect.TypeFor[World]().PkgPath(), "idempotent/idempotenttest")
	return slices.ContainsFunc([]string{"idempotent/idempotenttest.(*World)", "idempotent.", "lambdabatch."}, func(name string) bool {
		return strings.HasPrefix(began, toolkit+name)
	})
}

// hang waits until the context of a call ends, or its process.
func (pt *pending) hang() error {
	select {
	case <-pt.ctx.Done():
		if pt.kind != sqlPoint {
			time.Sleep(time.Millisecond) // behind all that ends at the same moment
		}
		return pt.ctx.Err()
	case <-pt.process.dead:
		return errKilled
	}
}

// park waits after a call until the driver lets the process continue.
func (w *World) park(pt *pending) error {
	after := &pending{kind: pt.kind, what: pt.what, process: pt.process, goOn: make(chan harm, 1), ctx: pt.ctx, late: true}
	after.do = func() error { return nil }
	w.mu.Lock()
	w.waiting = append(w.waiting, after)
	w.mu.Unlock()
	return w.fate(after, w.await(after)).Meet(after.do)
}

// await waits until the driver lets a call go on, and returns the harm, or until its process
// is killed. A statement of database/sql also waits no longer than until its context ends:
// database/sql then waits for it with a mutex, which would stop the clock.
func (w *World) await(pt *pending) harm {
	var ends <-chan struct{}
	if pt.kind == sqlPoint {
		ends = pt.ctx.Done()
	}
	w.signal()
	select {
	case h := <-pt.goOn:
		return h
	case <-ends:
		w.mu.Lock()
		w.waiting = slices.DeleteFunc(w.waiting, func(o *pending) bool { return o == pt })
		w.mu.Unlock()
		return hangs
	case <-pt.process.dead:
		return killedBefore
	}
}

var (
	errKilled  = errors.New("the process was killed")
	errReply   = os.NewSyscallError("read", syscall.ECONNRESET)
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
)
