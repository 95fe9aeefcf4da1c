// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/pathkey"
	"github.com/once-lambda/once/internal/timing"
)

// EventError reports an event of another type than the handler was built for.
// It is returned to Lambda, and the handler does not run.
type EventError struct {
	Problem string // what is wrong, for the developer
}

func (e *EventError) Error() string { return "lambdahttp: " + e.Problem }

// engine applies the rules for every event type. It is safe for concurrent use.
type engine struct {
	responder
	guard     *idempotent.Guard
	disabled  bool          // idempotent.Options.Disabled
	shadow    bool          // idempotent.Options.Shadow
	reserve   time.Duration // idempotent.Operation.DeadlineReserve
	translate translator
	// prepare reads and checks a request before its key is claimed, and returns the
	// context for the handler; nil: handlers read their requests.
	prepare func(context.Context, *Request) (context.Context, error)

	warned struct{ operation, scope, method, flush atomic.Bool } // see warn
}

// work is one call of the handler.
type work interface {
	// enter calls the handler and buffers its response.
	enter(context.Context) error
	// status returns the status of the buffered response.
	status() int
	// response translates it. The error means that no gateway can deliver it.
	response() (Response, error)
	// tooLarge returns an error if the service in front of the handler does not accept
	// a response of that size.
	tooLarge(*Response) error
}

// newEngine returns the engine of a handler that is built with these arguments. It panics
// if an option is invalid.
func newEngine(g *idempotent.Guard, translate translator, optFns []func(*Options)) *engine {
	opts, err := newOptions(optFns)
	if err != nil {
		panic(err)
	}
	e := &engine{responder: responder{opts: opts, headers: problemHeaders(opts)}, translate: translate}
	var kept []time.Duration
	e.guard, err = g.With(func(o *idempotent.Options) {
		o.Retention = max(o.Retention, opts.Profile.MinRetention)
		if opts.Guard != nil {
			opts.Guard(&o.Operation)
		}
		o.Codec = codec{&declaration{opts: opts, translate: translate}}
		if o.RequestID == nil {
			o.RequestID = requestIDFrom
		}
		o.WaitFor = min(o.WaitFor, max(opts.GatewayTimeout-o.LeaseMargin, 0))
		e.disabled, e.shadow, e.logger, e.now = o.Disabled, o.Shadow, o.Logger, o.Now
		e.reserve = cmp.Or(o.DeadlineReserve, timing.DefaultReserve)
		kept = []time.Duration{o.Retention, o.UnresolvedRetention}
	})
	if err != nil {
		panic(err)
	}
	for i, name := range []string{"Retention", "UnresolvedRetention"} {
		if least := opts.Profile.MinRetention; kept[i] != 0 && kept[i] < least {
			panic(fmt.Errorf("lambdahttp: idempotent.Operation.%s is %s; set at least %s, because clients may retry for so long (Profile.MinRetention)", name, kept[i], least))
		}
	}
	return e
}

// serve applies the rules to one request, in the order shown in doc.go. An
// error is returned to Lambda: it is the handler's own, or a programming error.
func (e *engine) serve(ctx context.Context, r *Request, w work) (answer, error) {
	a, err := e.judge(ctx, r, w)
	if err != nil {
		return a, err
	}
	return e.expose(a, w), nil
}

func (e *engine) judge(ctx context.Context, r *Request, w work) (answer, error) {
	ctx = withRequestID(ctx, r)
	p := &e.opts.Profile
	switch {
	case e.shadow:
		return e.serveShadow(ctx, r, w)
	case e.disabled:
		a, err := e.serveUnguarded(ctx, r, idempotent.Key{}, w)
		return e.ignored(a, r), err
	}
	switch guarded, refused := e.admit(ctx, r); {
	case refused != nil:
		return refused()
	case !guarded:
		if safe := []string{"GET", "HEAD", "OPTIONS", "TRACE"}; len(r.Header(p.Header)) > 0 && !slices.Contains(safe, r.Method) {
			e.warn(ctx, &e.warned.method, "a request with a key ran unguarded, because Profile.Methods does not name its method. "+
				"Append the method if a retry must not repeat the request.", slog.String("method", r.Method))
		}
		return e.passThrough(ctx, r, w)
	}

	ctx = timing.Within(ctx, e.now, e.reserve, e.opts.gateway)
	key, found, refused := e.identify(ctx, r)
	switch {
	case refused != nil:
		return refused()
	case !found:
		return e.serveUnguarded(ctx, r, key, w)
	}
	if outer, ok := idempotent.FromContext(ctx); ok && outer.RecordID() == key.RecordID() {
		return answer{}, idempotent.NotExecuted(&twiceError{key.Operation})
	}
	prepared, err := e.prepared(ctx, r)
	if err != nil {
		return e.unprepared(ctx, err)
	}
	if refused := e.bind(prepared, r, &key); refused != nil {
		return refused()
	}
	return e.serveOnce(prepared, r, key, w)
}

