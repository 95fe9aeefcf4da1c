// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/jsonpointer"
	"github.com/once-lambda/once/internal/sfv"
)

// KeySource is where a request carries its key. The zero value is the header of
// the profile; [BodyField] is the other source.
type KeySource struct {
	pointer string // as the user spells it
	path    jsonpointer.Pointer
}

// BodyField is the [KeySource] of APIs whose requests carry the key in a field of their
// JSON body, named by a JSON Pointer (RFC 6901) such as "/idempotency_key" or
// "/metadata/request/0". The key is the field's string, without additional quotes, or its
// number: 100, 100.0 and 1e2 are the key "100". A field that is null counts as missing.
// The profile's length bounds and the Canonical of its syntax apply.
//
// The body must be one JSON object without duplicate names, whatever its
// Content-Type is. It can be compressed, see [WholeRequest]. Any other body is
// refused, because it is ambiguous whether it contains a key. An empty body has
// no key. BodyField panics if the pointer is invalid.
func BodyField(pointer string) KeySource {
	path, err := jsonpointer.Parse(pointer)
	if err != nil {
		use := "/idempotency_key"
		if _, err := jsonpointer.Parse("/" + pointer); err == nil && pointer != "" {
			use = "/" + pointer
		}
		panic(fmt.Sprintf("lambdahttp: BodyField: invalid JSON Pointer %q: %v; use one such as %q", pointer, err, use))
	}
	return KeySource{pointer, path}
}

// place names where the key is, for the texts of an Answer.
func (k KeySource) place(p *Profile) string {
	if k.path == nil {
		return p.Header + " header"
	}
	return fmt.Sprintf("field %q of the body", k.pointer)
}

// bodyKeySyntax and bodyKeyPattern replace the description and pattern of
// Profile.Syntax for a key in the body.
const (
	bodyKeySyntax  = "a string of printable ASCII characters, or a number; spaces do not count toward the minimum length"
	bodyKeyPattern = `^[!-~]{min,max}$`
)

// read returns the request's key, and whether it has one. The error's text is
// for the client.
func (k KeySource) read(r *Request, p *Profile) (key string, found bool, err error) {
	if k.path != nil {
		key, found, err = r.bodyField(k.path)
	} else {
		key, found, err = p.headerKey(r)
	}
	if !found || err != nil {
		return "", false, err
	}
	key, err = p.canonicalKey(key)
	return key, true, err
}

func (p *Profile) headerKey(r *Request) (key string, found bool, err error) {
	values := r.Header(p.Header)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		key, err = p.Syntax.Parse(values[0])
		return key, true, err
	default: // the draft, section 2.1: clients must not send more than one
		return "", true, sfv.ErrTrailing
	}
}

// bodyField returns the string or the number at path in the JSON body, and whether there
// is a value. It sets r.document, so it must be called before any rule.
func (r *Request) bodyField(path jsonpointer.Pointer) (text string, found bool, err error) {
	_, body, err := r.uncoded()
	switch {
	case isUnread(err):
		return "", true, err
	case err != nil:
		return "", true, errNoObject
	case len(body) == 0:
		return "", false, nil
	}
	doc, err := canonical.JSON(body)
	if err != nil || doc[0] != '{' {
		return "", true, errNoObject
	}
	r.document = doc
	value, found := path.Lookup(doc)
	if !found || string(value) == "null" {
		return "", false, nil
	}
	text, ok := jsonpointer.Text(value)
	if !ok {
		return "", true, errNotText
	}
	return text, true, nil
}

var (
	errNoObject = errors.New("the body is not one JSON object with distinct names")
	errNotText  = errors.New("the field is neither a string nor a number")
)

