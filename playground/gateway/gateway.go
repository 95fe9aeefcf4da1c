// SPDX-License-Identifier: Apache-2.0

// Package gateway serves a Lambda handler over HTTP on a laptop, as an API
// Gateway HTTP API does with payload format 2.0:
//
//	HTTP request ─► event ─► handler, under a deadline ─► response ─► HTTP
//
// The handler gets the same event as on Lambda: header names in lower case,
// several lines of a header joined with commas, and a body in base64 unless it is
// text. The API's only route is "$default". Its context ends at the
// deadline, but not when the client disconnects. Lambda kills a function at its
// deadline. A goroutine cannot be killed, so a handler in this process finishes on
// its own, while the client gets 504. Package worker has handlers that are killed.
//
// There are three differences: the limit of 6 MB applies to the body and not to
// the whole event, errors of the handler are 502 as on a REST API, and there is
// no authorizer.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

// Handler is a Lambda handler for an HTTP API.
type Handler func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// MaxPayload is Lambda's limit for the request and the response of a
// synchronous invocation, in bytes.
const MaxPayload = 6 * 1024 * 1024

// Options are options of [New]. The zero value of each field is its default.
type Options struct {
	// Timeout is the function's time-out: how long after its start the
	// handler's context ends. Default: 10 s.
	Timeout time.Duration
	// Logger gets the errors and panics: their type, not their text. Default:
	// slog.Default.
	Logger *slog.Logger
}

// Gateway is an [http.Handler] that invokes a Lambda handler. It is safe for
// concurrent use.
type Gateway struct {
	handler Handler
	timeout time.Duration
	logger  *slog.Logger
	running sync.WaitGroup
}

// New returns a gateway to h. The time-out must be positive.
func New(h Handler, optFns ...func(*Options)) (*Gateway, error) {
	o := Options{Timeout: 10 * time.Second, Logger: slog.Default()}
	for _, f := range optFns {
		f(&o)
	}
	if o.Timeout <= 0 {
		return nil, fmt.Errorf("gateway: the time-out is %s; it must be positive", o.Timeout)
	}
	return &Gateway{handler: h, timeout: o.Timeout, logger: o.Logger}, nil
}

// ServeHTTP invokes the handler and answers with its response.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	requestID := rand.Text()
	w.Header().Set("Apigw-Requestid", requestID)
	body, err := readBody(w, r)
	switch {
	case errors.Is(err, errTooLarge):
		writeTooLarge(w)
		return
	case err != nil: // the client disconnected, or its request is malformed
		writeMessage(w, http.StatusBadRequest, "Bad Request")
		return
	}
	event := newEvent(r, body, requestID, now)

	// Lambda continues when the client has disconnected.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), now.Add(g.timeout))
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: requestID})
	done := make(chan invocation, 1)
	g.running.Go(func() {
		defer cancel()
		done <- g.invoke(ctx, event)
	})
	select {
	case i := <-done:
		g.answer(w, event, i)
	case <-ctx.Done():
		select { // a handler that ends at its deadline may just have answered
		case i := <-done:
			g.answer(w, event, i)
		default:
			g.logger.Error("gateway: the handler outlived its deadline", "method", event.RequestContext.HTTP.Method, "request_id", requestID)
			writeMessage(w, http.StatusGatewayTimeout, "Endpoint request timed out")
		}
	}
}

// Drain waits until no handler is running, including those that outlived their
// deadline. It returns earlier if the context ends.
func (g *Gateway) Drain(ctx context.Context) error {
	idle := make(chan struct{})
	go func() {
		g.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// invocation is the result of one call of the handler.
type invocation struct {
	response events.APIGatewayV2HTTPResponse
	err      error
	panicked bool
}

// invoke calls the handler. Lambda ends the process of a handler that panics;
// here the process continues, and only the request fails.
func (g *Gateway) invoke(ctx context.Context, event events.APIGatewayV2HTTPRequest) (i invocation) {
	i.panicked = true
	defer func() {
		if i.panicked {
			// The panic's text may contain what must not be logged.
			g.logger.Error("gateway: the handler panicked", "method", event.RequestContext.HTTP.Method, "request_id", event.RequestContext.RequestID,
				"panic_type", fmt.Sprintf("%T", recover()), "at", panicOrigin())
		}
	}()
	i.response, i.err = g.handler(ctx, event)
	i.panicked = false
	return i
}

// panicOrigin returns the line that panicked. It is called by the function that
// recovers.
func panicOrigin() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// loggable is an error that has a text without data of the request or response.
type loggable interface {
	error
	slog.LogValuer
}

// answer writes the result of the call.
func (g *Gateway) answer(w http.ResponseWriter, event events.APIGatewayV2HTTPRequest, i invocation) {
	id := event.RequestContext.RequestID
	if !i.panicked && i.err == nil {
		i.err = writeResponse(w, i.response)
		if i.err == nil {
			return
		}
	}
	if i.err != nil {
		attrs := []any{"method", event.RequestContext.HTTP.Method, "request_id", id, "error_type", fmt.Sprintf("%T", i.err)}
		if text, ok := errors.AsType[loggable](i.err); ok {
			attrs = append(attrs, "error", text)
		}
		g.logger.Error("gateway: the handler failed", attrs...)
	}
	writeMessage(w, http.StatusBadGateway, "Internal Server Error")
}
