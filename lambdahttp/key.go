// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/jsonpointer"
	"github.com/once-lambda/once/internal/sfv"
)

// KeySource is where a request carries its key. The zero value is the header of
// the profile; [BodyField] is the other source.
type KeySource struct{ member string }

// BodyField is the [KeySource] of APIs whose requests carry the key in a member
// of their JSON body, such as "idempotency_key" or "requestId". The key is the
// member's string, without additional quotes. A member that is null counts as
// missing. The profile's length bounds and the Canonical of its syntax apply.
//
// The body must be one JSON object without duplicate names, whatever its
// Content-Type is. It can be compressed, see [WholeRequest]. Any other body is
// refused, because it is ambiguous whether it contains a key. An empty body has
// no key.
func BodyField(name string) KeySource {
	if name == "" {
		panic(`lambdahttp: BodyField: the member's name is empty; give one, for example "idempotency_key"`)
	}
	return KeySource{member: name}
}

// answers changes the texts that mention the header.
func (k KeySource) answers(a *Answers) {
	if k.member == "" {
		return
	}
	a[MissingKey].Detail = fmt.Sprintf("This operation requires the member %q in the body. Send a new random key, for example a UUID.", k.member)
	a[InvalidKey].Detail = fmt.Sprintf("The member %q of the body cannot be used as a key.", k.member)
}

// bodyKeySyntax and bodyKeyPattern replace the description and pattern of
// Profile.Syntax for a key in the body.
const (
	bodyKeySyntax  = "a string of printable ASCII characters; spaces do not count toward the minimum length"
	bodyKeyPattern = `^[!-~]{min,max}$`
)

// read returns the request's key, and whether it has one. The error's text is
// for the client.
func (k KeySource) read(r *Request, p *Profile) (key string, found bool, err error) {
	if k.member != "" {
		key, found, err = r.bodyMember(k.member)
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

// bodyMember returns the string value of a member of the JSON body, and whether
// the member exists. It sets r.document, so it must be called before any rule.
func (r *Request) bodyMember(name string) (value string, found bool, err error) {
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
	raw, found := jsonpointer.Pointer{name}.Lookup(doc)
	if !found || string(raw) == "null" {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", true, errNotText
	}
	return value, true, nil
}

var (
	errNoObject = errors.New("the body is not one JSON object with distinct names")
	errNotText  = errors.New("the member is not a string")
)

// ResourceKey returns the ID of the [idempotent.Key] of a request whose path
// belongs to its key, see [Options.Operation] and [Profile.PerResource]. The path
// has no stage, base path and query, as "/orders/1/pay", in any percent-encoding, and
// begins with the host if the pattern of a ServeMux has one.
// The ID of other requests is the key itself. Use it to find the record of a
// request by its key.
func ResourceKey(path, key string) string {
	// A key is printable and a canonical path is too, so no ID has two meanings.
	return canonicalPath(path) + "\n" + key
}

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
