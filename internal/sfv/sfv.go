// SPDX-License-Identifier: Apache-2.0

// Package sfv reads the structured fields of RFC 9651 (which obsoletes RFC 8941)
// that an idempotent request has: an Item that is a String, and a Dictionary of
// Byte Sequences.
//
// There is one function for each production, named as in the RFC's section 4.2
// and in its order. A key is a String, but a parameter can have any type:
// parameters are checked and ignored.
package sfv

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"
)

// The errors of String and StringOrBare. Their texts are shown to the client:
// they describe the problem and never quote the value.
var (
	ErrNotString   = errors.New("the value must be one string in double quotes")
	ErrUnclosed    = errors.New("the closing double quote is missing")
	ErrEscape      = errors.New("a backslash is allowed before a double quote or a backslash only")
	ErrUnprintable = errors.New("a string must contain printable ASCII characters only")
	ErrTrailing    = errors.New("something follows the key; send exactly one")
	ErrParameter   = errors.New("a parameter after the key is malformed")
)

// String reads value as one Item that is a String, and returns the String
// without quotes and escapes.
func String(value string) (string, error) { return item(value, (*parser).string) }

// StringOrBare is String, or a text of the characters of a Token without quotes.
// It accepts more than the Token of section 4.2.6, which begins with a letter or
// '*': most UUIDs do not.
func StringOrBare(value string) (string, error) { return item(value, (*parser).stringOrBare) }

// item reads value as one Item whose bare item is read by bare, and returns the
// bare item (sections 4.2 and 4.2.3). Only spaces are allowed around it.
func item(value string, bare func(*parser) (string, error)) (string, error) {
	p := &parser{strings.TrimLeft(value, " ")}
	key, err := bare(p)
	if err != nil {
		return "", err
	}
	if !p.parameters() {
		return "", ErrParameter
	}
	if strings.TrimLeft(p.rest, " ") != "" {
		return "", ErrTrailing
	}
	return key, nil
}

// Member is one member of a Dictionary of Byte Sequences.
type Member struct {
	Key   string
	Value []byte
}

// ByteDictionary reads value as a Dictionary (section 4.2.2) whose members are
// Byte Sequences, such as Content-Digest (RFC 9530, section 2). It returns all
// members of one name, although the RFC takes the last: every digest must match.
func ByteDictionary(value string) (members []Member, ok bool) {
	p := &parser{value}
	space := func(c byte) bool { return c == ' ' }
	white := func(c byte) bool { return c == ' ' || c == '\t' }
	p.while(space)
	for p.rest != "" {
		key := p.key()
		if key == "" || !p.skip('=') {
			return nil, false
		}
		bytes, ok := p.byteSequence()
		if !ok || !p.parameters() {
			return nil, false
		}
		members = append(members, Member{key, bytes})
		p.while(white)
		if p.rest == "" {
			return members, true
		}
		if !p.skip(',') {
			return nil, false
		}
		if p.while(white); p.rest == "" { // trailing comma
			return nil, false
		}
	}
	return members, true
}

// IsHTTPToken reports whether s is a token of RFC 9110, section 5.6.2: the name
// of a header or a method. A Token of RFC 9651 is another production.
func IsHTTPToken(s string) bool {
	for i := range len(s) {
		if !isTchar(s[i]) {
			return false
		}
	}
	return s != ""
}

// parser is the part of a field's value that is still to be parsed.
type parser struct{ rest string }

