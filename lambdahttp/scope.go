package lambdahttp

import (
	"context"
	"strings"

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
	return func(_ context.Context, r *Request) (string, error) {
		value := r.Claim(name)
		// No principal is named like this, and one who were would be everybody.
		if strings.HasPrefix(value, "\x00") {
			return "", nil
		}
		return value, nil
	}
}
