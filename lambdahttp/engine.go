package lambdahttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// engine is the rules, for every event type. It is immutable and safe for
// concurrent use.
type engine struct {
	opts          *Options
	guard         *idempotent.Guard
	disabled      bool                    // idempotent.Options.Disabled
	replayHeaders []string                // canonical names of the headers that are replayed
	headers       [len(situations)][]mark // of problems, besides those of Render
	// translate reads an answer in the handler's own type, for the codec; nil
	// where handlers return none.
	translate func(any) (r Response, ok bool, err error)
}

func newEngine(g *idempotent.Guard, optFns []func(*Options)) (*engine, error) {
	opts, err := newOptions(optFns)
	if err != nil {
		return nil, err
	}
	e := &engine{opts: opts, replayHeaders: replayList(opts.ReplayHeaders), headers: problemHeaders(opts)}
	var kept []time.Duration
	e.guard, err = g.With(func(o *idempotent.Options) {
		if opts.Guard != nil {
			opts.Guard(o)
		}
		o.Codec = codec{&declaration{engine: e}}
		o.AllowMissingKey = !opts.RequireKey
		if o.RequestID == nil {
			o.RequestID = requestIDFrom
		}
		if o.WaitFor > 0 {
			o.WaitFor = min(o.WaitFor, max(opts.GatewayTimeout-o.LeaseMargin, 0))
		}
		e.disabled = o.Disabled
		kept = []time.Duration{o.Retention, o.UnresolvedRetention}
	})
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"Retention", "UnresolvedRetention"} {
		if least := opts.Profile.MinRetention; kept[i] != 0 && kept[i] < least {
			return nil, fmt.Errorf("lambdahttp: idempotent.Options.%s is %s; clients may retry for %s (Profile.MinRetention)", name, kept[i], least)
		}
	}
	return e, nil
}

// work is one call of the handler.
type work interface {
	// enter calls the handler and keeps its response.
	enter(context.Context) error
	// status returns the status of the response that was kept.
	status() int
	// response translates it. The error says that no gateway can deliver it.
	response() (Response, error)
}

// EventError says that an event is not what the handler was built for. It goes
// to Lambda, and the handler is not entered.
type EventError struct {
	Problem string // what is wrong, for the developer
}

func (e *EventError) Error() string { return "lambdahttp: " + e.Problem }

// serve takes one request through the rules, in the order that doc.go shows.
// An error is for Lambda: the handler's own, or a mistake in the program.
func (e *engine) serve(ctx context.Context, r *Request, w work) (answer, error) {
	a, err := e.judge(ctx, r, w)
	if err != nil {
		return a, err
	}
	return e.expose(a, w), nil
}

func (e *engine) judge(ctx context.Context, r *Request, w work) (answer, error) {
	p := &e.opts.Profile
	switch {
	case e.disabled:
		return e.passThrough(ctx, r, w)
	case r.Method == "":
		// A POST that cannot be seen as one would run unguarded.
		return answer{}, &EventError{"no HTTP method is named; this handler wants " + r.wants}
	case slices.Contains(p.ForbiddenMethods, r.Method) && len(r.Header(p.Header)) > 0:
		return e.render(e.problem(KeyNotAllowed)), nil
	case !slices.Contains(p.Methods, r.Method):
		return e.passThrough(ctx, r, w)
	}

	id, found, err := e.opts.readKey(r)
	switch {
	case isUnread(err):
		return e.invalidBody(err)
	case err != nil:
		return e.invalidKey(err), nil
	}
	r.complete(found || e.opts.ownOperation)
	key := idempotent.Key{Operation: e.opts.Operation(r), Scope: idempotent.Global, ID: id}
	ctx = withRequestID(ctx, r)
	if !found {
		return e.serveWithoutKey(ctx, key, w)
	}
	if key.Scope, err = e.opts.Scope.Of(ctx, r); err != nil {
		return answer{}, err
	}
	if key.Scope == "" {
		return e.render(e.problem(UnknownCaller)), nil
	}
	if key.Fingerprint, err = r.fingerprint(e.opts.Fingerprint); err != nil {
		return e.invalidBody(err)
	}
	return e.serveOnce(ctx, r, key, w)
}

