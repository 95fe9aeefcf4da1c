package idempotent

import (
	"context"
	"fmt"
	"reflect"
)

// Wrap returns a guarded version of h: for each key h runs once, and a retry gets
// the stored result. The returned function has an unnamed type, as
// lambda.StartHandlerFunc requires, and is safe for concurrent use.
//
// Unless key sets a fingerprint, Wrap computes it from the whole request. See
// [Do] for errors, context and panics.
//
// Wrap panics if an argument is nil, an option is invalid, or Req or Resp is not
// supported. Such programming errors then show at start-up, not after a payment.
//
// A Resp must decode from JSON to the value that was encoded, unless
// [Options.Codec] stores it in another form. Two different Req values must have
// two different encodings. The following rules apply to both types:
//   - Every field must be encoded under its own name. A field that is not
//     exported, or that encoding/json drops because another field has its name,
//     is refused unless it is tagged `json:"-"`. A tagged field is zero in a
//     replay and is not part of the fingerprint.
//   - A type whose encoding method has a pointer receiver, such as big.Int, is
//     encoded through a pointer. It is refused as the value type of a map, where
//     that is not possible. A struct whose encoding method is promoted from an
//     embedded field and omits other fields is refused.
//   - An interface type with methods is refused. The type any is allowed, and its
//     content is not checked; it is replayed as map[string]any, []any, string,
//     bool, [json.Number] or nil.
//   - The tag ",string" is refused on strings and on types that encode
//     themselves.
//
// Two more rules apply to Resp: a type that encodes itself must also decode
// itself, and an embedded pointer must not point to an unexported struct. A
// result that decodes and then encodes to other bytes, or that contains invalid
// UTF-8, is not stored: the caller gets it, and a retry gets
// [*ReplayUnavailableError].
//
// A nil and an empty slice or map are the same value under omitempty. Under
// omitzero, so are all values for which IsZero returns true.
func Wrap[Req, Resp any](g *Guard, key KeyFunc[Req], h func(context.Context, Req) (Resp, error), optFns ...func(*Options)) func(context.Context, Req) (Resp, error) {
	if g == nil || key == nil || h == nil {
		panic("idempotent: Wrap: the guard, the KeyFunc and the handler must not be nil")
	}
	o, err := g.options(optFns)
	if err != nil {
		panic(err)
	}
	if _, standard := o.Codec.(*jsonCodec); standard {
		if err := checkResult(reflect.TypeFor[Resp]()); err != nil {
			panic(fmt.Errorf("idempotent: Wrap: unsupported result type: %w; or set Options.Codec", err))
		}
	}
	if err := checkRequest(reflect.TypeFor[Req]()); err != nil {
		panic(fmt.Errorf("idempotent: Wrap: unsupported request type: %w; or call Do with a fingerprint", err))
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

// wrapKey returns the key of req with its fingerprint. It leaves other errors in
// the key for do to report.
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
