// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"errors"
	"fmt"
	"strings"

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
