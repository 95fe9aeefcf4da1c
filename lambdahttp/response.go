// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"maps"
	"net/http"
	"regexp"
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

// The names of headers that this package sets, see headers.
const (
	nameReplayed = "Idempotent-Replayed"
	nameStatus   = "Idempotency-Status"
	nameExpires  = "Idempotency-Expires"
	nameExposed  = "Access-Control-Expose-Headers"
)

// optionalHeaders are the names that Profile.ResponseHeaders can have.
var optionalHeaders = []string{nameStatus, nameExpires, nameExposed}

// exchangeHeaders are headers that are wrong or harmful in another exchange than
// the one for which they were made. They are never stored. A pattern "X-*"
// stands for every name with that prefix.
var exchangeHeaders = []struct {
	why   string // for docs/reports/limits.md
	names []string
}{
	{"cookies and credentials", []string{"Authentication-Info", "Authorization", "Set-Cookie", "Set-Cookie2"}},
	{"times of one exchange", []string{"Age", "Date", "Expires", "Retry-After"}},
	{"the framing and the path of one message, and the headers that `Connection` names", []string{
		"Connection", "Content-Length", "Keep-Alive", "Proxy-*", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via",
	}},
	{"the address at which the server is reached now", []string{"Alt-Svc"}},
	{"rate limits, which change with every request", []string{"Ratelimit*", "X-Rate-Limit*", "X-Ratelimit*"}},
	{"traces and measurements of one request", []string{
		"B3", "Baggage", "Server-Timing", "Traceparent", "Tracestate", "Uber-Trace-Id", "X-Amzn-Trace-Id", "X-B3-*", "X-Cloud-Trace-Context",
	}},
	{"API Gateway's copies of such headers", []string{"X-Amzn-Remapped-*"}},
}

// ownHeaders are set by this package on each response, and never stored either.
var ownHeaders = []string{nameExpires, nameStatus, nameReplayed}

// onceWords are the last words of header names whose value is made to be used
// once, or is a secret: "Csrf-Token", "Client-Secret", "Replay-Nonce".
var onceWords = []string{"Nonce", "Secret", "Token"}

// bodyHeaders are always stored: without them a client cannot read the body.
var bodyHeaders = []string{"Content-Encoding", "Content-Range", "Content-Type"}

// allHeaders, in Options.ReplayHeaders, stands for every header except those
// whose name ends with one of the onceWords.
const allHeaders = "*"

// headerRule is Options.ReplayHeaders: which headers are stored and replayed.
type headerRule struct {
	all   bool
	named []string // canonical
	key   string   // the canonical name of the key's header: a handler may repeat it in its response
}

func newHeaderRule(names []string, key string) headerRule {
	if len(names) == 0 {
		names = []string{allHeaders}
	}
	r := headerRule{named: slices.Clip(bodyHeaders), key: http.CanonicalHeaderKey(key)}
	for _, name := range names {
		if name == allHeaders {
			r.all = true
		} else {
			r.named = append(r.named, http.CanonicalHeaderKey(name))
		}
	}
	return r
}

// list returns the names of the replayed headers, sorted. Those that "*"
// includes are left out.
func (r headerRule) list() (names []string) {
	for _, name := range r.named {
		if !r.all || usedOnce(name) {
			names = append(names, name)
		}
	}
	if r.all {
		names = append(names, allHeaders)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// omitted returns the names and patterns that "*" does not include, sorted. It
// returns nil for a rule without "*".
func (r headerRule) omitted() (names []string) {
	if !r.all {
		return nil
	}
	for _, group := range exchangeHeaders {
		names = append(names, group.names...)
	}
	for _, word := range onceWords {
		names = append(names, "*-"+word)
	}
	names = append(names, r.key)
	slices.Sort(names)
	return names
}

// filter returns the headers of h, whose names are canonical, that are stored
// and replayed.
func (r headerRule) filter(h http.Header) http.Header {
	out := lasting(h)
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return name == r.key || !slices.Contains(r.named, name) && (!r.all || usedOnce(name))
	})
	return out
}

// usedOnce reports whether the name ends with one of the onceWords.
func usedOnce(name string) bool {
	return slices.Contains(onceWords, name[strings.LastIndexByte(name, '-')+1:])
}

// lasting returns the headers of h, whose names are canonical, that do not
// belong to one exchange.
func lasting(h http.Header) http.Header {
	out := make(http.Header, len(h))
	for name, values := range h {
		if name == "Www-Authenticate" {
			values = slices.DeleteFunc(slices.Clone(values), oneTimeChallenge.MatchString)
		}
		if !ofExchange(name) {
			out[name] = values
		}
	}
	for _, list := range h["Connection"] { // RFC 9110, section 7.6.1
		for name := range strings.SplitSeq(list, ",") {
			delete(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return out
}

// oneTimeChallenge matches a value of WWW-Authenticate with a challenge that the
// client can answer once: one with a nonce (RFC 7616), or with the data of a
// handshake (RFC 4559).
var oneTimeChallenge = regexp.MustCompile(`(?i)\bnonce\s*=|\b(?:digest|negotiate|ntlm)\s+[^\s,]`)

// ofExchange reports whether the header is never stored, whatever the options
// are.
func ofExchange(name string) bool {
	name = http.CanonicalHeaderKey(name)
	for _, group := range exchangeHeaders {
		for _, pattern := range group.names {
			if prefix, ok := strings.CutSuffix(pattern, "*"); name == pattern || ok && strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return slices.Contains(ownHeaders, name)
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
