// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Options configure a [Transport]. Only Hosts is required.
type Options struct {
	// Hosts are the servers that honour idempotency keys, as in a URL:
	// "api.example.com" with any port, "127.0.0.1:8080" with this one. A server does
	// not announce whether it does, so it has to be declared.
	Hosts []string
	// Form is how the servers expect a key to be written. Default: [IETF].
	Form Form
	// Header is the name of the request header. Default: Idempotency-Key.
	Header string
	// Methods are the methods whose requests get a key. Default: POST, PATCH.
	Methods []string
	// ContextKey returns the key for a request with that context, or "" for a new
	// random key. In a guarded handler, set it to idempotent.DownstreamKey, and make
	// one request in a step: two different requests must not have one key. A request
	// to a host that Hosts does not list is refused then.
	ContextKey func(context.Context) string

	// MaxAttempts limits how often a request is given to Base. Default: 10. Even with 1,
	// http.Transport can repeat a request with the header Idempotency-Key, whose key
	// stays.
	MaxAttempts int
	// Timeout limits a request with its retries and waits. Default: 1 min. A wait
	// that would end later is not begun.
	Timeout time.Duration
	// AttemptTimeout limits an attempt, up to the end of the part of the response that
	// MaxResponseBody declares. Default: 30 s.
	AttemptTimeout time.Duration
	// MinDelay is the wait before the first retry. It doubles with each retry.
	// Default: 200 ms.
	MinDelay time.Duration
	// MaxDelay limits that wait. Default: 10 s. A longer Retry-After is followed.
	MaxDelay time.Duration
	// Jitter is the random part of a wait, from 0 to 1. It shortens the wait, and
	// lengthens one that Retry-After demands. Default: 0.5. A negative number means no
	// jitter.
	Jitter float64

	// MaxRequestBody limits the bytes of a request body without GetBody, which is read
	// into memory before the first attempt. Default: 6 MiB. A longer body is refused.
	MaxRequestBody int64
	// MaxResponseBody is how many bytes of a response are read before it is returned.
	// Default: 6 MiB. A response that breaks off earlier counts as no response. After
	// that many bytes, the break is an error of reading the body. Set it to a negative
	// number for responses that are streams.
	MaxResponseBody int64
	// RedirectToGet returns the answers 301 and 302 to the client, which follows them
	// with a GET. By default they are errors, because the response to that GET looks
	// like the response to the request. 303 is followed, 307 and 308 are followed with
	// the same key to the hosts of Hosts, and refused to others.
	RedirectToGet bool

	// PendingDir is a folder for the keys of named requests, see [WithName]. It is
	// created if necessary. Several processes can share it. It must be on a local disk
	// whose file system has hard links.
	PendingDir string
	// Retention is how long the servers remember a key after its first request.
	// Default: 24 h. A stored key that is older is refused with [ErrKeyExpired].
	Retention time.Duration

	// Base sends the requests. Default: http.DefaultTransport. If another one repeats
	// requests itself, it has to call the hooks of net/http/httptrace, or else
	// [Error.Sent] can be false for a request that was executed.
	Base http.RoundTripper
}

func (o *Options) complete() error {
	o.Header = http.CanonicalHeaderKey(cmp.Or(o.Header, "Idempotency-Key"))
	if o.Methods == nil {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, 30*time.Second)
	o.MinDelay = cmp.Or(o.MinDelay, 200*time.Millisecond)
	o.MaxDelay = cmp.Or(o.MaxDelay, 10*time.Second)
	o.Jitter = max(0, cmp.Or(o.Jitter, 0.5))
	o.MaxRequestBody = cmp.Or(o.MaxRequestBody, 6<<20)
	o.MaxResponseBody = cmp.Or(o.MaxResponseBody, 6<<20)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	switch {
	case len(o.Hosts) == 0:
		return errors.New("idempotencyclient: Options.Hosts is empty: list the hosts that honour idempotency keys")
	case o.Form > UUID:
		return errors.New("idempotencyclient: unknown Options.Form")
	case o.MaxAttempts < 1 || o.MaxRequestBody < 1:
		return errors.New("idempotencyclient: Options.MaxAttempts or Options.MaxRequestBody is negative")
	case min(o.Timeout, o.AttemptTimeout, o.MinDelay, o.MaxDelay, o.Retention) < 1:
		return errors.New("idempotencyclient: a duration of Options is negative")
	case o.Jitter > 1:
		return errors.New("idempotencyclient: Options.Jitter is above 1")
	}
	return nil
}

// lists reports whether the server of a request is declared.
func (o *Options) lists(req *http.Request) bool {
	return slices.ContainsFunc(o.Hosts, func(host string) bool {
		return strings.EqualFold(host, req.URL.Host) || strings.EqualFold(host, req.URL.Hostname())
	})
}
