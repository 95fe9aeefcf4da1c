// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// Operation is the operation name of the records. It is a constant because it is
// part of every record's id: records must still be found after a route is renamed.
const Operation = "POST /charges"

// keys sets how the API uses idempotency keys. Both the function and its published
// policy are made from it.
func keys(o *lambdahttp.Options) {
	o.Scope = lambdahttp.SingleTenant // there is no authentication; an API with callers sets lambdahttp.Claim("sub") here
	o.DocsURL = pagePath
	o.Operation = func(*lambdahttp.Request) string { return Operation }
	o.Guard = func(o *idempotent.Operation) { o.Recovery = idempotent.Reconcile }
}

// Profile returns the option for the profile with the given name: ietf, which is
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
		return nil, fmt.Errorf("invalid PROFILE %q: want ietf, stripe or uuid", name)
	}
	p.PerResource = false // all charges are created at one path, so [RecordIDOf] needs only the key
	return func(o *lambdahttp.Options) { o.Profile = p }, nil
}

// Callers returns the option for the scope of a key: single, which is the default,
// for one scope for all callers, or api-key, for a scope per API key of a REST
// API.
func Callers(name string) (func(*lambdahttp.Options), error) {
	switch name {
	case "", "single":
		return func(*lambdahttp.Options) {}, nil
	case "api-key":
		return func(o *lambdahttp.Options) { o.Scope = lambdahttp.APIKeyID }, nil
	}
	return nil, fmt.Errorf("invalid CALLER %q: want single or api-key", name)
}

// NewPolicy returns what clients of the function have to know about keys.
func NewPolicy(guard *idempotent.Guard, optFns ...func(*lambdahttp.Options)) (*lambdahttp.Policy, error) {
	return lambdahttp.NewPolicy(guard, withKeys(optFns)...)
}

func withKeys(optFns []func(*lambdahttp.Options)) []func(*lambdahttp.Options) {
	return append([]func(*lambdahttp.Options){keys}, optFns...)
}