// passThrough runs the handler as if this package were not there. A key that
// stands in the header is ignored.
func (e *engine) passThrough(ctx context.Context, r *Request, w work) (answer, error) {
	failure := w.enter(ctx)
	a, err := e.own(w, failure, failure)
	if err == nil {
		a = e.ignored(a, r)
	}
	return a, err
}

// ignored says that the request has a key which nobody heeds.
func (e *engine) ignored(a answer, r *Request) answer {
	if !e.opts.Profile.StatusHeader || len(r.Header(e.opts.Profile.Header)) == 0 {
		return a
	}
	return e.status(a, statusIgnored)
}

// serveWithoutKey lets the guard run or refuse a request that has no key: it
// tells its observer either way. The scope in key names no record.
func (e *engine) serveWithoutKey(ctx context.Context, key idempotent.Key, w work) (answer, error) {
	var handler struct {
		entered bool
		failure error // what it returned
	}
	_, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (struct{}, error) {
		handler.entered = true
		handler.failure = w.enter(ctx)
		return struct{}{}, handler.failure
	})
	if !handler.entered {
		return e.refused(nil, err)
	}
	return e.own(w, handler.failure, err)
}

// serveOnce runs the handler under the guard, or answers with what is known.
func (e *engine) serveOnce(ctx context.Context, r *Request, key idempotent.Key, w work) (answer, error) {
	var handler struct {
		entered  bool
		failure  error // what it returned
		settles  error // the same, or what its response means for the record
		declared declaration
	}
	handler.declared.engine = e
	out, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (s stored, _ error) {
		handler.entered = true
		handler.declared.execution, _ = idempotent.FromContext(ctx)
		handler.failure = w.enter(withDeclaration(ctx, &handler.declared))
		if handler.settles = handler.failure; handler.settles == nil {
			s, handler.settles = e.outcome(w, &handler.declared)
		}
		return s, handler.settles
	}, func(o *idempotent.Options) { o.Codec = codec{&handler.declared} })
	switch {
	case out.Replayed:
		return e.replay(ctx, r, out, err)
	case !handler.entered || handler.settles == nil && err != nil || afterwards(err, out.RecordID):
		return e.refused(r, err)
	}
	a, err := e.own(w, handler.failure, err)
	if err != nil {
		return a, err
	}
	if out.Stored && !out.Value.withheld {
		return e.expires(e.status(a, statusCreated), out.Expires), nil
	}
	// A response and a Final error were to be stored, unless the handler said
	// otherwise; the rest of the errors settle the record in another way.
	if _, final := idempotent.AsFinal(handler.settles); handler.settles == nil || final || idempotent.IsNotExecuted(handler.settles) {
		return a.mark(headerStatus, statusNotStored), nil
	}
	return e.status(a, statusNotStored), nil
}

// own returns the answer for a handler that returned failure. The error for
// Lambda is err, which is failure as the guard returns it: if an inner call
// returned it, failure is wrapped and err is not.
func (e *engine) own(w work, failure, err error) (answer, error) {
	final, isFinal := idempotent.AsFinal(failure)
	switch {
	case isFinal:
		return e.final(final), nil
	case failure == nil, w.status() != 0 && (idempotent.IsNotExecuted(failure) || idempotent.IsUnknown(failure)):
		return answer{}, nil
	}
	return answer{}, err
}

func (e *engine) final(f *idempotent.FinalError) answer {
	p := e.problem(FinalOutcome)
	p.Code = f.Code
	if f.Message != "" {
		p.Detail = f.Message
	}
	return e.render(p)
}

// afterwards reports whether err is the guard's own word on record id, given
// after the handler ran. A handler that uses a guard of its own may return such
// an error too, about another record.
func afterwards(err error, id idempotent.RecordID) bool {
	if lost, ok := errors.AsType[*idempotent.LeaseLostError](err); ok {
		return lost.RecordID == id
	}
	unavailable, ok := errors.AsType[*idempotent.ReplayUnavailableError](err)
	return ok && unavailable.RecordID == id
}

type requestIDKey struct{}

func withRequestID(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestIDKey{}, r)
}

// requestIDFrom names the request in the guard's events and records.
func requestIDFrom(ctx context.Context) string {
	if r, ok := ctx.Value(requestIDKey{}).(*Request); ok {
		return r.RequestID
	}
	return ""
}