// canonicalKey validates a key from any source, and returns the form in which it
// is compared.
func (p *Profile) canonicalKey(key string) (string, error) {
	if strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", errCharacter
	}
	if p.Syntax.Canonical != nil {
		var err error
		if key, err = p.Syntax.Canonical(key); err != nil {
			return "", err
		}
	}
	switch {
	case len(key) < p.MinKeyLength || len(key) > p.MaxKeyLength:
		return "", fmt.Errorf("a key must have %d to %d characters", p.MinKeyLength, p.MaxKeyLength)
	case len(key)-strings.Count(key, " ") < p.MinKeyLength:
		return "", fmt.Errorf("a key must have at least %d characters that are not spaces", p.MinKeyLength)
	}
	return key, nil
}

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

// Authorizer returns the [ScopeRule] that reads a value that a Lambda authorizer
// returned: Authorizer("principalId") for a REST API, Authorizer("tenant") for
// the value "tenant" of the authorizer's context in a REST API or an HTTP API.
// Choose a value that the authorizer has verified.
//
// The value must be a string, or an integer of at most 15 digits: the event has
// lost digits of longer ones. A request with another value, or without it, is
// refused. The events of function URLs and load balancers have no authorizer.
func Authorizer(name string) ScopeRule {
	if name == "" {
		panic(`lambdahttp: Authorizer: the value's name is empty; give one, for example "principalId"`)
	}
	return ScopeRule{
		Of:          func(_ context.Context, r *Request) (string, error) { return caller(exactText(r.authorizer[name])), nil },
		Description: fmt.Sprintf("the caller that the authorizer identifies by %q", name),
	}
}

// exactText returns the text of a string or an integer of JSON, or "" if v is
// another value. Two different integers of at most 15 digits have different
// texts, because a float64 represents both exactly.
func exactText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}

// IAMRole is the [ScopeRule] for services that sign their requests, for routes
// with AWS_IAM authorization. It reads the IAM role, without the name of its
// session: another instance or container of a service has another session of
// the same role, and has to be the same caller. For an IAM user it reads the
// ARN.
//
// It refuses principals that share a role with others: callers with an Amazon
// Cognito identity (use [CognitoIdentity]), and people who sign in through IAM
// Identity Center, whose roles begin with "AWSReservedSSO_" (use
// [IAMPrincipal]). It also refuses federated users. If people assume your
// role by other means, for example with SAML, it does not distinguish them.
var IAMRole = ScopeRule{
	Of:          func(_ context.Context, r *Request) (string, error) { return caller(r.identity.role()), nil },
	Description: "the IAM role, in any session, or the IAM user that signs the request",
}

// role returns what IAMRole reads.
func (i *identity) role() string {
	arn := strings.SplitN(i.principal, ":", 6) // arn:PARTITION:SERVICE::ACCOUNT:RESOURCE
	if i.cognitoCaller() || len(arn) != 6 || arn[4] == "" {
		return ""
	}
	switch kind, name, _ := strings.Cut(arn[5], "/"); {
	case kind == "user" && name != "", arn[5] == "root":
		return i.principal
	case kind == "assumed-role":
		// The ARN has no path, and names of roles are unique in an account.
		role, session, _ := strings.Cut(name, "/")
		if role == "" || session == "" || strings.HasPrefix(role, "AWSReservedSSO_") {
			return ""
		}
		return strings.TrimSuffix(i.principal, "/"+session)
	}
	return ""
}

// cognitoCaller reports whether the caller has an Amazon Cognito identity: all
// of them share one role and its session name.
func (i *identity) cognitoCaller() bool {
	return i.cognitoIdentity != "" || strings.HasSuffix(i.principal, "/CognitoIdentityCredentials")
}

// IAMPrincipal is the [ScopeRule] for people who sign their requests, for routes
// with AWS_IAM authorization. It reads the ARN of the IAM principal. The ARN of
// an assumed role ends with the session name, which names the person if an
// identity provider sets it. A service usually has another session name in each
// instance, so a retry from another instance would be another caller, and would
// run again: use [IAMRole] for services.
//
// Callers with an Amazon Cognito identity share one role and its session name,
// so they are refused here: use [CognitoIdentity] for them.
var IAMPrincipal = ScopeRule{
	Of: func(_ context.Context, r *Request) (string, error) {
		if r.identity.cognitoCaller() {
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
