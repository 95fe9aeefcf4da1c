// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"encoding/base64"
	"log/slog"

	"github.com/once-lambda/once/internal/logs"
)

// KeyFunc returns the key of a request. The guard returns its error to the caller
// before it stores or executes anything.
type KeyFunc[Req any] func(context.Context, Req) (Key, error)

// KeyFrom returns a KeyFunc for keys that are fields of the request.
func KeyFrom[Req any](operation string, f func(Req) (scope, id string)) KeyFunc[Req] {
	return func(_ context.Context, r Req) (Key, error) {
		scope, id := f(r)
		return Key{Operation: operation, Scope: scope, ID: id}, nil
	}
}

// WithRef returns f with a reference for each request: see [Key]. A panic of ref is logged,
// and the request has no reference.
func (f KeyFunc[Req]) WithRef(ref func(Req) string) KeyFunc[Req] {
	return func(ctx context.Context, r Req) (Key, error) {
		k, err := f(ctx, r)
		if err == nil {
			logs.Shield(ctx, slog.Default(), "idempotent: the function of WithRef", func() { k.Ref = ref(r) })
		}
		return k, err
	}
}

// WholePayload returns a KeyFunc for requests without an id: the key
// is the content of the whole request, as [FingerprintOf] compares it. The function
// returns the scope of a request.
//
// Use it only if two equal requests are always one. That is wrong for most requests
// of people: two orders of the same thing by the same customer are equal, and the
// second one gets the result of the first instead of running. It is also wrong if
// a retry differs from its first request, for example in a time or a trace id: the
// retry then has another key and runs again. Prefer an id of the client and
// [KeyFrom].
//
// A reader of the store can test guesses of the request: hashes hide a key only if
// it has at least 64 random bits.
//
// The error is [*InvalidKeyError] if the request cannot be compared: see
// [FingerprintOf].
func WholePayload[Req any](operation string, scope func(Req) string) KeyFunc[Req] {
	return func(_ context.Context, r Req) (Key, error) {
		fp, err := FingerprintOf(r)
		if err != nil {
			return Key{}, err
		}
		return Key{Operation: operation, Scope: scope(r), ID: base64.RawURLEncoding.EncodeToString(fp[:]), Fingerprint: fp}, nil
	}
}
