package charge

import (
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Operation names what is done once per key. It is written down here because
// it is part of every record's id: a renamed route must not forget what ran.
const Operation = "POST /charges"

// Namespace is that of the function's CloudWatch metrics.
const Namespace = "Charges"

// keys says how the API treats idempotency keys. The function and what is
// published of it are made from it.
func keys(o *lambdahttp.Options) {
	o.Scope = lambdahttp.SingleTenant // an API with tenants says lambdahttp.Claim("sub") here
	o.RequireKey = true
	o.Operation = func(*lambdahttp.Request) string { return Operation }
	o.Guard = func(o *idempotent.Options) { o.Recovery = idempotent.Reconcile }
}

// Profile returns the option for the profile that PROFILE names: ietf, which is
// the default, stripe or uuid. It is for [New] and [NewPolicy].
func Profile(name string) (func(*lambdahttp.Options), error) {
	var p lambdahttp.Profile
	switch name {
	case "", "ietf":
		p = lambdahttp.IETF
	case "stripe":
		p = lambdahttp.Stripe
	case "uuid":
		p = lambdahttp.UUID
	default:
		return nil, fmt.Errorf("PROFILE is %q; it has to be ietf, stripe or uuid", name)
	}
	return func(o *lambdahttp.Options) { o.Profile = p }, nil
}

// Callers returns the option for whom CALLER says a key is valid: single, which is
// the default, for all callers together, or api-key, for each API key of a REST
// API apart.
func Callers(name string) (func(*lambdahttp.Options), error) {
	switch name {
	case "", "single":
		return func(*lambdahttp.Options) {}, nil
	case "api-key":
		return func(o *lambdahttp.Options) { o.Scope = lambdahttp.APIKeyID }, nil
	}
	return nil, fmt.Errorf("CALLER is %q; it has to be single or api-key", name)
}

// NewPolicy returns what clients of the function have to know about keys.
func NewPolicy(guard *idempotent.Guard, optFns ...func(*lambdahttp.Options)) (*lambdahttp.Policy, error) {
	return lambdahttp.NewPolicy(guard, withKeys(optFns)...)
}

func withKeys(optFns []func(*lambdahttp.Options)) []func(*lambdahttp.Options) {
	return append([]func(*lambdahttp.Options){keys}, optFns...)
}
