package lambdahttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Options are given to the constructor of a handler. The zero value of each
// field is its documented default; only Scope has none.
type Options struct {
	// Profile is the dialect of the header: its name, syntax, methods and
	// answers. A field left zero is that of [IETF]. Default: IETF.
	Profile Profile

	// KeyFrom says where the key stands, if not in the profile's header:
	// [BodyField]. Default: the header.
	KeyFrom KeySource

	// Scope says for whom a key is valid: [Claim], [IAMPrincipal],
	// [CognitoIdentity], [APIKeyID], [LambdaTenant] or [TrustedHeader] for the
	// caller, [SingleTenant] where there is only one, or a rule of yours. Required,
	// because a key is the client's choice: without a scope one client could be
	// answered with the response of another.
	Scope ScopeRule

	// RequireKey refuses a request of a guarded method that has no key with 400.
	// Default: it runs, and nothing is stored. It decides in place of
	// [idempotent.Options.AllowMissingKey].
	RequireKey bool

	// Operation names what is done, see [idempotent.Key]. Two services that share
	// one table need different names for what they both call "POST /charges".
	// Default: the profile's name; if it has none, the method and the route's
	// template, "POST /charges/{id}"; where no route is known ($default, function
	// URLs) the method and the path.
	Operation func(*Request) string

	// Fingerprint says which requests with one key are the same: [WholeRequest],
	// [Fields], [RawBody], [VerifiedDigest] or a rule of yours. After a change of
	// the rule, retries of requests from before it are refused as other requests.
	// Default: WholeRequest.
	Fingerprint FingerprintRule

	// ServerErrors says what a response of 5xx does to the key. Default: as the
	// profile says, which is FollowRecovery for IETF and UUID, and
	// StoreServerErrors for Stripe.
	ServerErrors ServerErrors

	// BeforeReplay is asked before a stored response is returned again, and may
	// refuse with [RefuseReplay] where the resource is gone or has changed: the
	// client is then told that its request was done and cannot be answered as it
	// was. Any other error goes to Lambda as it is. It must not change the stored
	// response, and is safe for concurrent use. It is not asked about the outcome
	// of an idempotent.Final error. Default: nobody is asked.
	BeforeReplay func(ctx context.Context, r *Request, stored Response) error

	// ReplayHeaders are response headers that are stored and replayed besides the
	// standard ones: Cache-Control, Content-Language, Content-Location,
	// Content-Type, ETag, Last-Modified, Link, Location, Request-Id,
	// X-Request-Id. Headers that belong to one exchange only (cookies,
	// credentials, dates, rate limits, traces, framing) are refused here.
	// Default: none.
	ReplayHeaders []string

	// Accepted answers a request whose twin is running with 202 in place of 409,
	// and with a Location header if it returns one: the resource that tells how
	// the work is going. Nothing runs in the background. It is safe for concurrent
	// use. Default: 409.
	Accepted func(r *Request, record idempotent.RecordID) (location string)

	// GatewayTimeout is how long the gateway waits for an answer. Where the
	// guard's WaitFor lets a request wait for its twin, it waits at most this
	// long less [idempotent.Options.LeaseMargin]. Default: 29 s, which is API
	// Gateway's.
	GatewayTimeout time.Duration

	// ExpiresHeader tells clients in Idempotency-Expires, an HTTP date, until
	// when a retry gets the response. Default: no.
	ExpiresHeader bool

	// ExposeHeaders names the headers that this package sets in
	// Access-Control-Expose-Headers, so that scripts in a browser can read them.
	// Default: no.
	ExposeHeaders bool

	// DocsURL is the page for the clients of your API that tells about keys.
	// Answers of 400, 409 and 422 link to it with rel="describedby". Default: no
	// link.
	DocsURL string

	// ProblemBase is the URI that the types of problems are appended to, with a
	// '/' between where it ends in neither '/' nor '#'. It should lead to a page
	// for the clients of your API (RFC 9457, section 3.1.1). Default: DocsURL with
	// '#' behind it, or [DefaultProblemBase].
	ProblemBase string

	// Guard changes the guard's options for this handler, for example Recovery,
	// Retention or WaitFor. It is called once, at construction. The codec is
	// always that of this package: it takes what the handler returns, or a
	// Response, and keeps of it what is stored of a response that is returned. A
	// retention shorter than the profile's MinRetention is refused. Default: the
	// guard's options as they are.
	Guard func(*idempotent.Options)

	// The rest is for Middleware alone.

	// MaxRequestBody is the longest body, in bytes, of a request with a key: it
	// is read before the handler runs, because the fingerprint covers it. A
	// longer one is refused with 413. Default: 6 MiB, about what Lambda accepts.
	MaxRequestBody int64

	// MaxResponseBody is the longest body, in bytes, of a response that is held
	// back to be stored. A longer one goes to the client as it is written, and
	// a retry is answered with 409. Default: 6 MiB, about what Lambda returns.
	MaxResponseBody int

	// ErrorHandler answers a request for which there is an error in place of a
	// response: a Scope that failed, an Operation that cannot be one, or what the
	// handler said with [SetError] without writing anything. Default: it is logged
	// with slog, and the answer is a bare 500.
	ErrorHandler func(http.ResponseWriter, *http.Request, error)

	ownOperation bool // Operation is the user's, who may read all of a Request
}

