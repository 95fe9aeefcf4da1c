// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/sfv"
)

// ScopeRule determines for which caller the request's key is valid.
type ScopeRule struct {
	// Of returns the tenant or the authenticated principal, never a value that
	// the caller can choose freely. It is called for requests with a valid key,
	// before anything is stored.
	//
	// An empty scope refuses the request with 403, because the keys of all
	// unidentified callers would share one scope. An error is returned to
	// Lambda unchanged. Of must be safe for concurrent use.
	Of func(ctx context.Context, r *Request) (string, error)
	// Description describes to clients for whom a key is valid: "the tenant
	// that the token names". Default: "the authenticated caller".
	Description string

	everybody bool // Of accepts every caller
}

// SingleTenant is the [ScopeRule] that declares that all callers share one set
// of keys. A caller that knows another caller's key, and repeats that caller's
// request, gets that caller's response.
var SingleTenant = ScopeRule{
	Of:          func(context.Context, *Request) (string, error) { return idempotent.Global, nil },
	Description: "all callers, who share one set of keys",
	everybody:   true,
}

// Claim returns the [ScopeRule] that reads a claim of the request's JWT, which
// API Gateway's JWT authorizer has verified. Choose one that names the caller
// and that the caller cannot change, such as "sub". If the authorizer accepts
// tokens of several issuers, "sub" alone is not unique.
//
// The events of function URLs have no claims.
func Claim(name string) ScopeRule {
	if name == "" {
		panic(`lambdahttp: Claim: the claim's name is empty; give one, for example "sub"`)
	}
	return ScopeRule{
		Of:          func(_ context.Context, r *Request) (string, error) { return caller(r.Claim(name)), nil },
		Description: fmt.Sprintf("the caller that the claim %q of the token names", name),
	}
}

// IAMPrincipal is the [ScopeRule] that reads the ARN of the IAM principal that
// signed the request, for routes with AWS_IAM authorization. The ARN of an
// assumed role ends with the session name, so a client that repeats a request
// in a session with another name is another caller.
//
// Callers with an Amazon Cognito identity share one role and its session name,
// so they are refused here: use [CognitoIdentity] for them.
var IAMPrincipal = ScopeRule{
	Of: func(_ context.Context, r *Request) (string, error) {
		if r.identity.cognitoIdentity != "" || strings.HasSuffix(r.identity.principal, "/CognitoIdentityCredentials") {
			return "", nil
		}
		return caller(r.identity.principal), nil
	},
	Description: "the IAM principal that signs the request; a role with another session name is another principal",
}

// CognitoIdentity is the [ScopeRule] that reads the id of the Amazon Cognito
// identity that signed the request, for routes with AWS_IAM authorization.
var CognitoIdentity = ScopeRule{
	Of:          func(_ context.Context, r *Request) (string, error) { return caller(r.identity.cognitoIdentity), nil },
	Description: "the Amazon Cognito identity that signs the request",
}

// APIKeyID is the [ScopeRule] that reads the id of the request's API key, for
// REST APIs whose methods require one. The API key itself is never read: it is
// a secret. Use it only if you give each API key to one caller.
var APIKeyID = ScopeRule{
	Of:          func(_ context.Context, r *Request) (string, error) { return caller(r.identity.apiKeyID), nil },
	Description: "the API key of the request",
}

// LambdaTenant is the [ScopeRule] that reads the tenant id of the invocation,
// for functions with tenant isolation.
var LambdaTenant = ScopeRule{
	Of: func(ctx context.Context, _ *Request) (string, error) {
		lc, ok := lambdacontext.FromContext(ctx)
		if !ok {
			return "", nil
		}
		return caller(lc.TenantID), nil
	},
	Description: "the tenant of the request",
}

// TrustedHeader returns the [ScopeRule] that reads a request header. Use it
// only if every request passes a proxy under your control that sets the header
// and replaces the client's value: otherwise a caller could name another one. A
// header with several values, or with a comma, is refused: a gateway joins two
// lines with a comma, and the first line may be the client's.
func TrustedHeader(name string) ScopeRule {
	if !sfv.IsHTTPToken(name) {
		panic(fmt.Sprintf("lambdahttp: TrustedHeader: invalid header name %q", name))
	}
	return ScopeRule{
		Of: func(_ context.Context, r *Request) (string, error) {
			values := r.Header(name)
			if len(values) != 1 || strings.Contains(values[0], ",") {
				return "", nil
			}
			return caller(strings.Trim(values[0], " \t")), nil
		},
		Description: defaultScope,
	}
}

// defaultScope describes a rule that has no description.
const defaultScope = "the authenticated caller"

// caller returns value as a scope. A value with the prefix of
// [idempotent.Global] is refused, because it could name the scope that all
// callers share.
func caller(value string) string {
	if strings.HasPrefix(value, "\x00") {
		return ""
	}
	return value
}
