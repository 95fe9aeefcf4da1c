// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// functionTimeout is the time-out of the function.
const functionTimeout = 30 * time.Second

// pauses are the times between the retries of the client, after the end of the lease.
var pauses = []time.Duration{time.Minute, 2 * time.Minute, 20 * time.Minute, 2 * time.Hour}

// untilFinish is more points than a process has: a late process waits for World.finish.
const untilFinish = 1 << 20

// play sends the request, retries it, and reconciles, until hours have passed.
func (w *World) play() {
	w.began = time.Now()
	if w.handler == nil {
		w.breaks(atSetup, "there is no handler: add one with idempotenttest.Handle or World.Process")
		return
	}
	w.invoke("request", w.handler)
	w.invoke("retry", w.handler)
	w.invokeOthers()
	if !w.outlives {
		w.finish()
	}
	for _, pause := range pauses {
		time.Sleep(pause)
		w.reconcile()
		w.invoke("retry", w.handler)
		w.finish()
	}
	w.calm = true
	for range 2 { // a run may first mark a record as unknown
		time.Sleep(2 * time.Hour)
		w.reconcile()
	}
	w.invokeOthers()
	w.invoke("last retry", w.handler)
	w.judgeEnd()
	w.invokeOtherKeys()
	for _, p := range w.procs {
		w.kill(p, "")
	}
}

// invokeOthers sends the other requests with the key, which is in use.
func (w *World) invokeOthers() {
	if len(w.claimed) > 0 {
		for _, other := range w.others {
			w.invoke(otherRequest, other)
		}
	}
}

// invokeOtherKeys sends each request with another key, and its retry.
func (w *World) invokeOtherKeys() {
	for _, req := range w.elseKeys {
		var start func(*Process) func(context.Context) (any, error)
		ok := false
		if w.bind != nil { // the handler is of Handle
			start, ok = w.bind(req)
		}
		if !ok {
			w.breaks(atSetup, fmt.Sprintf("World.OtherKey got a %T: want the type of the request of idempotenttest.Handle", req))
			return
		}
		w.more++
		w.first, w.before = nil, w.counts()
		for range 2 {
			w.invoke(otherKeyed, start)
		}
	}
}

func (w *World) reconcile() {
	if w.recon == nil {
		return
	}
	settled := w.allSettled()
	w.invoke("reconciler", func(p *Process) func(context.Context) (any, error) {
		p.settled = settled
		run := ofEnvironment(p, func() func(context.Context) (idempotent.Report, error) { return w.recon(p.Guard) })
		return func(ctx context.Context) (any, error) {
			report, err := run(ctx)
			return report.String(), err
		}
	})
}

// invoke starts a process, and drives it until it has ended, was killed, or is late.
func (w *World) invoke(what string, start func(*Process) func(context.Context) (any, error)) {
	if w.broken != "" {
		return
	}
	env := w.environmentFor(what)
	p := &Process{
		Guard: env.guard, env: env, w: w, n: len(w.procs) + 1, what: what, deadline: time.Now().Add(functionTimeout),
		ended: make(chan struct{}), dead: make(chan struct{}),
		last: map[driver.RecordID]driver.Record{}, sent: map[driver.RecordID]bool{},
	}
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), processKey{}, p), p.deadline)
	w.mu.Lock()
	w.procs, w.current = append(w.procs, p), p
	w.mu.Unlock()
	began := len(w.lines)
	go func() {
		defer cancel()
		defer func() {
			p.panicked = recover()
			close(p.ended)
			w.signal()
		}()
		p.answer, p.err = start(p)(ctx)
	}()
	w.drive(p)
	if p.met == 0 && p.what == "reconciler" && p.err == nil {
		w.lines = w.lines[:began] // it found nothing
	}
}

// environmentFor returns the idle execution environment of that kind, or a new one.
func (w *World) environmentFor(what string) *environment {
	kind := environmentKind(what)
	if env := w.idle[kind]; env != nil {
		delete(w.idle, kind)
		return env
	}
	guard, err := idempotent.New(w.pointsOfStore(), slices.Concat(
		[]func(*idempotent.Options){func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) }}, w.options,
		[]func(*idempotent.Options){func(o *idempotent.Options) { o.Observer = event.ObserverFunc(w.observe) }})...)
	if err != nil {
		panic(err)
	}
	return &environment{guard: guard}
}

// environmentKind returns which processes share execution environments: those of a function.
func environmentKind(what string) string {
	if what == "reconciler" {
		return what
	}
	return "request"
}

// drive lets points go on, one at a time, until p has ended, was killed or is late.
func (w *World) drive(p *Process) {
	for w.broken == "" {
		w.wait()
		if w.over(p) {
			return
		}
		if pt := w.next(p); pt != nil {
			w.step(pt)
			continue
		}
		first := w.firstDeadline(p)
		select {
		case <-w.wake:
		case <-time.After(time.Until(first.deadline) - time.Millisecond): // before its context ends
			w.kill(first, "killed at the deadline")
			w.judgeTime(first, time.Now())
		}
	}
}

