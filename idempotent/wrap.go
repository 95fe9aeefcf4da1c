package idempotent

import (
	"context"
	"fmt"
	"reflect"
)

// Wrap returns h guarded: for each key it runs once, and a retry gets the
// stored result. The function it returns has no defined type, as
// lambda.StartHandlerFunc demands, and is safe for concurrent use.
//
// The key's fingerprint is computed from the whole request unless key sets
// one. See [Do] for errors, context and panics.
//
// Wrap panics if an argument is nil, an option is wrong, or the types do not
// fit: a mistake in the program shows at start-up, and not after a payment.
//
// Resp has to come back from JSON as it was, unless [Options.Codec] stores it in
// another way, and of Req two different values must have two encodings. So of
// both types:
//   - Every field is encoded under a name of its own. A field that is not
//     exported, or that encoding/json drops because another one has its name, is
//     refused, unless it is tagged `json:"-"`: then a replay returns its zero
//     value, and the fingerprint does not depend on it.
//   - A type that encodes itself is called with a pointer where it needs one, as
//     big.Int does. It is refused as a value in a map, where that is not
//     possible, and if its method is an embedded field's and leaves other fields
//     out.
//   - An interface with methods is refused. An any is not, and what it holds is
//     not checked; it is replayed as map[string]any, []any, string, bool,
//     [json.Number] or nil.
//   - The tag ",string" is refused on strings and on types that encode themselves.
//
// Of Resp also: a type that encodes itself has to decode itself, and an embedded
// pointer must not point to an unexported struct. If a result decodes and then
// encodes to other bytes, or holds text that is not UTF-8, it is not stored: the
// caller gets it, and a retry gets [*ReplayUnavailableError].
//
// A nil and an empty slice or map are one value under omitempty, and so is under
// omitzero whatever its IsZero method calls zero.
func Wrap[Req, Resp any](g *Guard, key KeyFunc[Req], h func(context.Context, Req) (Resp, error), optFns ...func(*Options)) func(context.Context, Req) (Resp, error) {
	if g == nil || key == nil || h == nil {
		panic("idempotent: Wrap wants a guard, a KeyFunc and a handler, got nil")
	}
	o, err := g.options(optFns)
	if err != nil {
		panic(err)
	}
	if _, standard := o.Codec.(*jsonCodec); standard {
		if err := checkResult(reflect.TypeFor[Resp]()); err != nil {
			panic(fmt.Errorf("idempotent: Wrap: the handler's result cannot be stored: %w; or set Options.Codec", err))
		}
	}
	if err := checkRequest(reflect.TypeFor[Req]()); err != nil {
		panic(fmt.Errorf("idempotent: Wrap: the request cannot be fingerprinted: %w; or call Do with a fingerprint of your own", err))
	}
	return func(ctx context.Context, req Req) (Resp, error) {
		k, err := wrapKey(ctx, o, key, req)
		if err != nil {
			var none Resp
			return none, err
		}
		out, err := do(ctx, g, o, k, func(ctx context.Context) (Resp, error) { return h(ctx, req) })
		return out.Value, err
	}
}

// wrapKey returns the key of req with its fingerprint. What is wrong with the
// rest of the key is left for do to say.
func wrapKey[Req any](ctx context.Context, o *Options, key KeyFunc[Req], req Req) (Key, error) {
	if o.Disabled {
		return Key{}, nil
	}
	k, err := key(ctx, req)
	if err != nil || k.Fingerprint != (Fingerprint{}) || k.validate() != nil {
		return k, err
	}
	k.Fingerprint, err = FingerprintOf(req)
	return k, err
}
