// SPDX-License-Identifier: Apache-2.0

// Package canonical returns the canonical form of JSON documents: two spellings of
// the same request have the same bytes, and different requests have different
// bytes.
//
// It implements RFC 8785 (JSON Canonicalization Scheme) with one deviation. RFC
// 8785 reads every number as an IEEE 754 double and so makes different payments
// equal: 9007199254740993 and 9007199254740992, or 1e400 and the largest double.
// Here a number whose double does not equal the written decimal is returned as
// that decimal, normalised, and so is a number below 1e-300 (see number.go). Every
// other number follows RFC 8785, section 3.2.2.3.
//
// The time is proportional to the size of the document, whatever its shape, except
// that n members of an object are sorted in n log n comparisons. The package reads
// the document once and writes it in its own order. If members have to move, it then
// copies each byte once more, to its place (order.go).
package canonical

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns the canonical form of the JSON document doc, which it does not
// modify. It returns an error for a document without a single meaning: a syntax
// error, trailing data, an object with a duplicate name, invalid UTF-8, or a
// number whose exponent has more than 18 digits. It also refuses a document that
// is nested more than 10,000 deep, as encoding/json does. The error contains the
// position and not the content. JSON is safe for concurrent use.
func JSON(doc []byte) (form []byte, err error) {
	err = Use(doc, func(f []byte) { form = bytes.Clone(f) })
	return form, err
}

// Use passes the canonical form that [JSON] returns to use, which must not keep it.
func Use(doc []byte, use func(form []byte)) error {
	if len(doc) > maxSize {
		return errors.New("canonical JSON: the document has more than 512 MB")
	}
	p := parsers.Get().(*parser)
	defer p.release()
	p.doc = doc
	p.out = slices.Grow(p.out, len(doc))
	if err := p.document(); err != nil {
		return err
	}
	use(p.sorted())
	return nil
}

// parsers are parsers that are not in use, with room for documents of usual size.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// maxSize limits documents, in bytes. The canonical form of a document has at most six
// times its size, and offsets have 32 bits.
const maxSize = 512 << 20

// maxKept limits the memory that a parser in the pool keeps, in bytes of out. The
// rest of a parser grows with out.
const maxKept = 1 << 20

func (p *parser) release() {
	if cap(p.out) > maxKept {
		return
	}
	l := &p.layout
	*p = parser{layout: layout{l.out[:0], l.names[:0], l.keys[:0], l.objects[:0], l.members[:0], 0, l.ranks[:0], l.before[:0], l.todo[:0]}}
	parsers.Put(p)
}

// maxDepth is how deep values can be nested. It is the limit of encoding/json: a
// handler cannot decode a deeper document either. The parser is recursive, so it
// also limits the stack.
const maxDepth = 10_000

// What can be wrong with a document. The texts never quote it: error texts are
// logged, and a request may contain secrets.
const (
	invalid    = "invalid JSON document"
	incomplete = "the JSON document is incomplete"
	notText    = "invalid UTF-8"
	duplicate  = "duplicate member name in an object"
	tooDeep    = "the JSON document is nested more than 10,000 deep"
)

// parser reads a document and writes its values in canonical spelling, in the
// order of the document.
type parser struct {
	doc []byte
	pos int // doc[:pos] has been read
	layout
}

func (p *parser) fail(what string) error {
	return fmt.Errorf("canonical JSON: %s (at byte %d)", what, p.pos)
}

// unexpected is the error for the next byte.
func (p *parser) unexpected() error {
	if p.pos == len(p.doc) {
		return p.fail(incomplete)
	}
	return p.fail(invalid)
}

