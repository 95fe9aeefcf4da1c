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
// the document once and writes it in its own order (parse.go). If members have to
// move, it then copies each byte once more, to its place (order.go).
package canonical

import (
	"bytes"
	"errors"
	"slices"
	"sync"
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
