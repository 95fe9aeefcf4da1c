// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"errors"
	"strings"

	"github.com/once-lambda/once/internal/sfv"
)

// KeySyntax defines how a key is written: Parse and Canonical for the program,
// the other fields for the documentation of a resource.
type KeySyntax struct {
	// Parse reads the key from the value of a header line. The error's text is
	// shown to the client, so it must not quote the value.
	Parse func(value string) (key string, err error)
	// Canonical returns the form of a key in which keys are compared: two keys
	// are the same if and only if it returns the same bytes for them. It gets
	// every key, from Parse or from a body field, and refuses an invalid one.
	// Its error is shown to the client too. Default: the key unchanged, so that
	// every printable ASCII text is a key.
	Canonical func(key string) (string, error)

	// Pattern is a regular expression (ECMA-262). Every value that a client
	// should send matches it, and no value that Parse refuses does. In it
	// {min,max} stands for the profile's bounds.
	Pattern string
	// Description is the same in words.
	Description string
	// Example is a valid value.
	Example string
}

// QuotedKey is a string in double quotes,
// "8e03978e-40d5-43e8-bc93-6894a57f9324": an sf-string of RFC 9651, section
// 3.3.3 (the same as in RFC 8941), as the draft requires. Parameters after it
// are allowed and ignored.
var QuotedKey = KeySyntax{
	Parse:       sfv.String,
	Pattern:     `^"(?:[!#-\[\]-~]|\\["\\]){min,max}"$`,
	Description: `printable ASCII in double quotes, in which " and \ are written \" and \\ (a String of RFC 9651); spaces do not count toward the minimum length`,
	Example:     `"` + exampleKey + `"`,
}

// QuotedOrBareKey is a [QuotedKey], or a key without quotes that contains only
// letters, digits and !#$%&'*+-.^_`|~:/. Both spellings are the same key.
var QuotedOrBareKey = KeySyntax{
	Parse:       sfv.StringOrBare,
	Pattern:     `^(?:"(?:[!#-\[\]-~]|\\["\\]){min,max}"|[!#-'*+\-./0-9:A-Z^_` + "`" + `a-z|~]{min,max})$`,
	Description: QuotedKey.Description + "; the quotes may be omitted if the key contains letters, digits and !#$%&'*+-.^_`|~:/ only",
	Example:     QuotedKey.Example,
}

// OpaqueKey is the value unchanged, except that white space around it is
// removed. Quotes are part of the key. A comma is not allowed, because gateways
// join two header lines with one.
var OpaqueKey = KeySyntax{
	Parse: func(value string) (string, error) {
		if strings.Contains(value, ",") {
			return "", errComma
		}
		return strings.Trim(value, " \t"), nil
	},
	Pattern:     `^[!-+\--~]{min,max}$`,
	Description: "printable ASCII without a comma and without quotes around it",
	Example:     exampleKey,
}

// UUIDKey is a UUID of version 4 or 7 (RFC 9562), with or without double
// quotes. It is compared by its value: both spellings are the same key, and so
// are upper and lower case digits (RFC 9562, section 4). Records have it in
// lower case.
var UUIDKey = KeySyntax{
	Parse:       QuotedOrBareKey.Parse,
	Canonical:   canonicalUUID,
	Pattern:     `^(?:` + uuidPattern + `|"` + uuidPattern + `")$`,
	Description: "a UUID of version 4 or 7 (RFC 9562) in its usual form of 36 characters, with or without double quotes; upper and lower case are the same key",
	Example:     exampleKey,
}

const exampleKey = "8e03978e-40d5-43e8-bc93-6894a57f9324"

const uuidPattern = `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[47][0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}`

var (
	errComma     = errors.New("a key must not contain a comma; send exactly one key")
	errCharacter = errors.New("a key must contain printable ASCII characters only")
	errUUID      = errors.New("a key must be a UUID of version 4 or 7")
)

// canonicalUUID returns key in lower case. It returns an error unless key is a
// UUID of version 4 or 7 in the variant of RFC 9562, sections 4 and 5.
func canonicalUUID(key string) (string, error) {
	if len(key) != 36 {
		return "", errUUID
	}
	key = strings.ToLower(key)
	for i := range len(key) {
		c := key[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return "", errUUID
			}
		case 14:
			if c != '4' && c != '7' {
				return "", errUUID
			}
		case 19:
			if strings.IndexByte("89ab", c) < 0 {
				return "", errUUID
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return "", errUUID
			}
		}
	}
	return key, nil
}
