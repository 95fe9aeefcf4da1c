// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/sfv"
)

// Middleware returns a function that guards any http.Handler: under lambdaurl
// or another translation of Lambda's events, or in a separate server. Put it
// inside the layers that authenticate and throttle, and around every layer that
// reads the body. Put it behind the router, as with
//
//	mux.Handle("POST /charges/{id}", guarded(charge))
//
// so that [Request.Route] is the pattern. In front of the router no route is
// known, and neither is it behind a pattern that matches many endpoints, see
// [Options.Operation]. [Request.Event] is the *http.Request. A [ScopeRule] finds
// the authenticated caller there, or in its context. There are no claims and no
// IAM principal, also under lambdaurl.
//
// Middleware reads the body of a request with a key, up to
// [Options.MaxRequestBody], and restores it for the handler. It buffers the
// response, up to [Options.MaxResponseBody], until the outcome is stored,
// whether or not the handler flushes it. A handler that has to stream calls
// [NoStore] first: each flush then sends what was written so far. A response
// that is longer, or whose handler hijacks the connection, is sent at once. A
// response that is not stored has the header "Idempotency-Status: not-stored",
// the record is completed without it, and a retry gets 409, replay-unavailable.
// A status that was sent cannot change, even if a transaction is in doubt
// afterwards, so commit before the first byte is sent.
// Informational responses (1xx) and trailers reach the first client only. All
// other requests pass through.
//
// A client disconnect does not cancel a guarded handler that has not started to
// stream: a retry will ask for its outcome. The handler's context ends with the
// deadline of the request's context or, if that has none, after
// [idempotent.Operation.DefaultLease]. A handler that returns after that without
// having written anything is treated as failed.
//
// A handler calls [SetError] where an event handler would return an error. Its
// panics are not recovered, http.ErrAbortHandler included: put a layer that recovers
// around Middleware. Under lambdaurl the client otherwise gets an empty 200, which
// lambdaurl sends while the panic ends the process.
//
// Middleware panics if an argument is invalid, like the other constructors.
func Middleware(g *idempotent.Guard, optFns ...func(*Options)) func(http.Handler) http.Handler {
	if g == nil {
		panic("lambdahttp: Middleware: the guard is nil")
	}
	e := newEngine(g, translator{}, optFns)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("lambdahttp: Middleware: the handler is nil")
		}
		return &middleware{e, next}
	}
}

// middleware is next under the rules of the engine.
type middleware struct {
	*engine
	next http.Handler
}

// SetError sets the error that an http.Handler behind [Middleware] cannot
// return. It has the same meaning as the error that an event handler returns,
// see the package's documentation:
//
//   - idempotent.NotExecuted(err): nothing happened, the key may run again.
//     Write the response too.
//   - idempotent.Unknown(err): the outcome is unknown. Write the response
//     too.
//   - idempotent.Final(code, message): a business outcome. It is sent as a
//     problem document instead of the handler's response; write none.
//   - any other error: the operation's Recovery decides about the key. The
//     caller gets what the handler wrote; if it wrote nothing,
//     Options.ErrorHandler responds. A status below 400 is replaced by 409,
//     outcome-unknown, if the error is or wraps that of a transaction in doubt
//     (a StoreError with Entered).
//
// The last call wins, and nil cancels the earlier ones. With the context of
// another operation inside the handler, the error fails the handler and
// declares neither NotExecuted nor Final. If ctx belongs to no request behind
// Middleware, SetError does nothing. It is safe for concurrent use.
func SetError(ctx context.Context, err error) {
	d, ok := ctx.Value(handlerErrorKey{}).(*handlerError)
	if !ok {
		return
	}
	if execution, _ := idempotent.FromContext(ctx); execution != d.execution {
		err = errors.Join(err) // a joined error declares neither; nil stays nil
	}
	d.set(err)
}

// httpWork is one request that an http.Handler processes.
type httpWork struct {
	engine  *engine
	next    http.Handler
	r       *http.Request
	view    Request
	body    requestBody
	rec     recorder
	failure handlerError
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := m.engine
	x := &httpWork{engine: e, next: m.next, r: r}
	x.body.r, x.body.limit = r, int64(e.opts.MaxRequestBody)
	x.rec.w, x.rec.direct = w, true
	x.view = Request{
		Method:   r.Method,
		RawQuery: r.URL.RawQuery,
		Event:    r,
		names:    namesHTTP,
		wants:    "a request with a method",
		headers:  r.Header,
		stream:   &x.body,
	}
	x.rec.marks = x.marksPassing
	a, err := e.serve(r.Context(), &x.view, x)
	if e.shadow && e.prepare == nil {
		err = nil // that of SetError changes no response without a guard
	}
	if err != nil && !x.rec.direct && 0 < x.rec.status && x.rec.status < 400 && inDoubt(err) {
		// The handler reported a transaction in doubt. The success that it wrote is
		// not sent.
		a = e.expose(e.respond(OutcomeUnknown, facts{}), x)
	}
	if errors.As(err, new(*twiceError)) {
		SetError(r.Context(), err) // nothing has run, also for the guard around this one
	}
	switch {
	case errors.Is(err, errBypassed): // the client has the handler's response
		e.log().LogAttrs(r.Context(), slog.LevelError, "lambdahttp: a handler's response was not stored", slog.String("operation", x.operation()), slog.Any("error", err))
	case a.response != nil:
		x.rec.replace(a.response)
	case err != nil && x.rec.silent() && e.opts.ErrorHandler != nil:
		e.opts.ErrorHandler(w, r, err)
	case err != nil && x.rec.silent():
		e.log().LogAttrs(r.Context(), slog.LevelError, "lambdahttp: request failed without a response", slog.String("method", r.Method), slog.Any("error", err))
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
	default:
		x.rec.finish(a.marks)
	}
}