// peek returns the next character, or 0 at the end. A NUL in the value is
// treated like the end, because both are errors wherever a character is
// expected.
func (p *parser) peek() byte {
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

// skip consumes c if it comes next.
func (p *parser) skip(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while consumes the characters for which ok is true.
func (p *parser) while(ok func(byte) bool) string {
	i := 0
	for i < len(p.rest) && ok(p.rest[i]) {
		i++
	}
	taken := p.rest[:i]
	p.rest = p.rest[i:]
	return taken
}

// bareItem reads a bare item of any type (section 4.2.3.1).
func (p *parser) bareItem() bool {
	switch c := p.peek(); {
	case c == '-' || isDigit(c):
		_, ok := p.number()
		return ok
	case c == '"':
		_, err := p.string()
		return err == nil
	case c == '*' || isAlpha(c):
		p.while(isTokenByte)
		return true
	case c == ':':
		_, ok := p.byteSequence()
		return ok
	case c == '?':
		return p.boolean()
	case c == '@':
		return p.date()
	case c == '%':
		return p.displayString()
	}
	return false
}

// parameters reads the parameters after a bare item (section 4.2.3.2).
func (p *parser) parameters() bool {
	for p.skip(';') {
		p.while(func(c byte) bool { return c == ' ' })
		if p.key() == "" || p.skip('=') && !p.bareItem() {
			return false
		}
	}
	return true
}

// key reads the name of a parameter or of a member (section 4.2.3.3). It
// returns "" if there is no valid name.
func (p *parser) key() string {
	if c := p.peek(); c != '*' && !isLower(c) {
		return ""
	}
	return p.while(func(c byte) bool {
		return isLower(c) || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
	})
}

// number reads an Integer of at most 15 digits, or a Decimal of at most 12
// digits before and 1 to 3 after the point (section 4.2.4).
func (p *parser) number() (integer, ok bool) {
	p.skip('-')
	whole := p.while(isDigit)
	if !p.skip('.') {
		return true, 1 <= len(whole) && len(whole) <= 15
	}
	fraction := p.while(isDigit)
	return false, 1 <= len(whole) && len(whole) <= 12 && 1 <= len(fraction) && len(fraction) <= 3
}

// string reads a String and returns it without quotes and escapes (section
// 4.2.5).
func (p *parser) string() (string, error) {
	if !p.skip('"') {
		return "", ErrNotString
	}
	s := p.rest
	var unescaped []byte // nil while there was no escape
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			p.rest = s[i+1:]
			if unescaped != nil {
				return string(unescaped), nil
			}
			return s[:i], nil
		case c == '\\':
			if unescaped == nil {
				unescaped = append(make([]byte, 0, len(s)), s[:i]...)
			}
			i++
			if i == len(s) {
				return "", ErrUnclosed
			}
			if s[i] != '"' && s[i] != '\\' {
				return "", ErrEscape
			}
			unescaped = append(unescaped, s[i])
		case c < ' ' || c > '~':
			return "", ErrUnprintable
		case unescaped != nil:
			unescaped = append(unescaped, c)
		}
	}
	return "", ErrUnclosed
}

// stringOrBare reads a String, or a text of the characters of a Token.
func (p *parser) stringOrBare() (string, error) {
	if p.peek() == '"' {
		return p.string()
	}
	if bare := p.while(isTokenByte); bare != "" {
		return bare, nil
	}
	return "", ErrNotString
}

// byteSequence reads base64 between colons (section 4.2.7). Padding is optional
// and non-zero pad bits are accepted, as the section recommends.
func (p *parser) byteSequence() ([]byte, bool) {
	if !p.skip(':') {
		return nil, false
	}
	text, rest, closed := strings.Cut(p.rest, ":")
	if !closed || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	p.rest = rest
	value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	return value, err == nil
}

// boolean reads ?0 or ?1 (section 4.2.8).
func (p *parser) boolean() bool {
	return p.skip('?') && (p.skip('0') || p.skip('1'))
}

// date reads '@' and an Integer (section 4.2.9).
func (p *parser) date() bool {
	p.skip('@')
	integer, ok := p.number()
	return integer && ok
}

// displayString reads '%' and percent-encoded UTF-8 in quotes (section 4.2.10).
func (p *parser) displayString() bool {
	if p.skip('%'); !p.skip('"') {
		return false
	}
	text, rest, closed := strings.Cut(p.rest, `"`)
	if !closed {
		return false
	}
	p.rest = rest
	decoded := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ' || c > '~':
			return false
		case c != '%':
			decoded = append(decoded, c)
		default:
			if i+2 >= len(text) || strings.ToLower(text[i:i+3]) != text[i:i+3] {
				return false
			}
			b, err := hex.DecodeString(text[i+1 : i+3])
			if err != nil {
				return false
			}
			decoded = append(decoded, b[0])
			i += 2
		}
	}
	return utf8.Valid(decoded)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool { return isLower(c | 0x20) }

// isTokenByte reports whether c is allowed in a Token after its first
// character: tchar of RFC 9110, section 5.6.2, ':' and '/'.
func isTokenByte(c byte) bool { return isTchar(c) || c == ':' || c == '/' }

func isTchar(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
