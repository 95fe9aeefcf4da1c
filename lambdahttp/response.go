// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Response is an HTTP response, the same for every event type. It is the form
// in which responses are stored and problems are rendered.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // as it is on the wire, never base64
	// Base64 makes the event carry the body in base64, which is required for a
	// body that is not UTF-8 text.
	Base64 bool

	// unstored is why the response cannot be stored: it was sent to the client
	// while the handler wrote it.
	unstored error
}

// The response headers that this package sets.
const (
	headerReplayed = "Idempotent-Replayed" // "true" on the stored outcome of an earlier run
	headerStatus   = "Idempotency-Status"  // the state of the key, see statuses
	headerExpires  = "Idempotency-Expires" // when the stored response expires
	headerExpose   = "Access-Control-Expose-Headers"
)

// replayedHeaders are stored and replayed: they describe the content or the
// resource that the request created. All other headers belong to the exchange.
var replayedHeaders = []string{
	"Cache-Control", "Content-Language", "Content-Location", "Content-Type", "Etag", "Last-Modified",
	"Link", "Location", "Request-Id", "X-Request-Id",
}

// replayList returns the canonical names of the replayed headers: the standard
// ones and more.
func replayList(more []string) []string {
	names := slices.Clone(replayedHeaders)
	for _, name := range more {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return names
}

// only returns the headers of h that are in names, which are canonical.
func only(h http.Header, names []string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if values := h[name]; len(values) > 0 {
			out[name] = values
		}
	}
	return out
}

// neverHeaders and neverPrefixes are headers that would be wrong or harmful in
// a replay: cookies and credentials, dates, framing (RFC 9110, section 7.6.1),
// rate limits, traces, and the headers of this package.
var (
	neverHeaders = []string{
		"Set-Cookie", "Set-Cookie2",
		"Authorization", "Www-Authenticate", "Authentication-Info",
		"Date", "Age", "Expires", "Retry-After",
		"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Traceparent", "Tracestate", "Baggage", "B3", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Uber-Trace-Id", "Server-Timing",
		headerReplayed, headerStatus, headerExpires,
	}
	neverPrefixes = []string{"Proxy-", "Ratelimit", "X-Ratelimit", "X-Rate-Limit", "X-B3-"}
)

// neverReplayed reports whether the header must not be stored, whatever the
// options say.
func neverReplayed(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return slices.Contains(neverHeaders, name) ||
		slices.ContainsFunc(neverPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// canonicalHeaders returns h with canonical names. The values of several
// spellings of one name are joined in the order of the spellings.
func canonicalHeaders(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for _, key := range slices.Sorted(maps.Keys(h)) {
		name := http.CanonicalHeaderKey(key)
		out[name] = append(out[name], h[key]...)
	}
	return out
}
