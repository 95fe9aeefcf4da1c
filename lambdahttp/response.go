// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/once-lambda/once/internal/httpform"
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
	for _, group := range httpform.ExchangeHeaders {
		names = append(names, group.Names...)
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
	out := httpform.Lasting(h)
	maps.DeleteFunc(out, func(name string, _ []string) bool {
		return name == r.key || !slices.Contains(r.named, name) && (!r.all || usedOnce(name))
	})
	return out
}

// usedOnce reports whether the name ends with one of the onceWords.
func usedOnce(name string) bool {
	return slices.Contains(onceWords, name[strings.LastIndexByte(name, '-')+1:])
}
