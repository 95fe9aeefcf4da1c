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
// Wrap panics if an argument is nil, an option is wrong, or Resp cannot be
// stored and returned again: that is a mistake in the program, and finding it
// out at start-up beats finding it out after a payment.
func Wrap[Req, Resp any](g *Guard, key KeyFunc[Req], h func(context.Context, Req) (Resp, error), optFns ...func(*Options)) func(context.Context, Req) (Resp, error) {
	if g == nil || key == nil || h == nil {
		panic("idempotent: Wrap wants a guard, a KeyFunc and a handler, got nil")
	}
	o, err := g.options(optFns)
	if err != nil {
		panic(err)
	}
	if _, standard := o.Codec.(*jsonCodec); standard {
		if err := checkEncodable(reflect.TypeFor[Resp]()); err != nil {
			panic(fmt.Errorf("idempotent: Wrap: the handler's result cannot be stored: %w; change the type or set Options.Codec", err))
		}
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
