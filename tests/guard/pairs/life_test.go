// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// life is what a key goes through, until its record has expired: a first request with a
// harm at one of its calls, retries, another request with the key, and evidence. The clock
// stands still unless a life advances it, so that a life can be on a real engine, and takes
// as long as its calls.
type life struct {
	*world
	store driver.Store
	clock idempotenttest.Clock
}

// harm is what happens to a process at one of its calls.
type harm string

const (
	killedBefore harm = "killed before"
	killedAfter  harm = "killed after"
	late         harm = "late"
)

// mark is what a life does to its first process.
type mark struct {
	harm harm
	call int // from 1; 0: none
}

func (m mark) String() string { return fmt.Sprint(m.harm, " call ", m.call) }

// process is one that handles a request.
type process struct {
	mark
	calls   atomic.Int32
	dead    atomic.Bool
	stopped chan struct{} // closed when it is late
	goOn    chan struct{} // closed when it may continue
}

type processKey struct{}

// errKilled is what a killed process gets for each call, which has no effect.
var errKilled = errors.New("the process is dead")

func point(ctx context.Context, _ string, call func() error) error {
	p, _ := ctx.Value(processKey{}).(*process)
	if p.dead.Load() {
		return errKilled
	}
	if int(p.calls.Add(1)) == p.call {
		switch p.harm {
		case killedBefore:
			p.dead.Store(true)
			return errKilled
		case killedAfter:
			err := call()
			p.dead.Store(true)
			return errors.Join(errKilled, err)
		case late:
			close(p.stopped)
			<-p.goOn
		}
	}
	return call()
}

// newLife returns a life on tables of that name on DynamoDB, or in memory.
func (r row) newLife(client dynamostore.Client, name string) (*life, error) {
	l := &life{world: r.world()}
	l.book, l.point = name+"-orders", point
	l.http = &http.Client{Transport: &wire{l.world}}
	if r["store"] == "memory" {
		store := memstore.New()
		l.store = idempotenttest.Intercept(store, func(ctx context.Context, c *idempotenttest.StoreCall) {
			_ = point(ctx, "", func() error { c.Do(ctx); return c.Err })
		})
		return l, nil
	}
	l.db = dynamotest.Intercept(client, func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "Query" || c.Op == "Scan" || ctx.Value(processKey{}) == nil {
			c.Do(ctx)
			return
		}
		if err := point(ctx, c.Op, func() error { c.Do(ctx); return c.Err }); errors.Is(err, errKilled) {
			c.Out, c.Err = nil, err
		}
	})
	store, err := dynamostore.New(l.db, name, l.layout(name+"-chunks"))
	l.store = store
	return l, err
}

// wire carries the requests to the bank.
type wire struct{ *world }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	err := w.point(r.Context(), "bank", func() error {
		w.bank.ServeHTTP(answer, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// begin starts a process that handles one of the orders.
func (l *life) begin(ctx context.Context, i int, m mark) (p *process, ended chan answer) {
	p, ended = &process{mark: m, stopped: make(chan struct{}), goOn: make(chan struct{})}, make(chan answer, 1)
	handle := l.send(l.newGuard())
	ctx = l.clock.Invocation(context.WithValue(ctx, processKey{}, p), 30*time.Second)
	go func() {
		a := handle(ctx, i)
		if p.dead.Load() {
			a = answer{text: "killed"}
		}
		ended <- a
	}()
	return p, ended
}

// request handles one of the orders in a process that nothing happens to.
func (l *life) request(ctx context.Context, i int) answer {
	_, ended := l.begin(ctx, i, mark{})
	return <-ended
}

func (l *life) newGuard() *idempotent.Guard {
	g, err := idempotent.New(l.store, l.guard, func(o *idempotent.Options) {
		o.Now, o.Logger = l.clock.Now, slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	if err != nil {
		panic(err)
	}
	return g
}

func (l *life) reconcile(ctx context.Context) error {
	if l.row["resolver"] == "none" {
		return nil
	}
	ctx = l.clock.Invocation(context.WithValue(ctx, processKey{}, &process{}), 5*time.Minute)
	_, err := l.reconciler(l.newGuard())(ctx)
	return err
}

// run plays a life, and returns what is wrong.
func (l *life) run(ctx context.Context, m mark) (calls int, wrong error) {
	l.front()
	fail := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	first, ended := l.begin(ctx, 0, m)
	answers := []answer{}
	select {
	case a := <-ended:
		answers = append(answers, a)
	case <-first.stopped:
		answers = append(answers, l.request(ctx, 0))
		close(first.goOn)
		answers = append(answers, <-ended)
	}
	calls = int(first.calls.Load())
	claimed := m.call != 1 || m.harm != killedBefore
	answers = append(answers, l.request(ctx, 0))
	if a := l.request(ctx, 1); a.ok && claimed {
		fail("another request with the key got %+v", a)
	}
	for _, pause := range []time.Duration{time.Minute, 2 * time.Hour, 2 * time.Hour} {
		l.clock.Advance(pause)
		if err := l.reconcile(ctx); err != nil {
			fail("the reconciler: %w", err)
		}
		answers = append(answers, l.request(ctx, 0))
	}
	last := answers[len(answers)-1]
	promised, effects := l.row.promise(), l.effects()
	if effects > 1 && promised != atLeastOnce || effects == 0 && last.ok {
		fail("the effect happened %d times", effects)
	}
	if promised == exactlyOnce && !last.ok {
		fail("the last retry got %+v", last)
	}
	for _, a := range answers {
		if a.ok && a != last && promised != atLeastOnce {
			fail("a caller got %+v, and the last retry %+v", a, last)
		}
	}
	// The record has expired, unless it is unknown and is kept: then the key is new.
	l.clock.Advance(400 * 24 * time.Hour)
	runs, free := l.runs.Load(), last.ok || l.row["unresolved"] == "48 h"
	if a := l.request(ctx, 1); a.ok != free || (l.runs.Load() > runs) != free {
		fail("after the retention another request with the key got %+v, and ran %d times; the last retry had got %+v", a, l.runs.Load()-runs, last)
	}
	return calls, wrong
}
