// Package gateway serves a Lambda handler over HTTP on a laptop, the way an
// API Gateway HTTP API does with payload format 2.0:
//
//	HTTP request ─► event ─► handler, under a deadline ─► response ─► HTTP
//
// The handler gets what it would get on Lambda: header names in lower case,
// several lines of a header joined with commas, a body in base64 unless it is
// text, the template of the route that matched, and a context that ends at the
// deadline but not when the client goes away. Lambda kills a function at its
// deadline; a goroutine cannot be killed, so here it finishes on its own while
// the client is told 504.
//
// What differs: the limit of 6 MB is on the body and not on the whole event,
// errors of the handler are 502 as on a REST API, and there is no authorizer.
package gateway
