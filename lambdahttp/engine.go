package lambdahttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// engine is the rules, for every event type. It is immutable and safe for
// concurrent use.
type engine struct {
	opts     *Options
	guard    *idempotent.Guard
	disabled bool     // idempotent.Options.Disabled
	replayed []string // canonical names of the headers that are replayed
}

func newEngine(g *idempotent.Guard, optFns []func(*Options)) (*engine, error) {
	opts, err := newOptions(optFns)
	if err != nil {
		return nil, err
	}
	e := &engine{opts: opts, replayed: replayList(opts.ReplayHeaders)}
	e.guard, err = g.With(func(o *idempotent.Options) {
		if opts.Guard != nil {
			opts.Guard(o)
		}
		o.Codec = codec{}
		o.AllowMissingKey = !opts.RequireKey
		if o.RequestID == nil {
			o.RequestID = requestIDFrom
		}
		e.disabled = o.Disabled
	})
	return e, err
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

// answer is what the caller gets.
type answer struct {
	response  *Response // nil: the response that the handler returned, untouched
	notStored bool      // say that a retry will not get it
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
	switch {
	case e.disabled:
		return e.own(w, w.enter(ctx))
	case r.Method == "":
		// A POST that cannot be seen as one would run unguarded.
		return answer{}, &EventError{"no HTTP method is named; this handler wants " + r.wants}
	case !slices.Contains(e.opts.Profile.Methods, r.Method):
		return e.own(w, w.enter(ctx))
	}

	if r.late != nil {
		r.late(r)
	}
	key := idempotent.Key{Operation: e.opts.Operation(r), Scope: idempotent.Global}
	ctx = withRequestID(ctx, r.RequestID)
	id, found, err := e.opts.Profile.readKey(r)
	switch {
	case err != nil:
		return e.invalidKey(err), nil
	case !found:
		return e.serveWithoutKey(ctx, key, w)
	}
	key.ID = id

	if key.Scope, err = e.opts.Scope(ctx, r); err != nil {
		return answer{}, err
	}
	if key.Scope == "" {
		return e.render(e.problem(UnknownCaller), 0), nil
	}
	if key.Fingerprint, err = r.fingerprint(); err != nil {
		return e.unreadable(err)
	}
	return e.serveOnce(ctx, key, w)
}

// serveWithoutKey lets the guard run or refuse a request that has no key: it
// tells its observer either way. The scope in key names no record.
func (e *engine) serveWithoutKey(ctx context.Context, key idempotent.Key, w work) (answer, error) {
	entered := false
	_, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (struct{}, error) {
		entered = true
		return struct{}{}, w.enter(ctx)
	})
	if !entered {
		return e.refused(err)
	}
	return e.own(w, err)
}

// serveOnce runs the handler under the guard, or answers with what is known.
func (e *engine) serveOnce(ctx context.Context, key idempotent.Key, w work) (answer, error) {
	var (
		entered bool
		failure error // what the handler itself returned
	)
	out, err := idempotent.DoOutcome(ctx, e.guard, key, func(ctx context.Context) (Response, error) {
		entered = true
		if failure = w.enter(ctx); failure != nil {
			return Response{}, failure
		}
		return e.outcome(w)
	})
	switch {
	case out.Replayed:
		return e.replay(out.Value, err), nil
	case !entered || afterwards(err, out.RecordID):
		return e.refused(err)
	}
	a, ownErr := e.own(w, failure)
	// Only a response and a Final error were to be stored; the rest of the errors
	// settle the record in another way.
	_, final := failure.(*idempotent.FinalError)
	a.notStored = (err == nil || final) && !out.Stored
	return a, ownErr
}

// statusError stands for a response of 5xx where the record is to be settled
// like after an error of the handler. It reaches observers, and no caller.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("lambdahttp: the handler answered with status %d", e.status)
}

// outcome returns what of the handler's response is stored, or the error that
// settles the record in place of it.
func (e *engine) outcome(w work) (Response, error) {
	r, err := w.response()
	sound := err == nil && deliverable(r.Status)
	if sound && (r.Status < 500 || e.opts.ServerErrors == StoreServerErrors) {
		r.Header = only(r.Header, e.replayed)
		return r, nil
	}
	err = &statusError{w.status()}
	switch e.opts.ServerErrors {
	case UnknownServerErrors:
		err = idempotent.Unknown(err)
	case ReleaseServerErrors:
		err = idempotent.NotExecuted(err)
	}
	return Response{}, err
}

// own returns the answer for a handler that returned err itself.
func (e *engine) own(w work, err error) (answer, error) {
	// As in package idempotent, only the outermost error declares.
	switch f := err.(type) {
	case *idempotent.FinalError:
		return e.final(f), nil
	case *idempotent.NotExecutedError, *idempotent.UnknownError:
		if w.status() != 0 {
			return answer{}, nil
		}
	}
	return answer{}, err
}

// replay returns the answer for a stored outcome: a response, or the
// FinalError err. Headers are chosen again, because a record may be older than
// the list.
func (e *engine) replay(r Response, err error) answer {
	var final *idempotent.FinalError
	if errors.As(err, &final) {
		return e.final(final).mark(headerReplayed, "true")
	}
	r.Header = only(r.Header, e.replayed)
	return answer{response: &r}.mark(headerReplayed, "true")
}

func (e *engine) final(f *idempotent.FinalError) answer {
	p := e.problem(FinalOutcome)
	p.Code = f.Code
	if f.Message != "" {
		p.Detail = f.Message
	}
	return e.render(p, 0)
}

func (e *engine) invalidKey(err error) answer {
	p := e.problem(InvalidKey)
	p.Detail = strings.TrimSuffix(p.Detail, ".") + ": " + err.Error() + "."
	return e.render(p, 0)
}

// afterwards reports whether err is the guard's own word on record id, given
// after the handler ran. A handler that uses a guard of its own may return such
// an error too, about another record.
func afterwards(err error, id idempotent.RecordID) bool {
	switch err := err.(type) {
	case *idempotent.LeaseLostError:
		return err.RecordID == id
	case *idempotent.ReplayUnavailableError:
		return err.RecordID == id
	}
	return false
}

// soon is what a client is told to wait where nothing better is known.
const soon = time.Second

// refused turns an error of the guard into an answer.
func (e *engine) refused(err error) (answer, error) {
	switch g := err.(type) {
	case *idempotent.NoKeyError:
		return e.render(e.problem(MissingKey), 0), nil
	case *idempotent.MismatchError:
		return e.render(e.problem(KeyReused), 0), nil
	case *idempotent.InProgressError:
		return e.refuse(InProgress, g.Ref, g.RetryAfter), nil
	case *idempotent.LeaseLostError:
		// Whoever took the record over is running, or has just finished.
		return e.refuse(InProgress, "", soon), nil
	case *idempotent.UnresolvedError:
		return e.refuse(OutcomeUnknown, g.Ref, g.RetryAfter), nil
	case *idempotent.ReplayUnavailableError:
		return e.refuse(ReplayUnavailable, g.Ref, 0), nil
	case *idempotent.NoTimeError:
		return e.refuse(NoTimeLeft, "", soon), nil
	}
	if errors.Is(err, idempotent.ErrStore) {
		return e.refuse(StoreUnavailable, "", soon), nil
	}
	return answer{}, err // an Operation that cannot be one: a mistake in the program
}

func (e *engine) refuse(s Situation, resource string, retryAfter time.Duration) answer {
	p := e.problem(s)
	p.Resource = resource
	return e.render(p, retryAfter)
}

type requestIDKey struct{}

func withRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// requestIDFrom names the request in the guard's events and records.
func requestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
