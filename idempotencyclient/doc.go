// SPDX-License-Identifier: Apache-2.0

// Package idempotencyclient sends requests to APIs that accept an idempotency key:
// each logical request gets one key, and a retry never gets a new one. It uses the
// standard library only, and works with any server that has a header like
// Idempotency-Key.
//
//	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
//		o.Hosts = []string{"api.example.com"} // they keep idempotency keys
//	})
//	client := &http.Client{Transport: transport}
//	resp, err := client.Post("https://api.example.com/charges", "application/json", body)
//
// One call of [Transport.RoundTrip] is one logical request, unless the key comes
// from elsewhere: from the request's own header, from [WithName], or from
// [Options.ContextKey]. In a handler of package idempotent, set ContextKey to
// idempotent.DownstreamKey.
//
// Only methods of [Options.Methods] get a key. All other requests are passed to
// [Options.Base] unchanged. A request to a host that [Options.Hosts] does not list
// gets no key and is sent once, because it is not known that the server refuses a
// duplicate.
//
// [Check] turns a response that is no success into a [*Problem]. A request without
// a complete response returns an [*Error]. Neither contains a key, a body or the
// query of a URL. docs/idempotencyclient.md lists which answers are repeated.
package idempotencyclient

// Chapters, each of which refers only to those below it:
//
//	transport.go  New, and which requests get a key
//	call.go       one logical request: its attempts, which answers are repeated, complete bodies
//	options.go    Options
//	key.go        keys, on disk too; their names and their forms
//	problem.go    Check, problems, and Error
