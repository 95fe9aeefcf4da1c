// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/sfv"
)

// Options configure the constructors of this package. The zero value of each
// field is its documented default; only Scope has no default.
//
// The context of Scope, Fingerprint, BeforeReplay and Accepted ends when half of the time
// has passed that is left until the request must be answered. If one of them has not
// returned by then, the client gets [NoTimeLeft].
type Options struct {
	// Profile is the form of the header and of the answers: name, syntax, methods
	// and responses. A zero field has the value of [IETF]. Default: IETF.
	Profile Profile

	// KeyFrom is where the request carries the key, if not in the profile's
	// header: [BodyField]. Default: the header.
	KeyFrom KeySource

	// Scope determines for which caller a key is valid: [Claim], [Authorizer],
	// [IAMRole], [IAMPrincipal], [CognitoIdentity], [APIKeyID], [LambdaTenant],
	// [TrustedHeader], [SingleTenant] if all callers share their keys, or a
	// custom rule. Required, because the client chooses the key: without a
	// scope one client could get the response of another.
	Scope ScopeRule

	// Operation names the operation, see [idempotent.Key]. Each operation has
	// its own keys. Two services that share one table need different names for
	// an endpoint that both call "POST /charges". Names are in logs and metrics,
	// so they must not contain data of a request, such as the path. Default: the
	// profile's name. If it has no name: the method and the route's template,
	// "POST /charges/{id}".
	//
	// If [Request.Route] is unknown, the default is "POST (no route)" for all
	// endpoints, and the path belongs to the key, as with
	// [Profile.PerResource]. This is the case behind "$default" and "/{proxy+}",
	// load balancers, function URLs and prefix patterns of a ServeMux. The
	// guard's Logger then recommends once to set Operation to a function that
	// returns a name for each endpoint.
	Operation func(*Request) string

	// Ref returns what a request is about, without secrets, such as an order number in
	// its path or its body. It is stored when the request claims its key, so that a run
	// that is killed is found by it: see [idempotent.Key]. Clients get it as resource of
	// a 202 and a 409. A panic of it is logged. Default: none.
	Ref func(*Request) string

	// Fingerprint determines which requests with one key are the same request:
	// [WholeRequest], [Fields], [RawBody], [VerifiedDigest] or a custom rule.
	// After a change of the rule, retries of requests from before the change
	// are refused as other requests. Default: the rule of the profile, which compares
	// nothing but the key for Webhook, and is WholeRequest for the others.
	Fingerprint FingerprintRule

	// ServerErrors determines what a response of 5xx does to the key. Default:
	// the value of the profile, which is StoreServerErrors for Stripe, and
	// FollowRecovery for the others.
	ServerErrors ServerErrors

	// BeforeReplay is called before a stored response is replayed. It can
	// refuse with [RefuseReplay] if the resource was deleted or changed: the
	// client then gets [ReplayUnavailable]. Any other error is returned to
	// Lambda unchanged. BeforeReplay must not change the stored response, and
	// must be safe for concurrent use. It is not called for the outcome of an
	// idempotent.Final error. Default: every stored response is replayed.
	BeforeReplay func(ctx context.Context, r *Request, stored Response) error

	// ReplayHeaders are the names of the response headers that are stored and
	// replayed. "*" stands for all headers of the handler's response, except
	// those whose name ends with -Nonce, -Secret or -Token: name each of these
	// that a retry may get, as in {"*", "X-Next-Token"}. Content-Type,
	// Content-Encoding and Content-Range are always replayed, because the body
	// cannot be read without them. The profile's header, and headers that belong
	// to one exchange only (cookies, credentials, times, rate limits, traces,
	// framing), never are, and are not allowed here. Default: "*".
	ReplayHeaders []string

	// Accepted answers a request with 202 instead of 409 while another request
	// with its key is running. The location that it returns, the URL of a
	// resource that reports progress, becomes the Location header; an empty
	// location sends no header. Nothing runs in the background. It must be safe
	// for concurrent use. Default: 409.
	Accepted func(ctx context.Context, r *Request, record idempotent.RecordID) (location string)

	// GatewayTimeout is how long the gateway waits for a response. If the
	// guard's WaitFor lets a request wait for a running one with the same key,
	// it waits at most GatewayTimeout minus [idempotent.Operation.LeaseMargin].
	// If it is set, a request with a key is also answered before it: the handler's
	// context ends [idempotent.Operation.DeadlineReserve] before it, if that is before the
	// end of the function's time. Default: 29 s, for WaitFor only. That is the default
	// quota of a REST API; since June 2024 AWS raises it on request for Regional and
	// private ones. An HTTP API has 30 s.
	GatewayTimeout time.Duration

	// DocsURL is the page about idempotency keys for the clients of your API: an
	// absolute URL, or a path of the API itself, "/docs/idempotency". Responses of
	// 400, 409 and 422 link to it with rel="describedby", and the type of a problem is
	// this address, '#' and the situation (RFC 9457, section 3.1.1). Default: no link,
	// and the type "about:blank", so that clients recognise a problem by its code.
	DocsURL string

	// Guard changes the guard's options for this handler, for example Recovery,
	// Retention or WaitFor. With AllowMissingKey a request without a key runs
	// unguarded; otherwise a request of a guarded method without a key is
	// refused with 400. It is called once, at construction. The codec is
	// always the one of this package: it stores the handler's response, or a
	// Response, filtered as for a replay. A retention shorter than the
	// profile's MinRetention is an error. Default: the guard's options
	// unchanged.
	Guard func(*idempotent.Operation)

	// The remaining fields apply to Middleware only.

	// MaxRequestBody is the longest body, in bytes, of a request with a key.
	// The body is read before the handler runs, because the fingerprint covers
	// it. A longer one is refused with 413. Default: 6 MiB, about what Lambda
	// accepts.
	MaxRequestBody int

	// MaxResponseBody is the longest response body, in bytes, that is buffered
	// in order to be stored. A longer one is sent to the client as it is
	// written, and a retry gets 409. Set less behind an adapter that translates events:
	// Lambda returns 6 MB with the headers and what JSON and base64 add, and an
	// Application Load Balancer accepts 1 MB. Default: 6 MiB.
	MaxResponseBody int

	// ErrorHandler responds to a request that ended with an error and without a
	// response: Scope failed, Operation returned an invalid name, or the
	// handler called [SetError] and wrote nothing. Default: log the error with the
	// guard's Logger and respond with a plain 500.
	ErrorHandler func(http.ResponseWriter, *http.Request, error)

	ownOperation bool          // Operation is custom and may read all of a Request
	replayed     headerRule    // ReplayHeaders
	gateway      time.Duration // GatewayTimeout if it was set
}

