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