// serveShadow calls the handler as if there were no guard, and lets the guard find out what
// it would have done with the request: see idempotent.Options.Shadow. The response is the
// handler's own, without marks.
func (e *engine) serveShadow(ctx context.Context, r *Request, w work) (answer, error) {
	prepared, err := e.prepared(ctx, r)
	if err != nil {
		return e.unprepared(ctx, err) // a JSON handler without a guard would refuse it too
	}
	var failure error
	guarded, refused := e.admit(ctx, r)
	if !guarded && refused == nil {
		failure = w.enter(prepared)
		return e.unchanged(w, failure)
	}
	prepared = timing.Within(prepared, e.now, e.reserve, e.opts.gateway)
	declared := &declaration{opts: e.opts, translate: e.translate, tooLarge: w.tooLarge}
	_, _ = idempotent.DoOutcome(prepared, e.guard, e.shadowKey(prepared, r, guarded), func(ctx context.Context) (stored, error) {
		if failure = w.enter(withDeclaration(ctx, declared)); failure != nil {
			return stored{}, failure
		}
		return declared.outcome(w.response())
	})
	return e.unchanged(w, failure)
}

// shadowKey returns the key of r. It is not valid if a guard would refuse r. Rules of the
// user find it, so a panic of them must not become the answer.
func (e *engine) shadowKey(ctx context.Context, r *Request, guarded bool) (key idempotent.Key) {
	logs.Shield(ctx, e.log(), "lambdahttp: the search for the key", func() {
		key, _, _ = e.identify(ctx, r)
		_ = e.bind(ctx, r, &key) // a key that is refused has no id, scope or fingerprint
	})
	if !guarded {
		key.ID = ""
	}
	return key
}

// unchanged returns the answer for a handler that returned failure, as without a guard.
func (e *engine) unchanged(w work, failure error) (answer, error) {
	if e.prepare != nil {
		return e.own(w, failure, failure) // of a JSON handler, which this package makes a response of
	}
	return answer{}, failure
}

// refusal makes the answer for a request that is refused before its key is claimed.
type refusal func() (answer, error)

// admit reports whether the method of r is guarded, or returns a refusal. Without both, the
// handler runs unguarded.
func (e *engine) admit(ctx context.Context, r *Request) (guarded bool, refused refusal) {
	p := &e.opts.Profile
	switch {
	case r.Method == "":
		// Without this check a POST of another event format would run unguarded.
		return false, func() (answer, error) {
			return answer{}, &EventError{"the event has no HTTP method; this handler expects " + r.wants}
		}
	case slices.Contains(p.ForbiddenMethods, r.Method) && len(r.Header(p.Header)) > 0:
		return false, func() (answer, error) { return e.respond(KeyNotAllowed, facts{}), nil }
	case slices.Contains(p.Methods, r.Method):
		return true, nil
	case slices.Contains(p.Methods, strings.ToUpper(r.Method)):
		// The handler may read the method in any letter case, and would run unguarded.
		return false, func() (answer, error) {
			return e.unprepared(ctx, &Problem{Status: http.StatusNotImplemented, Detail: "Methods are case-sensitive. Send " + strings.ToUpper(r.Method) + "."})
		}
	}
	return false, nil
}

