package model_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/tests/model"
)

// world is a guard over a store, a clock that moves only when a test moves it,
// and the processes that use them. Only one goroutine runs at a time: a request
// runs until it is answered or in its handler, and waits there.
type world struct {
	store  *mortal
	guard  *idempotent.Guard
	policy model.Policy
	now    time.Time
	runs   int
	lost   int // replies
}

// over makes a store of another, which is below it.
type over func(below driver.Store) driver.Store

// itself is the store unchanged, for a guard over a sound store.
func itself(s driver.Store) driver.Store { return s }

// newWorld returns a world whose guard sees store through seenAs, and caches
// the given number of records.
func newWorld(store driver.Store, seenAs over, p model.Policy, cached int) (*world, error) {
	w := &world{store: newMortal(store), policy: p, now: began}
	g, err := idempotent.New(withChunksOf(store, network{seenAs(w.store)}), func(o *idempotent.Options) {
		o.LeaseMargin = span(p.Margin)
		o.Retention, o.DownstreamRetention = span(p.Retention), span(p.DownstreamRetention)
		o.UnresolvedRetention = span(p.UnresolvedRetention)
		o.ReconcileAfter = span(p.ReconcileAfter)
		o.CacheEntries = cached
		o.Observer, o.Logger = event.ObserverFunc(observe), discard
		o.Now = func() time.Time { return w.now }
	})
	w.guard = g
	return w, err
}

func (w *world) millis() int64 { return w.now.UnixMilli() }

// process is a process that makes calls in this world.
type process struct {
	caller
	kinds []string // of the events since the last call of observed
}

// newProcess returns a process that gets the reply to every write, or if deaf
// only to the second try of each.
func newProcess(deaf bool) *process {
	p := &process{}
	p.loses = func() bool { return deaf }
	p.watch = func(e event.Event) { p.kinds = append(p.kinds, string(e.Kind)) }
	return p
}

// observed returns the events, in the model's form.
func (p *process) observed() string {
	told := strings.Join(p.kinds, " ")
	p.kinds = nil
	return told
}

// run is one request: a coroutine that is suspended in its handler.
type run struct {
	*process
	request model.Request
	resume  func() (struct{}, bool)
	stop    func()

	entered bool
	attempt int // as the handler got it
	work    model.Work
	ending  ending // how the handler will end

	ended bool
	reply reply
}

// begin sends a request and returns when it is answered or in its handler.
func (w *world) begin(key idempotent.Key, p *process, request model.Request) *run {
	w.runs++
	r := &run{process: p, request: request}
	r.request.Owner = w.runs
	ctx := p.invocation(moment(request.Deadline))
	r.resume, r.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() { r.reply.panicked, r.ended = recover(), true }()
		r.reply.value, r.reply.err = idempotent.DoOutcome(ctx, w.guard, key, func(ctx context.Context) (string, error) {
			if e, ok := idempotent.FromContext(ctx); ok {
				r.attempt = e.Attempt()
			}
			r.entered = true
			if !yield(struct{}{}) {
				return "", errDead
			}
			r.does(ctx)
			return r.ending.end()
		}, declares(request))
	})
	r.resume()
	w.lost += p.lost
	return r
}

// declares returns the options of a request.
func declares(r model.Request) func(*idempotent.Options) {
	return func(o *idempotent.Options) {
		o.Recovery, o.Retention, o.Steps = idempotent.Recovery(r.Recovery), span(r.Retention), []string{stepName}
	}
}

// does runs the handler. It ends with its ending, whatever the result of its
// step.
func (r *run) does(ctx context.Context) {
	if e, _ := idempotent.FromContext(ctx); r.work.Ref != "" {
		_ = e.SetRef(r.work.Ref)
	}
	call := r.work.Step
	if call == (model.StepCall{}) {
		return
	}
	_, _ = idempotent.Step(ctx, stepName, func(context.Context) (string, error) {
		switch call.Kind {
		case model.NotExecuted:
			return "", idempotent.NotExecuted(errors.New("nothing happened"))
		case model.Failed:
			return "", errors.New("no answer")
		}
		return call.Value, nil
	}, func(o *idempotent.StepOptions) {
		if call.Once {
			o.AtMostOnce = true
		}
	})
}

// finish lets the handler of r work and end.
func (r *run) finish(w model.Work, e ending) {
	r.work, r.ending = w, e
	r.resume()
}

// crash ends r immediately: no later call reaches the store.
func (r *run) crash() {
	r.dead = true
	r.stop()
}

// Returns what the caller of r knows, as an answer of the model.
func (r *run) told() model.Answer {
	a := model.Answer{Verdict: model.Entered, Attempt: r.attempt}
	if r.ended {
		a = r.reply.answer(r.ending)
	}
	a.Events = r.observed()
	return a
}
