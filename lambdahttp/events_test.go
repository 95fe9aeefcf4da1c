package lambdahttp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// An event without a method may be a POST of another payload format, so it must
// not run unguarded.
func TestEventWithoutMethod(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		_, err := w.send(t.Context(), request{})
		var want *lambdahttp.EventError
		if !errors.As(err, &want) || !strings.Contains(err.Error(), on.wants) || w.runs != 0 {
			t.Errorf("got %v after %d runs, want an EventError with %q in it", err, w.runs, on.wants)
		}
	})
}

// A hostile event gets a response, whatever it contains.
func TestHostileEvents(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		long := strings.Repeat("/x", 5000)
		for name, c := range map[string]struct {
			mods   []func(*request)
			status int
		}{
			"nothing but a method": {[]func(*request){func(r *request) { *r = request{method: "POST"} }}, 201},
			"no path, no type":     {[]func(*request){func(r *request) { r.path, r.route = "", "" }, without("content-type")}, 201},
			"long path":            {[]func(*request){func(r *request) { r.path, r.route = long, "" }}, 201},
			"unprintable path":     {[]func(*request){func(r *request) { r.path, r.route = "/\x00\xff\n", "" }}, 201},
			"bare separators":      {[]func(*request){func(r *request) { r.query = "&&=&&;=" }}, 201},
			"NUL key":              {[]func(*request){withKey("\x00")}, 400},
			"long key":             {[]func(*request){withKey(`"` + strings.Repeat(`\"`, 1<<20))}, 400},
			"deep JSON":            {[]func(*request){withBody(strings.Repeat("[", 100_000))}, 201},
			"long exponent":        {[]func(*request){withBody("1e" + strings.Repeat("9", 1000))}, 201},
			"two content types":    {[]func(*request){withHeader("Content-Type", "text/plain")}, 201},
			"method in lower case": {[]func(*request){withMethod("post")}, 201},
		} {
			w := newWorld(t, on)
			if a := w.post(charge(c.mods...)); a.status != c.status {
				t.Errorf("%s: status %d, want %d", name, a.status, c.status)
			}
		}
	})
}

func TestOperations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    lambdahttp.Request
		want string
	}{
		{lambdahttp.Request{Method: "POST", Path: "/prod/charges/1", Route: "/charges/{id}"}, "POST /charges/{id}"},
		{lambdahttp.Request{Method: "PATCH", Path: "/charges/ä"}, "PATCH /charges/ä"},
		{lambdahttp.Request{Method: "POST", Path: "/" + strings.Repeat("x", 250)}, "POST /" + strings.Repeat("x", 250)},
		{lambdahttp.Request{Method: "POST", Path: "/" + strings.Repeat("x", 251)}, "POST ~hash"},
		{lambdahttp.Request{Method: "POST", Path: "/\n"}, "POST ~hash"},
		{lambdahttp.Request{Method: "POST", Path: "/\xff"}, "POST ~hash"},
	} {
		got := lambdahttp.OperationOf(&c.r)
		if len(got) == len("POST ~")+43 && strings.HasPrefix(got, "POST ~") {
			got = "POST ~hash"
		}
		if got != c.want {
			t.Errorf("%s %.20q %s: operation %q, want %q", c.r.Method, c.r.Path, c.r.Route, got, c.want)
		}
	}
	a := lambdahttp.OperationOf(&lambdahttp.Request{Method: "POST", Path: "/\x01"})
	b := lambdahttp.OperationOf(&lambdahttp.Request{Method: "POST", Path: "/\x02"})
	if a == b {
		t.Error("two paths have the same hash")
	}
}

// The handler gets the unchanged event, and its execution.
func TestHandlerSeesTheEvent(t *testing.T) {
	t.Parallel()
	ev := load[events.APIGatewayV2HTTPRequest](t, "apigatewayv2-post.json")
	w := newWorld(t, wires[0])
	h := lambdahttp.APIGatewayV2(w.guard, func(ctx context.Context, got events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if got.Body != ev.Body || len(got.Headers) != len(ev.Headers) || got.RequestContext.Authorizer.JWT.Claims["sub"] != "merchant-1" {
			t.Errorf("the handler got another event: %+v", got)
		}
		if x, ok := idempotent.FromContext(ctx); !ok || x.RecordID().Operation() != "POST /charges" {
			t.Error("the handler has no execution of its operation")
		}
		clear(got.Headers) // a handler may change its event
		return events.APIGatewayV2HTTPResponse{StatusCode: 200}, nil
	}, func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })
	if a, err := h(t.Context(), ev); err != nil || a.StatusCode != 200 {
		t.Errorf("got %+v %v", a, err)
	}
}