// identify returns the key of r, without what binds it to this request, or a refusal. The
// key has an operation, unless it is refused outside shadow mode.
func (e *engine) identify(ctx context.Context, r *Request) (key idempotent.Key, found bool, refused refusal) {
	p := &e.opts.Profile
	id, found, err := e.opts.KeyFrom.read(r, p)
	if err != nil {
		refused = func() (answer, error) {
			if isUnread(err) {
				return e.invalidBody(err)
			}
			return e.respond(InvalidKey, facts{reason: err.Error()}), nil
		}
		if !e.shadow {
			return key, false, refused // cheaply
		}
	}
	r.complete(found || e.opts.ownOperation)
	key = idempotent.Key{Operation: e.opts.Operation(r), Scope: idempotent.Global, ID: id}
	if refused != nil {
		return key, false, refused
	}
	unnamed := e.opts.endpointUnknown(r)
	if unnamed {
		e.warn(ctx, &e.warned.operation, "no route is known, so all endpoints have one operation in logs, metrics and reconciliation. "+
			"Set Options.Operation to a function that returns a name for each endpoint.", slog.String("operation", key.Operation))
	}
	if !found {
		return key, false, nil
	}
	if unnamed || p.PerResource {
		key.ID = pathkey.ID(r.resource, id)
	}
	key.Scope, err = timing.Call(ctx, e.now, func(ctx context.Context) (string, error) { return e.opts.Scope.Of(ctx, r) })
	switch {
	case err != nil:
		return key, true, func() (answer, error) { return e.failed(ctx, "Options.Scope", err) }
	case key.Scope == "":
		return key, true, func() (answer, error) {
			e.warn(ctx, &e.warned.scope, "Options.Scope found no caller, so a request got 403 and did not run. "+
				"If all requests do, the route has no authorizer of the kind that the rule reads, or no proxy sets the header of TrustedHeader.", slog.String("operation", key.Operation))
			return e.respond(UnknownCaller, facts{}), nil
		}
	}
	return key, true, nil
}

// bind sets what binds key to the request r, or returns a refusal.
func (e *engine) bind(ctx context.Context, r *Request, key *idempotent.Key) (refused refusal) {
	var err error
	key.Fingerprint, err = timing.Call(ctx, e.now, func(ctx context.Context) (idempotent.Fingerprint, error) {
		return r.fingerprint(ctx, e.opts.Fingerprint)
	})
	if err != nil {
		return func() (answer, error) {
			if errors.As(err, new(*timing.LateError)) {
				return e.failed(ctx, "Options.Fingerprint", err)
			}
			return e.invalidBody(err)
		}
	}
	if e.opts.Ref != nil {
		logs.Shield(ctx, e.log(), "lambdahttp: Options.Ref", func() { key.Ref = e.opts.Ref(r) })
	}
	return nil
}

// twiceError reports a guard around a guarded handler. It is a programming error.
type twiceError struct{ operation string }

func (e *twiceError) Error() string {
	return fmt.Sprintf("lambdahttp: the operation %q is guarded twice for one request; put one guard around its handler", e.operation)
}

// prepared returns the context for the handler of r.
func (e *engine) prepared(ctx context.Context, r *Request) (context.Context, error) {
	if e.prepare == nil {
		return ctx, nil
	}
	return e.prepare(ctx, r)
}

// warn logs text, once per handler.
func (e *engine) warn(ctx context.Context, once *atomic.Bool, text string, attr slog.Attr) {
	if !once.Swap(true) {
		e.log().LogAttrs(ctx, slog.LevelWarn, "lambdahttp: "+text+" This is logged once.", attr)
	}
}

// passThrough runs the handler unguarded and ignores a key in the header.
func (e *engine) passThrough(ctx context.Context, r *Request, w work) (answer, error) {
	prepared, err := e.prepared(ctx, r)
	if err != nil {
		return e.unprepared(ctx, err)
	}
	failure := w.enter(prepared)
	a, err := e.own(w, failure, failure)
	return e.ignored(a, r), err
}

// ignored marks a response whose request key was ignored.
func (e *engine) ignored(a answer, r *Request) answer {
	if len(r.Header(e.opts.Profile.Header)) == 0 {
		return a
	}
	return e.status(a, statusIgnored)
}

// serveUnguarded lets the guard run or refuse a request without a key, so that its
// observer sees both, and run every request if it is disabled, so that its log says
// so. The key does not name a record.
func (e *engine) serveUnguarded(ctx context.Context, r *Request, key idempotent.Key, w work) (answer, error) {
	var handler struct {
		entered    bool
		failure    error // the error it returned
		unprepared error // why it was not called
	}
	_, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (struct{}, error) {
		handler.entered = true
		ctx, handler.unprepared = e.prepared(ctx, r)
		if handler.unprepared != nil {
			return struct{}{}, handler.unprepared
		}
		handler.failure = w.enter(ctx)
		return struct{}{}, handler.failure
	})
	switch {
	case !handler.entered:
		return e.refused(ctx, nil, err)
	case handler.unprepared != nil:
		return e.unprepared(ctx, handler.unprepared)
	}
	return e.own(w, handler.failure, err)
}

