// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// F10: these tests show what of a request's path belongs to its key.

// hasRoutes names the event types that contain the matched route.
var hasRoutes = map[string]bool{"APIGatewayV2": true, "APIGatewayV1": true, "Middleware": true}

// With one endpoint for several resources, a key that was used for one resource
// is refused for another if the route is known. Without a route the endpoint
// itself is unknown, so every path has its own keys.
func TestKeysOfOneEndpoint(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, route := range []string{"/orders/{id}/pay", catchAll, ""} {
			w := newFixture(t, on)
			w.post(charge(to(route, "/orders/1/pay")))
			status, operation := 201, "POST (no route)"
			if hasRoutes[on.name] && route == "/orders/{id}/pay" {
				status, operation = 422, "POST /orders/{id}/pay"
			}
			if a := w.post(charge(to(route, "/orders/2/pay"))); a.status != status {
				t.Errorf("route %q: status %d, want %d", route, a.status, status)
			}
			if got := w.store.record(t).ID.Operation(); got != operation {
				t.Errorf("route %q: operation %q, want %q", route, got, operation)
			}
		}
	})
}

// A record is found by operation, caller, key and path, whatever the event type
// and the spelling of the path are.
func TestResourceKey(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
		w.post(charge(withKey(`"`+strings.ToUpper(keyA)+`"`), to("", "/orders/a%2fb/caf%C3%A9"), mounted("/prod")))
		path := "/orders/a%2Fb/café"
		if on.name == "APIGatewayV1" {
			path = "/prod" + path // a base path, which the event does not name
		}
		want := idempotent.Key{Operation: "POST (no route)", Scope: "merchant-1", ID: lambdahttp.ResourceKey(path, keyA)}.RecordID()
		if got := w.store.record(t); got == nil || got.ID != want {
			t.Errorf("the record is %v, want %s", got, want)
		}
	})
}

// Two pairs of a path and a key have the same ID only if they are the same.
func TestResourceKeysAreDistinct(t *testing.T) {
	t.Parallel()
	pieces := []string{"", "/", "a", "/a", "//a", "/a/", "/a b", "/a%2Fb", "/a/b", "/a%0A/b", "/a\n/b", "%", "%zz", "/a/b c"}
	seen := map[string][2]string{}
	for _, path := range pieces {
		for _, key := range []string{"a", "/a", "b /a", "/a b", "b", "%0A", "a%0Ab"} {
			id := lambdahttp.ResourceKey(path, key)
			pair := [2]string{lambdahttp.CanonicalPath(path), key}
			if other, ok := seen[id]; ok && other != pair {
				t.Errorf("%q and %q have the ID %q", other, pair, id)
			}
			seen[id] = pair
			if id == key {
				t.Errorf("%q at %q has the ID of the key without a path", key, path)
			}
		}
	}
}

func TestCanonicalPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/orders/1/pay": "/orders/1/pay",
		"/caf%c3%a9":    "/caf%C3%A9",
		"/café":         "/caf%C3%A9",
		"/%6Frders":     "/orders",
		"/a%2fb":        "/a%2Fb",
		"/a/b":          "/a/b",
		"/a%20b":        "/a%20b",
		"/a b":          "/a%20b",
		"/a+b":          "/a+b",
		"/a%2Bb":        "/a+b",
		"/a%3Bb":        "/a%3Bb",
		"/a;b":          "/a%3Bb",
		"/100%":         "/100%25",
		"/100%25":       "/100%25",
		"/%zz%41":       "/%25zz%2541",
		"/\x00\xff\n":   "/%00%FF%0A",
		"//a//":         "//a//",
		"/a?b":          "/a%3Fb",
		"":              "",
	} {
		if got := lambdahttp.CanonicalPath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// A canonical path is printable, keeps the segments of the path, and is
// canonical itself.
func FuzzCanonicalPath(f *testing.F) {
	for _, path := range []string{"/orders/1/pay", "/caf%c3%a9", "/a%2fb", "/100%", "//\x00\n%", ""} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got := lambdahttp.CanonicalPath(path)
		if strings.ContainsFunc(got, func(c rune) bool { return c <= ' ' || c > '~' }) || strings.Count(got, "/") != strings.Count(path, "/") {
			t.Errorf("%q: got %q", path, got)
		}
		if again := lambdahttp.CanonicalPath(got); again != got {
			t.Errorf("%q: got %q, and again %q", path, got, again)
		}
	})
}