// wait waits until every goroutine waits.
func (w *World) wait() {
	w.watch.steps.Add(1)
	synctest.Wait()
}

// firstDeadline returns the process that is killed next: p, or a late one that began before it.
func (w *World) firstDeadline(p *Process) *Process {
	if w.outlives {
		return p
	}
	return w.procs[slices.IndexFunc(w.procs, func(q *Process) bool { return !q.judged })]
}

// over reports whether nothing more is to be waited for from p, and judges its answer.
func (w *World) over(p *Process) bool {
	switch {
	case p.judged:
		return true
	case !isClosed(p.ended):
		return p.waits != 0
	case p.panicked != nil:
		w.kill(p, fmt.Sprintf("panics: %v", p.panicked))
		if len(w.asked) == 0 {
			w.breaks(atSetup, fmt.Sprintf("the process panicked: %v", p.panicked), wrongRequest)
		}
	default:
		p.judged = true
		w.judgeTime(p, time.Now())
		w.idle[environmentKind(p.what)] = p.env
		w.fact(afterReturn, p.open > 0)
		w.answered(p)
		w.checkAll()
	}
	return true
}

// next returns the call that goes on next: of a late process, if its time has come, or
// else of p and of those before it that are not late.
func (w *World) next(p *Process) *pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.waiting, func(a, b *pending) int {
		return cmp.Or(a.process.n-b.process.n, strings.Compare(a.what, b.what), cmp.Compare(a.record, b.record), strings.Compare(a.order, b.order))
	})
	for i, pt := range w.waiting {
		if p.met+1 < pt.process.waits {
			continue
		}
		w.waiting = slices.Delete(w.waiting, i, i+1)
		// The guard stores the outcome while an effect of the handler has not ended.
		w.fact(afterReturn, pt.kind != storePoint && slices.ContainsFunc(w.waiting, func(o *pending) bool {
			return o.process == pt.process && o.settles && o.record == pt.record
		}))
		return pt
	}
	return nil
}

// step lets a call go on, with the harm that the schedule has for it.
func (w *World) step(pt *pending) {
	p := pt.process
	w.resume(p)
	if pt.late { // the call was made
		pt.goOn <- ""
		return
	}
	h := harm("")
	if !w.calm {
		h = w.schedule.at(len(w.points))
	}
	switch name, isLate := strings.CutPrefix(h, lateAt); {
	case isLate:
		p.waits, _ = strconv.Atoi(name)
	case h == late:
		p.waits = untilFinish
	}
	if p.waits != 0 {
		p.wasLate = true
		w.schedule = w.schedule.without(len(w.points)) // the point is met again
		w.mu.Lock()
		w.waiting = append(w.waiting, pt)
		w.mu.Unlock()
		w.addLine(p, pt.what+": the process is late")
		return
	}
	p.met++
	if pt.kind != storePoint {
		p.calls++
	}
	if !w.calm {
		w.points = append(w.points, point{pt.kind, pt.what, p.n})
	}
	switch h {
	case lateReply:
		p.waits, p.wasLate = untilFinish, true
	case hangs, hangsAfter:
		p.hung++
	case inFlight:
		p.flies = true
		w.flying = append(w.flying, func() {
			before := w.counts()
			_ = pt.do()
			w.judgeCall(pt, arrives, before, false)
			p.closeConnections()
		})
	}
	if pt.foreign {
		w.breaks(atSetup, pt.what+" was called with another context than that of the handler", foreignContext)
	}
	before, returned := w.counts(), isClosed(p.ended)
	pt.goOn <- h
	w.wait()
	w.judgeCall(pt, h, before, returned)
	if h == killedBefore || h == killedAfter || h == inFlight || pt.crashes {
		w.kill(p, "")
	}
}

// resume lets a process continue that is late.
func (w *World) resume(p *Process) {
	if p.waits > 0 {
		p.waits = 0
		w.addLine(p, "continues")
	}
}

// kill ends a process: each further call fails without effect.
func (w *World) kill(p *Process, why string) {
	if p.killed() {
		return
	}
	p.judged = true
	w.mu.Lock()
	close(p.dead)
	w.waiting = slices.DeleteFunc(w.waiting, func(pt *pending) bool { return pt.process == p })
	w.mu.Unlock()
	if why != "" {
		w.addLine(p, why)
	}
	w.wait()
	if !p.flies {
		p.closeConnections()
	}
}

// closeConnections ends the connections of a killed process.
func (p *Process) closeConnections() {
	for _, c := range p.connections {
		c()
	}
}

// finish lets late processes continue until their end, and requests arrive. That is
// before the end of their lease, or after a retry behind it with ExploreOptions.Outlives.
func (w *World) finish() {
	for _, p := range w.procs {
		for w.broken == "" && !p.judged {
			w.resume(p)
			if w.outlives {
				p.deadline = time.Now().Add(functionTimeout)
			}
			w.drive(p)
		}
	}
	for _, arrive := range w.flying {
		arrive()
	}
	w.flying = nil
}
