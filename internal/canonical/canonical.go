// SPDX-License-Identifier: Apache-2.0

// Package canonical returns the canonical form of JSON documents: two spellings of
// the same request have the same bytes, and different requests have different
// bytes.
//
// It implements RFC 8785 (JSON Canonicalization Scheme) with one deviation. RFC
// 8785 reads every number as an IEEE 754 double and so makes different payments
// equal: 9007199254740993 and 9007199254740992, or 1e400 and the largest double.
// Here a number whose double does not equal the written decimal is returned as
// that decimal, normalised (see number.go). Every other number follows RFC 8785,
// section 3.2.2.3.
//
// The package wraps github.com/go-json-experiment/json/jsontext, which has no
// tagged release yet and is to become encoding/json/jsontext. The golden vectors
// of the test contain its output, so that the test detects a change there.
package canonical

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON returns the canonical form of the JSON document doc, which it does not
// modify. It returns an error for a document without a single meaning: a syntax
// error, trailing data, an object with a duplicate name, invalid UTF-8, or a
// number whose exponent has more than 18 digits. The error contains the position
// and not the content.
func JSON(doc []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(doc))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, syntaxError(err)
	}
	return numbers(v)
}

// numbers rewrites the numbers of a document that is otherwise canonical. Most
// documents contain only plain integers and are returned unchanged.
func numbers(doc []byte) ([]byte, error) {
	var out []byte // nil while nothing was rewritten
	kept := 0      // doc[:kept] has been copied to out
	for i := 0; i < len(doc); {
		switch c := doc[i]; {
		case c == '"':
			i = skipString(doc, i)
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(doc) && isNumberByte(doc[end]) {
				end++
			}
			if text := doc[i:end]; !isPlainInteger(text) {
				out = append(out, doc[kept:i]...)
				var err error
				if out, err = appendNumber(out, text); err != nil {
					return nil, err
				}
				kept = end
			}
			i = end
		default:
			i++
		}
	}
	if kept == 0 {
		return doc, nil
	}
	return append(out, doc[kept:]...), nil
}

// skipString returns the index after the string that starts at doc[i].
func skipString(doc []byte, i int) int {
	for i++; doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func isNumberByte(c byte) bool {
	switch c {
	case '+', '-', '.', 'e', 'E':
		return true
	}
	return '0' <= c && c <= '9'
}

// syntaxError removes what jsontext quotes from the document: error texts are
// logged, and a request may contain secrets.
func syntaxError(err error) error {
	at := int64(0)
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		at = s.ByteOffset
	}
	what := "invalid JSON document or invalid UTF-8"
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		what = "duplicate member name in an object"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		what = "the JSON document is incomplete"
	}
	return fmt.Errorf("canonical JSON: %s (at byte %d)", what, at)
}
