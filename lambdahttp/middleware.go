package lambdahttp

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
)

// Middleware returns a function that puts any http.Handler behind the guard:
// under lambdaurl or another translation of Lambda's events, or in a server of
// its own. Put it inside what authenticates and throttles, and around whatever
// reads the body. Put it behind the routing, as with
//
//	mux.Handle("POST /charges/{id}", guarded(charge))
//
// and [Request.Route] is the pattern; in front of it, no route is known, and
// the default operation is the method and the path. [Request.Event] is the
// *http.Request. A [ScopeRule] finds there, or in its context, the caller that
// the authentication has left. There are no claims.
//
// A request with a key has its body read, up to [Options.MaxRequestBody], and
// given back to the handler. Its response is held back, up to
// [Options.MaxResponseBody], until the outcome is stored. A handler that
// flushes, writes more, or hijacks the connection gets its way at once, and
// what it sends is not stored: its response says "Idempotency-Status:
// not-stored", the record is completed without a result, and a retry is
// answered with 409, replay-unavailable. A status that was sent stays, also if a
// transaction is in doubt afterwards: commit before the first byte is sent.
// Informational responses (1xx) and trailers reach the first client only. All
// other requests pass through.
//
// The client's going away does not end the context of a handler that runs under
// a key, before it streams: the work is not that connection's any more, a retry
// will ask for its outcome. The context ends with the deadline of the request's
// context, and where that has none, with [idempotent.Options.DefaultLease]. A
// handler that returns after that without having written anything has not
// answered: it is treated like one that failed.
//
// A handler says with [SetError] what others say with the error they return. Its
// panics go on, http.ErrAbortHandler too.
//
// Like the other constructors it panics if an argument is wrong.
func Middleware(g *idempotent.Guard, optFns ...func(*Options)) func(http.Handler) http.Handler {
	if g == nil {
		panic("lambdahttp: Middleware wants a guard, got nil")
	}
	e, err := newEngine(g, optFns)
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("lambdahttp: Middleware wants a handler, got nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serveHTTP(w, r, next) })
	}
}

// httpWork is one request on its way through an http.Handler.
type httpWork struct {
	engine  *engine
	next    http.Handler
	r       *http.Request
	view    Request
	body    requestBody
	rec     recorder
	failure handlerError
}

func (e *engine) serveHTTP(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &httpWork{engine: e, next: next, r: r}
	x.body.r, x.body.limit = r, e.opts.MaxRequestBody
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
	if err != nil && !x.rec.direct && 0 < x.rec.status && x.rec.status < 400 && inDoubt(err) {
		// The handler reports the doubt. The success that it wrote is not sent.
		a, err = e.expose(e.outcomeUnknown("", soon), x), nil
	}
	switch {
	case a.response != nil:
		x.rec.replace(a.response)
	case err != nil && x.rec.silent():
		e.opts.ErrorHandler(w, r, err)
	default:
		x.rec.finish(a.marks)
	}
}

// enter calls the handler: as it is where the request passes through, else with
// its response kept.
func (x *httpWork) enter(ctx context.Context) error {
	outer, _ := idempotent.FromContext(x.r.Context())
	own, guarded := idempotent.FromContext(ctx)
	x.failure.execution = own
	if guarded && own != outer {
		return x.enterGuarded(ctx)
	}
	x.serve(ctx)
	return x.failure.get()
}

func (x *httpWork) enterGuarded(guarded context.Context) error {
	deadline, _ := guarded.Deadline() // the guard sets one
	ctx, cancel := context.WithDeadline(context.WithoutCancel(guarded), deadline)
	defer cancel()
	stop := func() bool { return false }
	x.rec.keep(x.engine.opts.MaxResponseBody, func(status int) []mark {
		// From here on the work is for this client: it ends when the client goes.
		stop = context.AfterFunc(guarded, cancel)
		return x.marksStreaming(status)
	})
	x.serve(ctx)
	stop()
	err := x.failure.get()
	if err == nil && x.rec.silent() {
		err = ctx.Err()
	}
	return err
}

// marksPassing are set on a response that passes through, marksStreaming on one
// that is not kept any more: the engine's own come after it.
func (x *httpWork) marksPassing(int) []mark {
	return x.engine.expose(x.engine.ignored(answer{}, &x.view), x).marks
}

func (x *httpWork) marksStreaming(status int) []mark {
	e := x.engine
	if status < 500 || e.opts.ServerErrors == StoreServerErrors {
		return e.expose(answer{}.mark(headerStatus, statusNotStored), x).marks
	}
	return e.expose(e.status(answer{}, statusNotStored), x).marks
}

// serve calls the handler with the request in ctx.
func (x *httpWork) serve(ctx context.Context) {
	r := x.r.WithContext(context.WithValue(ctx, handlerErrorKey{}, &x.failure))
	x.body.restore(r)
	x.next.ServeHTTP(&x.rec, r)
	if x.r.MultipartForm == nil {
		x.r.MultipartForm = r.MultipartForm // the server removes the files of the request it knows
	}
}

func (x *httpWork) status() int                 { return x.rec.status }
func (x *httpWork) response() (Response, error) { return x.rec.response(), nil }

// internalError is the default of Options.ErrorHandler.
func internalError(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "lambdahttp: a request has no answer", slog.String("method", r.Method), slog.Any("error", err))
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

// routeOfPattern returns the path of a pattern of http.ServeMux, such as
// "POST example.com/charges/{id}".
func routeOfPattern(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return ""
}

// namesHTTP names the request as Lambda does where it runs there, else as a proxy
// did.
func namesHTTP(v *Request) {
	r := v.Event.(*http.Request)
	v.Path, v.Route = r.URL.EscapedPath(), routeOfPattern(r.Pattern)
	if lc, ok := lambdacontext.FromContext(r.Context()); ok {
		v.RequestID = lc.AwsRequestID
	} else if id := r.Header.Get("X-Request-Id"); len(id) <= maxTraceID && isToken(id) {
		v.RequestID = id
	}
}
