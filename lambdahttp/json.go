// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/jsonpointer"
	"github.com/once-lambda/once/internal/jsontypes"
	"github.com/once-lambda/once/internal/timing"
)

// JSON is a handler whose request and response bodies are JSON. Its methods
// return it guarded, for each event type and for net/http:
//
//	create := lambdahttp.JSON[NewOrder, Order]{Handle: create, Check: check}
//	lambda.StartHandlerFunc(create.APIGatewayV2(guard, options))
//
// A request passes these steps. A request that is refused before the key is
// claimed leaves no record, so the client can correct it and send it with the
// same key:
//
//	body   ─► decoded into a Req, else 400 with the code invalid_body
//	Check  ─► completes and validates it
//	claim  ─► as for every handler of this package
//	Handle ─► does the work, once per key
//	Respond ─► sets status and headers; the response is stored and sent
//
// An error of Check or Handle can be a [*Problem], or wrap one with a single %w each
// time, which becomes the response. A Problem in a joined error does not, because the
// other errors count too. From Handle, a Problem alone is the outcome of the key, and a
// retry gets it again; idempotent.NotExecuted(&Problem{…}) lets the key run again, and
// idempotent.Unknown(&Problem{…}) leaves its outcome unknown. In these two it can be
// joined with its cause. All other errors mean what they mean for every handler of this
// package.
//
// A body has to be one JSON document without duplicate member names, and can be
// compressed by gzip or deflate, see [WholeRequest]. Members that Req does not have are
// ignored; one that has the name of a field in another letter case is refused. If Req
// is a struct without fields, the body can be empty. If Req has a method UnmarshalJSON,
// the text of its error is shown to the client, or the error can be a *Problem.
type JSON[Req, Resp any] struct {
	// Handle does the work of a request. Required.
	Handle func(ctx context.Context, in Req) (Resp, error)

	// Check completes in from the rest of the request, for example from
	// [Request.PathValue] or [Request.Claim], and validates it. It is called before
	// the key is claimed, also for a retry, and must not have effects. For a request
	// of a guarded method, ctx ends as that of [Options.Scope]. It must be
	// safe for concurrent use. Default: every decoded body is accepted.
	Check func(ctx context.Context, r *Request, in *Req) error

	// Respond changes the response to a request that Handle processed: its status,
	// which is 200, and its headers. The body is the encoding of out. Default: no
	// change.
	Respond func(r *Response, out Resp)
}

// APIGatewayV2 returns j guarded by g, like the function [APIGatewayV2].
func (j JSON[Req, Resp]) APIGatewayV2(
	g *idempotent.Guard, optFns ...func(*Options),
) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return serveJSON(j, &eventV2, g, optFns)
}

// APIGatewayV1 returns j guarded by g, like the function [APIGatewayV1].
func (j JSON[Req, Resp]) APIGatewayV1(
	g *idempotent.Guard, optFns ...func(*Options),
) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	return serveJSON(j, &eventV1, g, optFns)
}

// ALB returns j guarded by g, like the function [ALB].
func (j JSON[Req, Resp]) ALB(
	g *idempotent.Guard, optFns ...func(*Options),
) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
	return serveJSON(j, &eventALB, g, optFns)
}

// FunctionURL returns j guarded by g, like the function [FunctionURL].
func (j JSON[Req, Resp]) FunctionURL(
	g *idempotent.Guard, optFns ...func(*Options),
) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	return serveJSON(j, &eventURL, g, optFns)
}

// Handler returns j guarded by g, like a handler behind [Middleware].
func (j JSON[Req, Resp]) Handler(g *idempotent.Guard, optFns ...func(*Options)) http.Handler {
	e := j.engine("Handler", g, optFns)
	return &middleware{e, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := j.serve(r.Context(), e)
		SetError(r.Context(), err)
		if response.Status == 0 {
			return
		}
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.Status)
		_, _ = w.Write(response.Body) // an error: the client is gone, and the outcome does not change
	})}
}

func serveJSON[Req, Resp, Ev, Ans any](
	j JSON[Req, Resp], t *eventType[Ev, Ans], g *idempotent.Guard, optFns []func(*Options),
) func(context.Context, Ev) (Ans, error) {
	e := j.engine(t.name, g, optFns)
	return serveEvents(t, e, func(ctx context.Context, event Ev) (ans Ans, err error) {
		response, err := j.serve(ctx, e)
		x := exchange[Ev, Ans]{t: t, event: event}
		x.replace(&response)
		return x.ans, err
	})
}

// engine returns the engine of j. name is the name of the method, for messages.
func (j JSON[Req, Resp]) engine(name string, g *idempotent.Guard, optFns []func(*Options)) *engine {
	if g == nil {
		panic("lambdahttp: JSON." + name + ": the guard is nil")
	}
	if j.Handle == nil {
		panic("lambdahttp: JSON." + name + ": JSON.Handle is nil")
	}
	e := newEngine(g, translates[Resp](j.translate), optFns)
	names := jsontypes.NamesIn(reflect.TypeFor[Req]())
	e.prepare = func(ctx context.Context, r *Request) (context.Context, error) { return j.prepare(ctx, e, r, names) }
	return e
}

