package lambdahttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/once-lambda/once/idempotent"
)

// Options are given to the constructor of a handler. The zero value of each
// field is its documented default; only Scope has none.
type Options struct {
	// Profile is the dialect of the header: its name, syntax, methods and
	// answers. A field left zero is that of [IETF]. Default: IETF.
	Profile Profile

	// Scope says for whom a key is valid: [Claim] for the authenticated caller,
	// [SingleTenant] where there is only one, or a function of yours. Required,
	// because a key is the client's choice: without a scope one client could be
	// answered with the response of another.
	Scope ScopeFunc

	// RequireKey refuses a request of a guarded method that has no key with 400.
	// Default: it runs, and nothing is stored. It decides in place of
	// [idempotent.Options.AllowMissingKey].
	RequireKey bool

	// Operation names what is done, see [idempotent.Key]. Two services that share
	// one table need different names for what they both call "POST /charges".
	// Default: the method and the route's template, "POST /charges/{id}"; where
	// no route is known ($default, function URLs) the method and the path.
	Operation func(*Request) string

	// ServerErrors says what a response of 5xx does to the key. Default:
	// FollowRecovery.
	ServerErrors ServerErrors

	// ReplayHeaders are response headers that are stored and replayed besides the
	// standard ones: Cache-Control, Content-Language, Content-Location,
	// Content-Type, ETag, Last-Modified, Link, Location, Request-Id,
	// X-Request-Id. Headers that belong to one exchange only (cookies,
	// credentials, dates, rate limits, traces, framing) are refused here.
	// Default: none.
	ReplayHeaders []string

	// ProblemBase is the URI that the types of problems are appended to, with a
	// '/' between where it ends in neither '/' nor '#'. It should lead to a page
	// for the clients of your API (RFC 9457, section 3.1.1). Default:
	// [DefaultProblemBase].
	ProblemBase string

	// Guard changes the guard's options for this handler, for example Recovery or
	// Retention. It is called once, at construction. The codec is always that of
	// this package. Default: the guard's options as they are.
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
	// handler said with [Declare] without writing anything. Default: it is logged
	// with slog, and the answer is a bare 500.
	ErrorHandler func(http.ResponseWriter, *http.Request, error)
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
	// FollowRecovery treats the response like an error of the handler: the
	// operation's [idempotent.Recovery] makes the key unknown, or free to run
	// again. The default.
	FollowRecovery ServerErrors = iota
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
	if o.Operation == nil {
		o.Operation = operationOf
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
	if o.ProblemBase == "" {
		o.ProblemBase = DefaultProblemBase
	}
	if !strings.HasSuffix(o.ProblemBase, "/") && !strings.HasSuffix(o.ProblemBase, "#") {
		o.ProblemBase += "/"
	}
	return &o, o.validate()
}

func (o *Options) validate() error {
	if o.Scope == nil {
		return errors.New(`lambdahttp: Options.Scope is not set; name the caller, for example with Claim("sub"), or say SingleTenant`)
	}
	if o.ServerErrors > ReleaseServerErrors {
		return fmt.Errorf("lambdahttp: Options.ServerErrors is %d; use FollowRecovery, StoreServerErrors, UnknownServerErrors or ReleaseServerErrors", o.ServerErrors)
	}
	if o.MaxRequestBody < 0 || o.MaxResponseBody < 0 {
		return errors.New("lambdahttp: Options.MaxRequestBody and Options.MaxResponseBody must not be negative")
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
	return o.Profile.validate()
}
