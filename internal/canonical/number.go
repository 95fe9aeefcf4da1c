// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// plainDigits is how many decimal digits every double represents exactly.
const plainDigits = 15

// exponentDigits limits the exponent, so that it fits into an int64.
const exponentDigits = 18

var errExponent = errors.New("canonical JSON: a number's exponent has more than 18 digits")

// isPlainInteger reports whether text is already in canonical form: an integer
// short enough to be exact as a double. "-0" is not; its canonical form is 0.
func isPlainInteger(text []byte) bool {
	digits := text
	if digits[0] == '-' {
		digits = digits[1:]
		if digits[0] == '0' {
			return false
		}
	}
	if len(digits) > plainDigits {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// decimal is the exact value of a number's text: ±digits × 10^exp, with no zero
// at either end of digits. Zero has no digits, no sign and no exponent, so two
// decimals are equal if and only if their fields are equal.
type decimal struct {
	negative bool
	digits   []byte
	exp      int64
}

// scratch has room for the digits of all usual numbers, to avoid an allocation.
type scratch [64]byte

// parseDecimal parses text, which follows the grammar of a JSON number. It stores
// the digits in buf if they fit.
func parseDecimal(text []byte, buf *scratch) (decimal, error) {
	var d decimal
	if text[0] == '-' {
		d.negative, text = true, text[1:]
	}
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		exp, err := parseExponent(text[i+1:])
		if err != nil {
			return decimal{}, err
		}
		d.exp, text = exp, text[:i]
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	d.exp -= int64(len(fraction))
	digits := append(append(buf[:0], whole...), fraction...)
	digits = bytes.TrimLeft(digits, "0")
	trimmed := bytes.TrimRight(digits, "0")
	d.exp += int64(len(digits) - len(trimmed))
	if len(trimmed) == 0 {
		return decimal{}, nil
	}
	d.digits = trimmed
	return d, nil
}

func parseExponent(text []byte) (int64, error) {
	negative := text[0] == '-'
	digits := bytes.TrimLeft(text, "+-")
	digits = bytes.TrimLeft(digits, "0")
	if len(digits) > exponentDigits {
		return 0, errExponent
	}
	exp := int64(0)
	for _, c := range digits {
		exp = exp*10 + int64(c-'0')
	}
	if negative {
		exp = -exp
	}
	return exp, nil
}

func (d decimal) equal(o decimal) bool {
	return d.negative == o.negative && d.exp == o.exp && bytes.Equal(d.digits, o.digits)
}

// append writes the decimal as an integer, with an exponent if necessary. It is
// the canonical form of a number that no double equals.
func (d decimal) append(dst []byte) []byte {
	if d.negative {
		dst = append(dst, '-')
	}
	dst = append(dst, d.digits...)
	if d.exp != 0 {
		dst = append(dst, 'e')
		dst = strconv.AppendInt(dst, d.exp, 10)
	}
	return dst
}

// appendNumber writes the canonical form of one number.
func appendNumber(dst, text []byte) ([]byte, error) {
	var written, printed, digits scratch
	exact, err := parseDecimal(text, &written)
	if err != nil {
		return nil, err
	}
	if len(exact.digits) == 0 {
		return append(dst, '0'), nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil { // beyond the largest double
		return exact.append(dst), nil
	}
	// ECMAScript prints the shortest text of f. If that is another decimal than
	// the written one, the double would hide a difference.
	shortest := strconv.AppendFloat(printed[:0], f, 'e', -1, 64)
	if seen, err := parseDecimal(shortest, &digits); err != nil || !seen.equal(exact) {
		return exact.append(dst), nil
	}
	return appendDouble(dst, f), nil
}

// appendDouble writes f as ECMAScript's Number::toString does (RFC 8785,
// section 3.2.2.3): plain digits for 1e-6 <= |f| < 1e21, else an exponent
// without leading zeros.
func appendDouble(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two exponent digits: e-07 becomes e-7.
	if n := len(dst); n-start >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