// translate returns the response for a Resp that a handler passes to a
// transaction.
func (j JSON[Req, Resp]) translate(v any) (r Response, ok bool, err error) {
	out, ok := in[Resp](v)
	if !ok {
		return r, false, nil
	}
	r, err = j.Response(out)
	return r, true, err
}

type inputKey struct{}

// prepare returns a context with the request's input, checked. names are those of Req.
func (j JSON[Req, Resp]) prepare(ctx context.Context, e *engine, r *Request, names *jsonpointer.Names) (context.Context, error) {
	in := new(Req)
	if err := r.decode(in, names); err != nil {
		return nil, err
	}
	if j.Check != nil {
		err := timing.Do(ctx, e.now, func(ctx context.Context) error { return j.Check(ctx, r, in) })
		if err != nil {
			return nil, err
		}
	}
	return context.WithValue(ctx, inputKey{}, in), nil
}

// serve does the work of the request whose input is in ctx.
func (j JSON[Req, Resp]) serve(ctx context.Context, e *engine) (Response, error) {
	in := ctx.Value(inputKey{}).(*Req)
	out, err := j.Handle(ctx, *in)
	if err == nil {
		return j.Response(out)
	}
	declared := idempotent.IsNotExecuted(err) || idempotent.IsUnknown(err)
	p, ok := problemIn(err)
	if declared { // the outcome is decided, so the problem is only the response
		p, ok = errors.AsType[*Problem](err)
	}
	if !ok {
		return Response{}, err
	}
	response, invalid := e.ownProblem(p)
	switch {
	case invalid != nil:
		return Response{}, errors.Join(err, invalid)
	case declared:
		return response, err
	}
	return response, nil
}

// Response returns the response to a request for which Handle returned out, for
// example as evidence: see [Resolved]. It returns an error if encoding/json cannot
// encode out.
func (j JSON[Req, Resp]) Response(out Resp) (Response, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		return Response{}, fmt.Errorf("lambdahttp: cannot encode a %T as the response: %w", out, err)
	}
	r := Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}}
	if j.Respond != nil {
		j.Respond(&r, out)
	}
	r.Body = bytes.TrimSuffix(body.Bytes(), []byte{'\n'})
	return r, nil
}

// Resolved returns the evidence that Handle's work was done, with the response to a
// request for which it returned out: see the function [Resolved]. A [idempotent.ResolveFunc]
// can return both results. It returns an error if encoding/json cannot encode out.
func (j JSON[Req, Resp]) Resolved(out Resp) (idempotent.Resolution, error) {
	r, err := j.Response(out)
	if err != nil {
		return idempotent.Resolution{}, err
	}
	return Resolved(r), nil
}

// PathValue returns the part of the path that the wildcard of that name in the
// route matched: the value of {id} in "/charges/{id}". It returns "" if the route
// has no such wildcard, and for events without routes.
func (r *Request) PathValue(name string) string {
	switch event := r.Event.(type) {
	case *events.APIGatewayV2HTTPRequest:
		return event.PathParameters[name]
	case *events.APIGatewayProxyRequest:
		return event.PathParameters[name]
	case *http.Request:
		return event.PathValue(name)
	}
	return ""
}

// decode decodes the body into the value that in points to, whose type has names. The
// text of a *Problem contains no part of the body. It sets r.document, so it must be
// called before any rule.
func (r *Request) decode(in any, names *jsonpointer.Names) error {
	coding, body, err := r.uncoded()
	if err != nil {
		return err
	}
	if t := reflect.TypeOf(in).Elem(); len(body) == 0 && t.Kind() == reflect.Struct && t.NumField() == 0 {
		return nil
	}
	if media := r.mediaType(); media != "" && !isJSON(media) {
		return invalidDocument("its Content-Type is not JSON; send application/json")
	}
	if coding != "" {
		return invalidDocument("its Content-Encoding cannot be undone; send it with gzip, or without one")
	}
	r.document, err = canonical.JSON(body) // refuses duplicate names, which encoding/json accepts
	if err != nil {
		return invalidDocument(strings.TrimPrefix(err.Error(), "canonical JSON: "))
	}
	if string(r.document) == "null" { // encoding/json would leave the zero value
		return invalidDocument("the document is null")
	}
	if name, ok := names.Miscased(r.document); ok { // encoding/json would decode it as that name
		return invalidDocument(miscased(name))
	}
	err = json.Unmarshal(body, in)
	if err == nil {
		return nil
	}
	if p, ok := problemIn(err); ok {
		return p
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(wrong.Value, " ") // "number 12": without the number
		return invalidDocument(fmt.Sprintf("%s has the wrong type: %s", member(wrong.Field), kind))
	}
	return invalidDocument(shortened(err.Error()))
}

func invalidDocument(why string) *Problem {
	return &Problem{Status: http.StatusBadRequest, Code: "invalid_body", Detail: because("The body cannot be read.", why)}
}

// shortened returns the text of an error, which can quote a long value of the body, in
// at most 200 bytes.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// member names the member of a document at a path of encoding/json.
func member(path string) string {
	if path == "" {
		return "the document"
	}
	return fmt.Sprintf("the member %q", path)
}