// serveOnce runs the handler under the guard, replays the stored outcome, or
// refuses the request.
func (e *engine) serveOnce(ctx context.Context, r *Request, key idempotent.Key, w work) (answer, error) {
	var handler struct {
		answer   stored // what would be stored of its response
		failure  error  // the error it returned
		settles  error  // failure, or what the response means for the record
		declared declaration
	}
	handler.declared.opts, handler.declared.translate, handler.declared.tooLarge = e.opts, e.translate, w.tooLarge
	out, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (stored, error) {
		handler.failure = w.enter(withDeclaration(ctx, &handler.declared))
		if handler.settles = handler.failure; handler.settles == nil {
			handler.answer, handler.settles = handler.declared.outcome(w.response())
		}
		return handler.answer, handler.settles
	}, func(o *idempotent.Operation) { o.Codec = codec{&handler.declared} })
	switch {
	case out.Replayed:
		if large := w.tooLarge(&out.Value.Response); large != nil { // evidence, or of another service
			return e.unsendable(ctx, out, key.Operation, large), nil
		}
		return e.replay(ctx, r, out, err)
	case handler.settles == nil && err != nil || afterwards(err, out.RecordID):
		return e.refused(ctx, r, err)
	}
	a, err := e.own(w, handler.failure, err)
	if err != nil {
		return a, err
	}
	switch own := handler.answer; {
	case handler.declared.hasPassed() && own.unstored == nil && !own.equal(out.Value):
		a = e.committed(ctx, out, key.Operation)
	case own.tooLarge != nil:
		a = e.unsendable(ctx, out, key.Operation, own.tooLarge)
	}
	if out.Stored && !out.Value.withheld {
		return e.expires(e.status(a, statusCreated), out.Expires), nil
	}
	// A response or a Final error should have been stored, unless the handler
	// declared otherwise. Other errors settle the record in another way.
	if _, final := idempotent.AsFinal(handler.settles); handler.settles == nil || final || idempotent.IsNotExecuted(handler.settles) {
		return a.mark(&statusHeader, statusNotStored), nil
	}
	return e.status(a, statusNotStored), nil
}

// committed returns the answer for a handler that returned another response than it had
// passed to a transaction: every retry gets that one. What was streamed stays.
func (e *engine) committed(ctx context.Context, out idempotent.Outcome[stored], operation string) answer {
	e.log().LogAttrs(ctx, slog.LevelError, "lambdahttp: the handler returned another response than it passed to Commit, so its caller gets the committed one. "+
		"Pass the response that the handler returns.", slog.String("operation", operation))
	if out.Value.withheld {
		return e.unavailable(out)
	}
	return answer{response: &out.Value.Response}
}

// unsendable returns the answer instead of a response that is too large.
func (e *engine) unsendable(ctx context.Context, out idempotent.Outcome[stored], operation string, large error) answer {
	e.log().LogAttrs(ctx, slog.LevelError, "lambdahttp: the service in front of the function does not accept a response, so its caller got replay-unavailable. "+
		"Return a reference to the result.", slog.String("operation", operation), slog.Any("error", large))
	return e.unavailable(out)
}

// own returns the response for a handler that returned failure. The error for
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

// afterwards reports whether err is the guard's own error about record id, made
// after the handler ran, or an error of the handler that reports that the work of
// this record continues elsewhere. A handler that uses another guard may return
// such an error too, about another record.
func afterwards(err error, id idempotent.RecordID) bool {
	if running, ok := errors.AsType[*idempotent.InProgressError](err); ok && running.RecordID == id {
		return true
	}
	if lost, ok := errors.AsType[*idempotent.LeaseLostError](err); ok {
		return lost.RecordID == id
	}
	unavailable, ok := errors.AsType[*idempotent.ReplayUnavailableError](err)
	return ok && unavailable.RecordID == id
}

// expose lets scripts of another origin read the headers that this package set
// (Fetch, "CORS protocol"), besides those that the response exposes itself. A
// browser hides all but a few headers.
func (e *engine) expose(a answer, w work) answer {
	if !e.opts.Profile.sets(nameExposed) || len(a.marked) == 0 {
		return a
	}
	var own http.Header
	if a.response != nil {
		own = a.response.Header
	} else {
		r, _ := w.response() // the headers are there, whatever the body is
		own = r.Header
	}
	return a.mark(&exposedHeader, strings.Join(slices.Concat(own[exposedHeader.name], a.marked), ", "))
}

type requestIDKey struct{}

func withRequestID(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestIDKey{}, r)
}

// requestIDFrom returns the request id for the guard's events and records.
func requestIDFrom(ctx context.Context) string {
	return ctx.Value(requestIDKey{}).(*Request).RequestID
}
