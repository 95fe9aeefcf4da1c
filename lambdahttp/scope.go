package lambdahttp

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
)

// ScopeFunc returns for whom the request's key is valid: the tenant or the
// authenticated principal, never something the caller may choose freely. It is
// called for requests with a valid key, before anything is stored.
//
// An empty scope refuses the request with 403: keys of callers that nobody
// knows would share one bucket. An error goes to Lambda as it is. A ScopeFunc
// is safe for concurrent use.
type ScopeFunc func(ctx context.Context, r *Request) (string, error)

// SingleTenant is the [ScopeFunc] that says in writing that all callers share
// one set of keys: whoever knows a key of another caller, and repeats that
// caller's request, is answered with that caller's response.
func SingleTenant(context.Context, *Request) (string, error) { return idempotent.Global, nil }

// Claim returns the [ScopeFunc] that reads a claim of the request's JWT, which
// API Gateway's JWT authorizer has verified. Choose one that names the caller
// and that the caller cannot change, as "sub" does. Where the authorizer
// accepts tokens of several issuers, "sub" alone is not unique.
//
// The events of function URLs have no claims.
func Claim(name string) ScopeFunc {
	if name == "" {
		panic(`lambdahttp: Claim wants the name of a claim, for example "sub"`)
	}
	return func(_ context.Context, r *Request) (string, error) { return caller(r.Claim(name)), nil }
}

// IAMPrincipal is the [ScopeFunc] that reads the ARN of the IAM principal that
// signed the request, for routes with AWS_IAM as authorization. The ARN of an
// assumed role ends in the name of the session: a client that repeats a request
// from another session with another name is another caller.
//
// Callers with an Amazon Cognito identity share one role and its session name,
// so they are refused here: use [CognitoIdentity] for them.
func IAMPrincipal(_ context.Context, r *Request) (string, error) {
	if r.identity.cognitoIdentity != "" || strings.HasSuffix(r.identity.principal, "/CognitoIdentityCredentials") {
		return "", nil
	}
	return caller(r.identity.principal), nil
}

// CognitoIdentity is the [ScopeFunc] that reads the id of the Amazon Cognito
// identity that signed the request, for routes with AWS_IAM as authorization.
func CognitoIdentity(_ context.Context, r *Request) (string, error) {
	return caller(r.identity.cognitoIdentity), nil
}

// APIKeyID is the [ScopeFunc] that reads the id of the request's API key, for
// REST APIs whose methods require one. The key itself is never read: it is a
// secret. One key names one caller only where you hand it to one.
func APIKeyID(_ context.Context, r *Request) (string, error) {
	return caller(r.identity.apiKeyID), nil
}

// LambdaTenant is the [ScopeFunc] that reads the tenant id of the invocation,
// for functions with tenant isolation.
func LambdaTenant(ctx context.Context, _ *Request) (string, error) {
	lc, ok := lambdacontext.FromContext(ctx)
	if !ok {
		return "", nil
	}
	return caller(lc.TenantID), nil
}

// TrustedHeader returns the [ScopeFunc] that reads a request header. Use it
// only where every request comes through a proxy of yours that sets the header
// and replaces whatever the client sent under its name: otherwise a caller
// could name another one. A header with several values, or with a comma, names
// nobody: a gateway joins two lines with one, and the first may be the
// client's.
func TrustedHeader(name string) ScopeFunc {
	if !isToken(name) {
		panic(fmt.Sprintf("lambdahttp: TrustedHeader wants the name of a header, not %q", name))
	}
	return func(_ context.Context, r *Request) (string, error) {
		values := r.Header(name)
		if len(values) != 1 || strings.Contains(values[0], ",") {
			return "", nil
		}
		return caller(strings.Trim(values[0], " \t")), nil
	}
}

// caller returns value as a scope. No caller is named like [idempotent.Global],
// and one who were would be everybody.
func caller(value string) string {
	if strings.HasPrefix(value, "\x00") {
		return ""
	}
	return value
}