// newOptions applies optFns, fills in the defaults and validates.
func newOptions(optFns []func(*Options)) (*Options, error) {
	var o Options
	for _, f := range optFns {
		f(&o)
	}
	o.Profile = o.Profile.withDefaults()
	for s, a := range o.Profile.Answers {
		o.Profile.Answers[s].Detail = strings.ReplaceAll(a.Detail, "{key}", o.KeyFrom.place(&o.Profile))
	}
	o.ServerErrors = cmp.Or(o.ServerErrors, o.Profile.ServerErrors)
	if o.ownOperation = o.Operation != nil; !o.ownOperation {
		o.Operation = operationOf
		if name := o.Profile.Operation; name != "" {
			o.Operation = func(*Request) string { return name }
		}
	}
	o.MaxRequestBody = cmp.Or(o.MaxRequestBody, defaultMaxBody)
	o.MaxResponseBody = cmp.Or(o.MaxResponseBody, defaultMaxBody)
	o.Scope.Description = cmp.Or(o.Scope.Description, defaultScope)
	if o.Fingerprint.Of == nil {
		o.Fingerprint = o.Profile.Fingerprint
	}
	o.Fingerprint.Description = cmp.Or(o.Fingerprint.Description, defaultFingerprint)
	o.gateway = o.GatewayTimeout
	o.GatewayTimeout = cmp.Or(o.GatewayTimeout, 29*time.Second)
	o.replayed = newHeaderRule(o.ReplayHeaders, o.Profile.Header)
	return &o, o.validate()
}

// endpointUnknown reports whether the operation of r does not name its endpoint,
// so that the path has to belong to the key.
func (o *Options) endpointUnknown(r *Request) bool {
	return r.Route == "" && !o.ownOperation && o.Profile.Operation == ""
}

// defaultMaxBody is the default of both limits, in bytes. Lambda's own limit is
// 6 MB each way for the whole event or response, of which the body is a part.
const defaultMaxBody = 6 << 20

func (o *Options) validate() error {
	if o.Scope.Of == nil {
		return errors.New(`lambdahttp: Options.Scope is not set; set a rule that names the caller, for example Claim("sub"), or SingleTenant`)
	}
	if err := o.Profile.validate(); err != nil {
		return err
	}
	if o.ServerErrors > ReleaseServerErrors {
		return fmt.Errorf("lambdahttp: Options.ServerErrors is %d; use FollowRecovery, StoreServerErrors, UnknownServerErrors or ReleaseServerErrors", o.ServerErrors)
	}
	if o.MaxRequestBody < 0 || o.MaxResponseBody < 0 {
		return errors.New("lambdahttp: Options.MaxRequestBody and Options.MaxResponseBody must not be negative")
	}
	if o.KeyFrom.path != nil && o.Profile.HeaderOnly {
		return errors.New("lambdahttp: Options.KeyFrom is set, but the profile allows the key in the header only")
	}
	if o.GatewayTimeout < 0 {
		return fmt.Errorf("lambdahttp: Options.GatewayTimeout is %s; it must not be negative", o.GatewayTimeout)
	}
	if o.DocsURL != "" {
		u, err := url.Parse(o.DocsURL)
		if err != nil || !u.IsAbs() && (u.Host != "" || !strings.HasPrefix(u.Path, "/")) || u.String() != o.DocsURL || strings.ContainsAny(o.DocsURL, "<> ") {
			return fmt.Errorf("lambdahttp: Options.DocsURL %q is neither an absolute URL nor a path that begins with /", o.DocsURL)
		}
	}
	for _, name := range o.ReplayHeaders {
		if !sfv.IsHTTPToken(name) || name != allHeaders && strings.Contains(name, "*") {
			return fmt.Errorf(`lambdahttp: Options.ReplayHeaders: %q is neither a header name nor "*"`, name)
		}
		if httpform.OfExchange(name) {
			return fmt.Errorf("lambdahttp: Options.ReplayHeaders: %s belongs to one exchange and is never stored", name)
		}
		if http.CanonicalHeaderKey(name) == o.replayed.key {
			return fmt.Errorf("lambdahttp: Options.ReplayHeaders: %s carries the key, which is never stored", name)
		}
	}
	return nil
}