// defaultMaxBody is the default of the two limits, in bytes. Lambda's own limit
// is 6 MB each way, event and response with everything around the body.
const defaultMaxBody = 6 << 20

// DefaultProblemBase is the base of problem types unless
// [Options.ProblemBase] names another: this project's page about them.
const DefaultProblemBase = "https://github.com/once-lambda/once/blob/main/docs/http.md#"

// ServerErrors says what becomes of a key whose handler answered with a status
// of 5xx and no error. A response that no gateway can deliver (its status is
// not 200 to 599, its base64 is broken) counts as one. The caller gets the
// response as it is, whatever becomes of the key.
type ServerErrors uint8

const (
	// ServerErrorsByProfile leaves it to the profile. The default.
	ServerErrorsByProfile ServerErrors = iota
	// FollowRecovery treats the response like an error of the handler: the
	// operation's [idempotent.Recovery] makes the key unknown, or free to run
	// again.
	FollowRecovery
	// StoreServerErrors stores and replays it like any other response.
	StoreServerErrors
	// UnknownServerErrors makes the key unknown, whatever the recovery is.
	UnknownServerErrors
	// ReleaseServerErrors declares that this handler answers 5xx only where no
	// side effect has happened: the key may run again.
	ReleaseServerErrors
)

// newOptions applies optFns, fills in the defaults and validates.
func newOptions(optFns []func(*Options)) (*Options, error) {
	var o Options
	for _, f := range optFns {
		f(&o)
	}
	o.Profile = o.Profile.withDefaults()
	o.KeyFrom.answers(&o.Profile.Answers)
	if o.ServerErrors == ServerErrorsByProfile {
		o.ServerErrors = o.Profile.ServerErrors
	}
	if o.ownOperation = o.Operation != nil; !o.ownOperation {
		o.Operation = operationOf
		if name := o.Profile.Operation; name != "" {
			o.Operation = func(*Request) string { return name }
		}
	}
	if o.MaxRequestBody == 0 {
		o.MaxRequestBody = defaultMaxBody
	}
	if o.MaxResponseBody == 0 {
		o.MaxResponseBody = defaultMaxBody
	}
	if o.ErrorHandler == nil {
		o.ErrorHandler = internalError
	}
	if o.Scope.Description == "" {
		o.Scope.Description = defaultScope
	}
	if o.Fingerprint.Of == nil {
		o.Fingerprint = WholeRequest
	}
	if o.Fingerprint.Description == "" {
		o.Fingerprint.Description = defaultFingerprint
	}
	if o.GatewayTimeout == 0 {
		o.GatewayTimeout = 29 * time.Second
	}
	o.ProblemBase = problemBase(o.ProblemBase, o.DocsURL)
	return &o, o.validate()
}

func problemBase(base, docs string) string {
	switch {
	case base == "" && docs == "":
		return DefaultProblemBase
	case base == "":
		page, _, _ := strings.Cut(docs, "#")
		return page + "#"
	case strings.HasSuffix(base, "/"), strings.HasSuffix(base, "#"):
		return base
	}
	return base + "/"
}

func (o *Options) validate() error {
	if o.Scope.Of == nil {
		return errors.New(`lambdahttp: Options.Scope is not set; name the caller, for example with Claim("sub"), or say SingleTenant`)
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
	if o.KeyFrom.member != "" && o.Profile.HeaderOnly {
		return errors.New("lambdahttp: Options.KeyFrom is set, and the profile wants the key in the header only")
	}
	if o.GatewayTimeout < 0 {
		return fmt.Errorf("lambdahttp: Options.GatewayTimeout is %s; it must not be negative", o.GatewayTimeout)
	}
	if o.DocsURL != "" {
		u, err := url.Parse(o.DocsURL)
		if err != nil || !u.IsAbs() || u.String() != o.DocsURL || strings.ContainsAny(o.DocsURL, "<> ") {
			return fmt.Errorf("lambdahttp: Options.DocsURL %q is not an absolute URL", o.DocsURL)
		}
	}
	if _, err := url.Parse(o.ProblemBase); err != nil {
		return fmt.Errorf("lambdahttp: Options.ProblemBase is not a URI: %w", err)
	}
	for _, name := range o.ReplayHeaders {
		if !isToken(name) {
			return fmt.Errorf("lambdahttp: Options.ReplayHeaders: %q is not the name of a header", name)
		}
		if neverReplayed(name) {
			return fmt.Errorf("lambdahttp: Options.ReplayHeaders: %s belongs to one exchange and is never stored", name)
		}
	}
	return nil
}
