// SPDX-License-Identifier: Apache-2.0

// Package published checks requests and answers against the OpenAPI document of
// a policy, with a third-party validator.
package published

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// API describes POST /charges as an API's own document would: it refers to the
// components of a policy.
type API struct {
	doc    *openapi3.T
	router routers.Router
}

// New returns the API for a policy's document. The error describes what is
// invalid in it, including its examples.
func New(policy []byte) (*API, error) {
	if _, err := load(policy); err != nil {
		return nil, fmt.Errorf("the policy by itself: %w", err)
	}
	doc, err := load(withPaths(policy))
	if err != nil {
		return nil, fmt.Errorf("an API that refers to the policy: %w", err)
	}
	router, err := legacy.NewRouter(doc)
	return &API{doc, router}, err
}

func load(data []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaPatternValidation(), openapi3.EnableMultiError())
}

// withPaths adds the operation to the document. Its own responses may be any
// object, because this package does not check them.
func withPaths(policy []byte) []byte {
	var doc map[string]any
	if err := json.Unmarshal(policy, &doc); err != nil {
		return policy // load has returned the error
	}
	components, _ := doc["components"].(map[string]any)
	ref := func(kind, name string) map[string]any {
		return map[string]any{"$ref": "#/components/" + kind + "/" + name}
	}
	object := map[string]any{"schema": map[string]any{"type": "object"}}
	marks := map[string]any{}
	for name := range sub(components, "headers") {
		marks[name] = ref("headers", name)
	}
	responses := map[string]any{"default": map[string]any{
		"description": "The operation's own response.", "headers": marks,
		"content": map[string]any{"application/json": object, "application/problem+json": object},
	}}
	for name := range sub(components, "responses") {
		if status, ok := strings.CutPrefix(name, "Idempotency"); ok && len(status) == 3 {
			responses[status] = ref("responses", name)
		}
	}
	var parameters []any
	for name := range sub(components, "parameters") {
		parameters = append(parameters, ref("parameters", name))
	}
	doc["paths"] = map[string]any{"/charges": map[string]any{"post": map[string]any{
		"parameters": parameters, "responses": responses,
		"requestBody": map[string]any{"content": map[string]any{"application/json": map[string]any{}}},
	}}}
	data, _ := json.Marshal(doc) // it was decoded from JSON
	return data
}

func sub(m map[string]any, name string) map[string]any {
	s, _ := m[name].(map[string]any)
	return s
}

// Statuses returns how many responses of the policy the operation refers to.
func (a *API) Statuses() int {
	return a.doc.Paths.Find("/charges").Post.Responses.Len() - 1
}

// Request validates a POST /charges with these headers and body against the
// document.
func (a *API) Request(header http.Header, body string) error {
	input, err := a.input(header, body)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(context.Background(), input)
}

// Response validates an answer to such a request against the document.
func (a *API) Response(status int, header http.Header, body string) error {
	input, err := a.input(http.Header{}, "")
	if err != nil {
		return err
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: status, Header: header, Body: io.NopCloser(strings.NewReader(body)),
		Options: &openapi3filter.Options{MultiError: true},
	})
}

func (a *API) input(header http.Header, body string) (*openapi3filter.RequestValidationInput, error) {
	r := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/charges"}, Header: header,
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)),
	}
	route, params, err := a.router.FindRoute(r)
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}, err
}
