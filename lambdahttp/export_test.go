// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"context"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/sfv"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// Access to unexported identifiers for the tests.
var (
	Codec          idempotent.Codec = responses{}
	OperationOf                     = operationOf
	SplitMultipart                  = splitMultipart
	VerifyDigest                    = verifyDigest
	SyntaxErrors                    = []error{sfv.ErrNotString, sfv.ErrUnclosed, sfv.ErrEscape, sfv.ErrUnprintable, sfv.ErrTrailing, sfv.ErrParameter, errComma, errCharacter, errUUID}
)

// ExchangeHeaders yields the groups of headers that are never stored.
func ExchangeHeaders(yield func(why string, names []string) bool) {
	for _, group := range httpform.ExchangeHeaders {
		if !yield(group.Why, group.Names) {
			return
		}
	}
}

// responses is the codec for plain responses: other packages cannot name the
// type that it decodes into.
type responses struct{ codec }

func (c responses) Decode(data []byte, v any) error {
	out, ok := v.(*Response)
	if !ok {
		return c.codec.Decode(data, v)
	}
	var s stored
	err := c.codec.Decode(data, &s)
	if err == nil {
		*out = s.Response
	}
	return err
}

// Reencode decodes a stored response and encodes it again. The error is that of
// decoding.
func Reencode(data []byte) (r Response, again []byte, err error) {
	var s stored
	if err := (codec{}).Decode(data, &s); err != nil {
		return r, nil, err
	}
	again, _ = codec{}.Encode(s) // nil if it fails
	return s.Response, again, nil
}

// CodecIn returns the codec of the guarded handler that ctx belongs to.
func CodecIn(ctx context.Context) idempotent.Codec {
	return codec{ctx.Value(declarationKey{}).(*declaration)}
}

// PolicyOf returns the policy of a handler that is built with these arguments.
func PolicyOf(g *idempotent.Guard, optFns ...func(*Options)) *describe.Policy {
	return newEngine(g, translator{}, optFns).Describe()
}

// ResourceOf returns the path of r in the form in which it is compared.
func ResourceOf(r *Request) string { return r.resource }

// HeaderKey reads a key from one header line, and BodyKey from a field of a body.
func HeaderKey(p *Profile, value string) (string, error) {
	key, _, err := KeySource{}.read(&Request{header: map[string]string{p.Header: value}}, p)
	return key, err
}

func BodyKey(body string, from KeySource) (string, bool, error) {
	return (&Request{body: body}).bodyField(from.path)
}
