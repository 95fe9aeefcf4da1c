// SPDX-License-Identifier: Apache-2.0

package middleware

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"
	ginadapter "github.com/awslabs/aws-lambda-go-api-proxy/gin"
	"github.com/gin-gonic/gin"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

func init() {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard // of gin.Recovery
}

// ginCharge is fixture.charge for gin.
func (w *fixture) ginCharge(c *gin.Context) {
	w.runs.Add(1)
	if _, guarded := idempotent.FromContext(c.Request.Context()); !guarded {
		w.t.Error("the handler has no execution in its context")
	}
	c.Header("Location", "/charges/ch_1")
	c.Data(http.StatusCreated, "application/json", []byte(charged))
}

// event is post as an event of an HTTP API, whose authorizer has verified the
// caller.
func event(mods ...func(*http.Request)) events.APIGatewayV2HTTPRequest {
	r := post(mods...)
	ev := events.APIGatewayV2HTTPRequest{
		RouteKey: "POST /customers/{id}/charges", RawPath: r.URL.Path, Headers: map[string]string{}, Body: `{"amount":1250}`,
	}
	for name := range r.Header {
		ev.Headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	ev.RequestContext.HTTP.Method = r.Method
	ev.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}}}
	return ev
}

type proxy = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// invoke sends an event, and returns its answer as that of a server.
func (w *fixture) invoke(handler proxy, ev events.APIGatewayV2HTTPRequest) *http.Response {
	w.t.Helper()
	a, err := handler(w.t.Context(), ev)
	if err != nil {
		w.t.Fatal(err)
	}
	header := http.Header{}
	for name, value := range a.Headers {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: a.StatusCode, Header: header, Body: io.NopCloser(strings.NewReader(a.Body))}
}

// gateway is the scope of a handler behind the adapter: the caller that API
// Gateway has verified.
func gateway(o *lambdahttp.Options) {
	o.Scope = lambdahttp.ScopeRule{Of: func(ctx context.Context, _ *lambdahttp.Request) (string, error) {
		event, _ := core.GetAPIGatewayV2ContextFromContext(ctx)
		if event.Authorizer == nil || event.Authorizer.JWT == nil {
			return "", nil
		}
		return event.Authorizer.JWT.Claims["sub"], nil
	}}
}

// aroundAdapter guards a whole engine, with a caller that API Gateway has
// verified.
func aroundAdapter(guard *idempotent.Guard, charge gin.HandlerFunc) proxy {
	engine := gin.New()
	engine.POST("/customers/:id/charges", charge)
	adapter := ginadapter.NewV2(engine)
	handler := lambdahttp.APIGatewayV2(guard, adapter.ProxyWithContext, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub") // API Gateway has verified the token
	})
	// In main: lambda.StartHandlerFunc(handler)
	return handler
}

// insideEngine guards the routes of an inner engine. What belongs around the
// guard is in the outer one.
func insideEngine(guarded func(http.Handler) http.Handler, authenticate, charge gin.HandlerFunc) proxy {
	inner := gin.New()
	inner.POST("/customers/:id/charges", charge)

	outer := gin.New()
	outer.Use(gin.Recovery(), authenticate, func(c *gin.Context) {
		c.Request.Pattern = c.FullPath() // the route, for the guard
	})
	outer.POST("/customers/:id/charges", gin.WrapH(guarded(inner)))
	return ginadapter.NewV2(outer).ProxyWithContext
}

// ginAuthenticated is authenticated for gin. A value of c.Set would not reach
// the scope.
func ginAuthenticated(c *gin.Context) {
	caller, ok := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
	if !ok {
		c.Header("WWW-Authenticate", "Bearer")
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), callerKey{}, caller))
}