// enter calls the handler. It buffers the response, unless the request passes
// through unguarded.
func (x *httpWork) enter(ctx context.Context) error {
	outer, _ := idempotent.FromContext(x.r.Context())
	own, _ := idempotent.FromContext(ctx)
	x.failure.execution = own
	if own != outer {
		return x.enterGuarded(ctx)
	}
	if _, watched := ctx.Value(declarationKey{}).(*declaration); watched {
		x.rec.copied = &copied{limit: x.engine.opts.MaxResponseBody}
	}
	x.serve(ctx)
	if x.rec.bypassed() { // seen in shadow mode only
		x.rec.unstored = errBypassed
	}
	return x.failure.get()
}

func (x *httpWork) enterGuarded(guarded context.Context) error {
	deadline, _ := guarded.Deadline() // the guard sets one
	ctx, cancel := context.WithDeadline(context.WithoutCancel(guarded), deadline)
	defer cancel()
	x.rec.keep(x.engine.opts.MaxResponseBody, func() bool { return x.mayFlush(guarded) }, func(status int) []mark {
		// The response is now streamed to this client: cancel when it disconnects.
		context.AfterFunc(guarded, cancel)
		return x.marksStreaming(status)
	})
	x.serve(ctx)
	err := x.failure.get()
	switch {
	case x.rec.bypassed():
		err = errors.Join(errBypassed, err)
	case err == nil && x.rec.silent():
		err = ctx.Err()
	}
	return err
}

// operation returns the operation of a guarded request.
func (x *httpWork) operation() string { return x.failure.execution.RecordID().Operation() }

// mayFlush reports whether a flush sends the response before its outcome is stored: the
// handler has called NoStore. A client that expects events waits for all of them
// otherwise, which is logged.
func (x *httpWork) mayFlush(ctx context.Context) bool {
	if withheld, _ := ctx.Value(declarationKey{}).(*declaration).said(); withheld {
		return true
	}
	if media, _, _ := mime.ParseMediaType(x.rec.sent.Get("Content-Type")); media == "text/event-stream" {
		e := x.engine
		e.warn(ctx, &e.warned.flush, "a handler flushed events, and the client gets them when the handler has returned and its outcome is stored. "+
			"Call NoStore before the first flush to stream them.", slog.String("operation", x.operation()))
	}
	return false
}

// marksPassing returns the headers for a response that passes through, and
// marksStreaming those for a response that is no longer buffered. The engine
// sets its own headers later.
func (x *httpWork) marksPassing(int) []mark {
	if x.engine.shadow {
		return nil
	}
	return x.engine.expose(x.engine.ignored(answer{}, &x.view), x).marks
}

func (x *httpWork) marksStreaming(status int) []mark {
	e := x.engine
	if status < 500 || e.opts.ServerErrors.stores(status) {
		return e.expose(answer{}.mark(&statusHeader, statusNotStored), x).marks
	}
	return e.expose(e.status(answer{}, statusNotStored), x).marks
}

// serve calls the handler with the request in ctx.
func (x *httpWork) serve(ctx context.Context) {
	r := x.r.WithContext(context.WithValue(ctx, handlerErrorKey{}, &x.failure))
	x.body.restore(r)
	x.rec.before = show(x.rec.w)
	x.next.ServeHTTP(&x.rec, r)
	x.r.MultipartForm = r.MultipartForm // the server removes the files of its own request only
}

func (x *httpWork) status() int                 { return x.rec.status }
func (x *httpWork) response() (Response, error) { return x.rec.response(), nil }
func (x *httpWork) tooLarge(*Response) error    { return nil } // the recorder has its own limit

type handlerErrorKey struct{}

// handlerError is the error that was set.
type handlerError struct {
	execution *idempotent.Execution // the handler's run; nil: unguarded

	mu  sync.Mutex
	err error
}

func (d *handlerError) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *handlerError) get() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// namesHTTP sets the request id from Lambda's context or, outside Lambda, from
// a proxy's X-Request-Id header.
func namesHTTP(v *Request) {
	r := v.Event.(*http.Request)
	v.Path = pathSent(r)
	v.host, v.Route = endpointOfPattern(r.Pattern)
	if lc, ok := lambdacontext.FromContext(r.Context()); ok {
		v.RequestID = lc.AwsRequestID
	} else if id := r.Header.Get("X-Request-Id"); len(id) <= maxRequestID && sfv.IsHTTPToken(id) {
		v.RequestID = id
	}
}

// pathSent returns the path that the client sent. A handler around Middleware, such as
// [http.StripPrefix], can change r.URL, and so give two endpoints one path.
func pathSent(r *http.Request) string {
	if event, ok := lambdaurl.RequestFromContext(r.Context()); ok {
		return event.RawPath
	}
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// endpointOfPattern returns the host and the path of an http.ServeMux pattern such as
// "POST example.com/charges/{id}". The path is "" if it matches many endpoints: a
// prefix such as "/api/", or a pattern that ends with a wildcard for the rest of the
// path, as other routers write it too: "/static/{rest...}", "/api/*".
func endpointOfPattern(pattern string) (host, route string) {
	before, path, _ := strings.Cut(pattern, "/")
	host = before[strings.LastIndexAny(before, " \t")+1:]
	if path == "" || strings.HasSuffix(path, "/") || strings.HasSuffix(path, "...}") || strings.HasSuffix(path, "*") {
		return host, ""
	}
	return host, "/" + path
}
