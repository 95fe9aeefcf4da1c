// SPDX-License-Identifier: Apache-2.0

// Package policy renders what clients have to know about the keys of a handler, which a
// server should publish (draft-ietf-httpapi-idempotency-key-header-07, section 2.5):
// Markdown for people, OpenAPI for programs. A function that serves requests does not
// need this package: render the policy in a command or a test, and publish the result.
package policy

import (
	"net/http"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// Policy describes to clients how a handler uses keys.
type Policy struct{ rules *describe.Policy }

// New returns the policy of a handler of package lambdahttp that is built with the same
// arguments, so the two always agree. It panics if an option is invalid, like the
// handler's constructor.
func New(g *idempotent.Guard, optFns ...func(*lambdahttp.Options)) *Policy {
	handler := lambdahttp.Middleware(g, optFns...)(http.NotFoundHandler())
	return &Policy{handler.(describe.Handler).Describe()}
}

// Markdown renders the policy as a page for clients.
func (p *Policy) Markdown() string { return markdown(p.rules) }

// OpenAPI renders the policy as an OpenAPI 3.1.0 document in JSON. It consists
// of components only, to which the description of an API refers:
//
//	parameters:
//	  - $ref: 'idempotency.json#/components/parameters/IdempotencyKey'
//	responses:
//	  '409':
//	    $ref: 'idempotency.json#/components/responses/Idempotency409'
//
// There is one response for each status, with an example for each situation,
// and one header for each that this package sets on the handler's own
// responses. If Content-Digest is required there is a second parameter. If the
// key is a member of the body there is a schema instead of the parameter. What
// OpenAPI cannot express, such as the retention, is under
// "x-idempotency-policy".
func (p *Policy) OpenAPI() []byte { return openAPIOf(p.rules) }