// An event through the adapter is guarded around it, or inside gin, by the
// caller of the gateway or of a layer of gin.
func TestGin(t *testing.T) {
	t.Parallel()
	open := func(*gin.Context) {}
	for name, c := range map[string]struct {
		build func(*fixture) proxy
		route string
		comma int // the status of a request whose key has a comma
	}{
		"around the adapter": {func(w *fixture) proxy { return aroundAdapter(w.guard, w.ginCharge) }, "POST /customers/{id}/charges", 201},
		"inside, by the gateway's caller": {func(w *fixture) proxy {
			return insideEngine(lambdahttp.Middleware(w.guard, gateway), open, w.ginCharge)
		}, "POST /customers/:id/charges", 400},
		"inside, by gin's caller": {func(w *fixture) proxy {
			return insideEngine(lambdahttp.Middleware(w.guard, caller), ginAuthenticated, w.ginCharge)
		}, "POST /customers/:id/charges", 400},
	} {
		w := newFixture(t)
		handler := c.build(w)
		for _, replayed := range []string{"", "true"} {
			a := w.invoke(handler, event())
			if a.StatusCode != 201 || text(t, a) != charged || a.Header.Get("Idempotent-Replayed") != replayed ||
				a.Header.Get("Location") != "/charges/ch_1" || a.Header.Get("Content-Type") != "application/json" || w.runs.Load() != 1 {
				t.Errorf("%s: got %d %v after %d runs, want 201, replayed %q", name, a.StatusCode, a.Header, w.runs.Load(), replayed)
			}
		}
		if got := w.record().ID.Operation(); got != c.route {
			t.Errorf("%s: the operation is %q, want %q", name, got, c.route)
		}
		other := event(with("Authorization", "Bearer merchant-2"))
		other.RequestContext.Authorizer.JWT.Claims["sub"] = "merchant-2"
		if a := w.invoke(handler, other); a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != "" || w.runs.Load() != 2 {
			t.Errorf("%s: another caller got %d %v after %d runs", name, a.StatusCode, a.Header, w.runs.Load())
		}
		if a := w.invoke(handler, event(func(r *http.Request) { r.Header.Del("Idempotency-Key") })); a.StatusCode != 400 || w.runs.Load() != 2 {
			t.Errorf("%s: without a key: got %d after %d runs", name, a.StatusCode, w.runs.Load())
		}
		if a := w.invoke(handler, event(with("Idempotency-Key", `"a key with a comma, and more"`))); a.StatusCode != c.comma {
			t.Errorf("%s: a key with a comma got %d, want %d", name, a.StatusCode, c.comma)
		}
	}
}

// A guard that calls gin's next handler by hand gets no response from it. It stores none,
// and logs why. The adapter of the page gets it.
func TestGinByHand(t *testing.T) {
	t.Parallel()
	for name, charge := range map[string]gin.HandlerFunc{
		"a body":   func(c *gin.Context) { c.Data(http.StatusCreated, "application/json", []byte(charged)) },
		"raw":      func(c *gin.Context) { _, _ = c.Writer.WriteString(charged) },
		"a status": func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"aborted":  func(c *gin.Context) { c.AbortWithStatus(http.StatusNoContent) },
	} {
		var lines bytes.Buffer
		w := newFixture(t, func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
		guarded := lambdahttp.Middleware(w.guard, caller)
		engine := gin.New()
		engine.POST("/customers/:id/charges", func(c *gin.Context) {
			guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
			c.Abort()
		}, charge)
		a := serve(authenticated(engine), post())
		if body := text(t, a); body != "" && body != charged || a.StatusCode == 200 && body == "" {
			t.Errorf("%s: got %d %.80s", name, a.StatusCode, body)
		}
		if r := w.record(); r.State != driver.StateUnknown || !strings.Contains(lines.String(), "level=ERROR") || !strings.Contains(lines.String(), "give it the writer") {
			t.Errorf("%s: the record is %s, and the log %s", name, r.State, &lines)
		}
	}
}

// A layer of the outer engine refuses without using the key, and recovers from
// a panic that the guard has seen.
func TestGinRefusedAround(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	guarded := lambdahttp.Middleware(w.guard, caller)
	handler := insideEngine(guarded, ginAuthenticated, w.ginCharge)
	anonymous := event(func(r *http.Request) { r.Header.Del("Authorization") })
	if a := w.invoke(handler, anonymous); a.StatusCode != 401 || w.store.claims.Load() != 0 {
		t.Errorf("got %d after %d claims, want 401", a.StatusCode, w.store.claims.Load())
	}
	broken := insideEngine(guarded, ginAuthenticated, func(*gin.Context) { panic("broken") })
	if a := w.invoke(broken, event()); a.StatusCode != 500 || w.record().State != driver.StateUnknown {
		t.Errorf("got %d, and the record is %s, want 500 and unknown", a.StatusCode, w.record().State)
	}
}
