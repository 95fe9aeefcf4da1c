// Package canonical brings JSON documents into one form per meaning, so that
// two spellings of the same request have the same bytes and two different
// requests never do.
//
// It is RFC 8785 (JSON Canonicalization Scheme) with one deviation. RFC 8785
// reads every number as an IEEE 754 double and so makes different payments
// equal: 9007199254740993 and 9007199254740992, or 1e400 and the largest
// double. Here a number whose double does not stand for exactly the decimal
// that was written keeps that decimal, normalised (see number.go). Every other
// number is written as RFC 8785, section 3.2.2.3, says.
//
// The package hides github.com/go-json-experiment/json/jsontext, which has no
// tagged release yet and is to become encoding/json/jsontext. The golden
// vectors of the test hold its output, so a change there cannot pass unseen.
package canonical

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON returns the canonical form of the JSON document doc, which it leaves
// unchanged. It refuses what has no single meaning: a syntax error, trailing
// data, an object with a duplicate name, text that is not UTF-8, and a number
// whose exponent has more than 18 digits. The error names the position and
// never the content.
func JSON(doc []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(doc))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, syntaxError(err)
	}
	return numbers(v)
}

// numbers rewrites the numbers of a document that is canonical in every other
// respect. Most documents hold only plain integers and come back as they are.
func numbers(doc []byte) ([]byte, error) {
	var out []byte // nil while nothing was rewritten
	kept := 0      // doc[:kept] is in out
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

// skipString returns the index behind the string that starts at doc[i].
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

// syntaxError drops what jsontext quotes from the document: error texts reach
// logs, and a request may hold secrets.
func syntaxError(err error) error {
	at := int64(0)
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		at = s.ByteOffset
	}
	what := "not one valid JSON document in UTF-8"
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		what = "an object has two members of one name"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		what = "the JSON document ends too early"
	}
	return fmt.Errorf("canonical JSON: %s (at byte %d)", what, at)
}
