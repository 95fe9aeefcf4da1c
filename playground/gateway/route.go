// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"strings"
)

// route is one entry of the API's route table.
type route struct {
	key      string // "GET /charges/{id}"
	method   string
	segments []string
}

func parseRoute(key string) (route, error) {
	method, path, ok := strings.Cut(key, " ")
	if !ok || method == "" || !strings.HasPrefix(path, "/") {
		return route{}, fmt.Errorf("gateway: invalid route %q: must be a method and a path, for example \"GET /charges/{id}\"", key)
	}
	return route{key, method, strings.Split(path[1:], "/")}, nil
}

// match returns the path's parameters if the request matches.
func (r *route) match(method, path string) (parameters map[string]string, ok bool) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if method != r.method || len(segments) != len(r.segments) {
		return nil, false
	}
	for i, want := range r.segments {
		got := segments[i]
		name, isParameter := strings.CutPrefix(want, "{")
		switch {
		case isParameter && got != "":
			if parameters == nil {
				parameters = map[string]string{}
			}
			parameters[strings.TrimSuffix(name, "}")] = got
		case got != want:
			return nil, false
		}
	}
	return parameters, true
}

// routeOf returns the key of the route that matches, or "$default".
func (g *Gateway) routeOf(method, path string) (key string, parameters map[string]string) {
	for i := range g.routes {
		if parameters, ok := g.routes[i].match(method, path); ok {
			return g.routes[i].key, parameters
		}
	}
	return "$default", nil
}
