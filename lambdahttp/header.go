package lambdahttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The response headers of this package.
const (
	headerReplayed = "Idempotent-Replayed" // "true" on the stored outcome of an earlier run
	headerStatus   = "Idempotency-Status"  // what became of the key, see status.go
	headerExpires  = "Idempotency-Expires" // until when a retry gets this response
	headerExpose   = "Access-Control-Expose-Headers"
)

// replayedHeaders are stored and replayed: they describe the content, or the
// resource that the request made. Everything else belongs to the exchange.
var replayedHeaders = []string{
	"Cache-Control", "Content-Language", "Content-Location", "Content-Type", "Etag", "Last-Modified",
	"Link", "Location", "Request-Id", "X-Request-Id",
}

// neverHeaders and neverPrefixes are headers that would be wrong or harmful in
// another exchange than their own: cookies and credentials, dates, framing
// (RFC 9110, section 7.6.1), rate limits, traces, and our own marks.
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

// headersOf returns canonical headers from those of an event: a map with one
// value for each name, and one with several. What stands in both is sent once
// (API Gateway: "Output format of a Lambda function for proxy integration").
func headersOf(single map[string]string, multi map[string][]string) http.Header {
	h := make(http.Header, len(single)+len(multi))
	for k, values := range multi {
		k = http.CanonicalHeaderKey(k)
		h[k] = append(h[k], values...)
	}
	for k, v := range single {
		k = http.CanonicalHeaderKey(k)
		if !slices.Contains(h[k], v) {
			h[k] = append(h[k], v)
		}
	}
	return h
}

// canonicalHeaders returns h with canonical names. Of two spellings of one name
// the values follow each other in the order of the spellings.
func canonicalHeaders(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for _, key := range slices.Sorted(maps.Keys(h)) {
		name := http.CanonicalHeaderKey(key)
		out[name] = append(out[name], h[key]...)
	}
	return out
}

// replayList returns the canonical names of what is replayed with these names
// of the user's besides the standard ones.
func replayList(more []string) []string {
	names := slices.Clone(replayedHeaders)
	for _, name := range more {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return names
}

// joined returns headers with one value for each name: several become a list
// (RFC 9110, section 5.3). Set-Cookie, which cannot be joined, never comes here.
func joined(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[name] = strings.Join(values, ", ")
	}
	return out
}