// An event of API Gateway has a stage or a base path in its path, or neither. The
// route finds the resource behind them.
func TestResourceOfAPIGateway(t *testing.T) {
	t.Parallel()
	type params = map[string]string
	for _, c := range []struct {
		name, path, route string
		params            params
		stage             string
		want              string
	}{
		{"no base path", "/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "$default", "/orders/1/pay"},
		{"stage", "/prod/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "prod", "/orders/1/pay"},
		{"base path", "/v1/eu/orders/1/pay", "/orders/{id}/pay", params{"id": "1"}, "prod", "/orders/1/pay"},
		{"base path like the route", "/orders/1/orders/1", "/orders/{id}", params{"id": "1"}, "prod", "/orders/1"},
		{"a decoded parameter", "/v1/orders/caf%C3%A9", "/orders/{id}", params{"id": "café"}, "prod", "/orders/caf%C3%A9"},
		{"greedy", "/v1/orders/1/pay", "/{proxy+}", params{"proxy": "orders/1/pay"}, "prod", "/orders/1/pay"},
		{"greedy below a segment", "/v1/api/orders/1", "/api/{rest+}", params{"rest": "orders/1"}, "prod", "/api/orders/1"},
		{"a slash at the end", "/v1/orders/", "/{proxy+}", params{"proxy": "orders"}, "prod", "/orders/"},
		{"the root", "/prod", "/", nil, "prod", "/"},
		{"the root with a slash", "/v1/", "/", nil, "prod", "/"},
		{"the root of an API", "/", "/", nil, "$default", "/"},
		{"no path", "", "/", nil, "$default", "/"},
		{"$default", "/orders/1", "$default", nil, "$default", "/orders/1"},
		{"$default of a stage", "/prod/orders/1", "$default", nil, "prod", "/orders/1"},
		{"$default at the root of a stage", "/prod", "$default", nil, "prod", "/"},
		{"$default, a path like the stage", "/production/1", "$default", nil, "prod", "/production/1"},
		{"$default, a path like its stage", "/$default/1", "$default", nil, "$default", "/$default/1"},
		{"a parameter is missing", "/prod/orders/1", "/orders/{id}", nil, "prod", "/prod/orders/1"},
		{"a parameter that is not in the path", "/v1/orders/1", "/orders/{id}", params{"id": "2"}, "prod", "/v1/orders/1"},
	} {
		look := func(got *string) func(*lambdahttp.Options) {
			return func(o *lambdahttp.Options) {
				single(o)
				o.Operation = func(r *lambdahttp.Request) string { *got = lambdahttp.ResourceOf(r); return "pay" }
			}
		}
		var v2, v1 string
		var ev2 events.APIGatewayV2HTTPRequest
		ev2.RequestContext.HTTP.Method, ev2.RawPath, ev2.RouteKey, ev2.PathParameters = "POST", c.path, "POST "+c.route, c.params
		ev2.RequestContext.Stage, ev2.Headers = c.stage, map[string]string{"idempotency-key": `"` + keyA + `"`}
		ev1 := v1Event{HTTPMethod: "POST", Path: c.path, Resource: c.route, PathParameters: c.params, Headers: ev2.Headers}
		ev1.RequestContext.Stage = c.stage
		if c.route == "$default" {
			ev2.RouteKey, ev1.Resource = "$default", "/$default"
		}
		runs := 0
		if _, err := lambdahttp.APIGatewayV2(newGuard(t), counted[events.APIGatewayV2HTTPRequest](&runs, events.APIGatewayV2HTTPResponse{StatusCode: 201}), look(&v2))(t.Context(), ev2); err != nil {
			t.Error(err)
		}
		if _, err := lambdahttp.APIGatewayV1(newGuard(t), counted[v1Event](&runs, v1Answer{StatusCode: 201}), look(&v1))(t.Context(), ev1); err != nil {
			t.Error(err)
		}
		if v2 != c.want || v1 != c.want {
			t.Errorf("%s: the resource is %q and %q, want %q", c.name, v2, v1, c.want)
		}
	}
}

// Without a route the operation has no name. A handler logs that once, without
// the path, and not if the operation has a name.
func TestUnknownRouteIsLoggedOnce(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			route   string
			options func(*lambdahttp.Options)
			lines   int
		}{
			"no route":             {"", nil, 1},
			"every path":           {catchAll, nil, 1},
			"Options.Operation":    {"", func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "charge" } }, 0},
			"the profile's name":   {"", func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }, 0},
			"not a guarded method": {"", func(o *lambdahttp.Options) { o.Profile.Methods = []string{"PUT"} }, 0},
		} {
			var log bytes.Buffer
			w := newFixture(t, on, guard(func(o *idempotent.Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				o.AllowMissingKey = true
			}), func(o *lambdahttp.Options) {
				if c.options != nil {
					c.options(o)
				}
			})
			w.post(charge(to(c.route, "/charges/secret-1"), without("idempotency-key")))
			w.post(charge(to(c.route, "/charges/secret-2")))
			w.post(charge(to(c.route, "/charges/secret-3")))
			if got := strings.Count(log.String(), "Options.Operation"); got != c.lines || strings.Contains(log.String(), "secret") {
				t.Errorf("%s: got %d lines, want %d:\n%s", name, got, c.lines, log.String())
			}
		}
	})
}