// next skips white space and returns the next byte, or 0 at the end. A NUL in the
// document is an error wherever next is used.
func (p *parser) next() byte {
	for ; p.pos < len(p.doc); p.pos++ {
		switch c := p.doc[p.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// skip consumes c if it comes next.
func (p *parser) skip(c byte) bool {
	if p.next() != c {
		return false
	}
	p.pos++
	return true
}

func (p *parser) document() error {
	if err := p.value(0); err != nil {
		return err
	}
	if p.next(); p.pos < len(p.doc) {
		return p.fail(invalid)
	}
	return nil
}

func (p *parser) value(depth int) error {
	switch c := p.next(); {
	case c == '"':
		return p.text()
	case c == '-' || isDigit(c):
		return p.number()
	case depth == maxDepth && (c == '{' || c == '['):
		return p.fail(tooDeep)
	case c == '{':
		return p.object(depth + 1)
	case c == '[':
		return p.array(depth + 1)
	case c == 't':
		return p.literal("true")
	case c == 'f':
		return p.literal("false")
	}
	return p.literal("null") // refuses anything else
}

func (p *parser) literal(text string) error {
	for i := range len(text) {
		if p.pos == len(p.doc) || p.doc[p.pos] != text[i] {
			return p.unexpected()
		}
		p.pos++
	}
	p.out = append(p.out, text...)
	return nil
}

func (p *parser) array(depth int) error {
	p.pos++
	p.out = append(p.out, '[')
	for first := true; !p.skip(']'); first = false {
		if !first {
			if !p.skip(',') {
				return p.unexpected()
			}
			p.out = append(p.out, ',')
		}
		if err := p.value(depth); err != nil {
			return err
		}
	}
	p.out = append(p.out, ']')
	return nil
}

func (p *parser) object(depth int) error {
	p.pos++
	o := p.open()
	for first := true; !p.skip('}'); first = false {
		if !first {
			if !p.skip(',') {
				return p.unexpected()
			}
			p.out = append(p.out, ',')
		}
		if p.next() != '"' {
			return p.unexpected()
		}
		start := len(p.out)
		if err := p.text(); err != nil {
			return err
		}
		i := p.named(&o, start)
		if !p.skip(':') {
			return p.unexpected()
		}
		p.out = append(p.out, ':')
		if err := p.value(depth); err != nil {
			return err
		}
		p.ended(i)
	}
	if !p.close(o) {
		return p.fail(duplicate)
	}
	return nil
}

// text reads a string.
func (p *parser) text() error {
	doc, copied := p.doc, p.pos // doc[:copied] is in p.out, or is not part of it
	for i := p.pos + 1; ; {
		for i < len(doc) && verbatim[doc[i]] {
			i++
		}
		if p.pos = i; i == len(doc) {
			return p.fail(incomplete)
		}
		switch c := doc[i]; {
		case c == '"':
			p.pos++
			p.out = append(p.out, doc[copied:p.pos]...)
			return nil
		case c == '\\' && i+1 < len(doc) && canonicalEscape[doc[i+1]]:
			i += 2
		case c == '\\':
			p.out = append(p.out, doc[copied:i]...)
			if err := p.escape(); err != nil {
				return err
			}
			i, copied = p.pos, p.pos
		case c < ' ':
			return p.fail(invalid)
		default:
			_, size := utf8.DecodeRune(doc[i:])
			if size == 1 {
				return p.fail(notText)
			}
			i += size
		}
	}
}

// verbatim are the bytes that a string can contain unescaped, apart from parts of
// longer characters.
var verbatim = func() (is [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// canonicalEscape are the bytes after a backslash of which RFC 8785, section
// 3.2.2.2, leaves the escape as it is.
var canonicalEscape = [256]bool{'"': true, '\\': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// escape reads another escape sequence, and writes the character.
func (p *parser) escape() error {
	if p.pos++; p.pos == len(p.doc) {
		return p.fail(incomplete)
	}
	switch p.doc[p.pos] {
	case '/':
		p.pos++
		p.out = append(p.out, '/')
		return nil
	case 'u':
		return p.escapedUnit()
	}
	return p.fail(invalid)
}

// escapedUnit reads the rest of \uXXXX, or of a pair of them.
func (p *parser) escapedUnit() error {
	start := p.pos - 1
	r, err := p.unit()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		var second rune
		if bytes.HasPrefix(p.doc[p.pos:], []byte(`\u`)) {
			p.pos++
			if second, err = p.unit(); err != nil {
				return err
			}
		}
		if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
			p.pos = start
			return p.fail(notText)
		}
	}
	p.character(r)
	return nil
}

// unit reads uXXXX.
func (p *parser) unit() (r rune, err error) {
	for range 4 {
		if p.pos++; p.pos == len(p.doc) {
			return 0, p.fail(incomplete)
		}
		c := p.doc[p.pos]
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, p.fail(invalid)
		}
		r = r<<4 | rune(c)
	}
	p.pos++
	return r, nil
}

// character writes a character of a string.
func (p *parser) character(r rune) {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		p.out = append(p.out, '\\', byte(r))
	case r >= ' ':
		p.out = utf8.AppendRune(p.out, r)
	default:
		if short := "uuuuuuuubtnufr"; int(r) < len(short) && short[r] != 'u' {
			p.out = append(p.out, '\\', short[r])
			return
		}
		p.out = append(p.out, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
	}
}

// number reads a number.
func (p *parser) number() error {
	start := p.pos
	if p.doc[p.pos] == '-' {
		p.pos++
	}
	whole := p.pos
	switch digits := p.digits(); {
	case digits == 0:
		return p.unexpected()
	case digits > 1 && p.doc[whole] == '0':
		return p.fail(invalid)
	}
	integer := true
	if p.pos < len(p.doc) && p.doc[p.pos] == '.' {
		integer = false
		if p.pos++; p.digits() == 0 {
			return p.unexpected()
		}
	}
	if p.pos < len(p.doc) && p.doc[p.pos]|0x20 == 'e' {
		integer = false
		if p.pos++; p.pos < len(p.doc) && (p.doc[p.pos] == '+' || p.doc[p.pos] == '-') {
			p.pos++
		}
		if p.digits() == 0 {
			return p.unexpected()
		}
	}
	text := p.doc[start:p.pos]
	if integer && p.pos-whole <= plainDigits && (p.doc[whole] != '0' || start == whole) {
		p.out = append(p.out, text...)
		return nil
	}
	var err error
	p.out, err = appendNumber(p.out, text)
	return err
}

// digits consumes decimal digits, and returns how many.
func (p *parser) digits() (n int) {
	for p.pos < len(p.doc) && isDigit(p.doc[p.pos]) {
		p.pos++
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
