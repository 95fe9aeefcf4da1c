// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"bytes"
	"errors"
	"strconv"
)

// plainDigits is how many decimal digits a double always preserves, if it is not
// too large or too small: two decimals with so few digits are never the same
// double, so each is the shortest text of its double.
const plainDigits = 15

// doubleDigits is how many digits the shortest text of a double has at most, and
// largestDouble are the digits of the largest, which has 309 before the point.
const (
	doubleDigits  = 17
	largestDouble = "17976931348623157"
)

// exponentDigits limits the exponent, so that it fits into an int64.
const exponentDigits = 18

var errExponent = errors.New("canonical JSON: a number's exponent has more than 18 digits")

// decimal is the exact value of a number's text: ±digits × 10^exp, with no zero
// at either end of digits. Zero has no digits.
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
	d.digits = bytes.TrimRight(digits, "0")
	d.exp += int64(len(digits) - len(d.digits))
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

// magnitude returns the number of digits before the decimal point.
func (d decimal) magnitude() int64 { return d.exp + int64(len(d.digits)) }

// appendNumber writes the canonical form of one number.
func appendNumber(dst, text []byte) ([]byte, error) {
	var buf scratch
	d, err := parseDecimal(text, &buf)
	if err != nil {
		return nil, err
	}
	if len(d.digits) == 0 {
		return append(dst, '0'), nil
	}
	if d.negative {
		dst = append(dst, '-')
	}
	if d.isShortest() {
		return d.appendDouble(dst), nil
	}
	return d.append(dst), nil
}

// isShortest reports whether the decimal is the shortest text of its double, as
// ECMAScript prints it. If the shortest text is another decimal, the double would
// hide a difference.
//
// strconv needs 20 µs for a decimal near the smallest double, and 100 µs for one
// just beyond the largest. So it reports false for all decimals below 1e-300, and
// compares the digits of the largest.
func (d decimal) isShortest() bool {
	n := d.magnitude()
	switch {
	case len(d.digits) > doubleDigits, n < -299, n > 309, n == 309 && string(d.digits) > largestDouble:
		return false
	case len(d.digits) <= plainDigits:
		return true
	}
	var text, digits scratch
	f, _ := strconv.ParseFloat(string(d.append(text[:0])), 64)
	shortest, _ := parseDecimal(strconv.AppendFloat(text[:0], f, 'e', -1, 64), &digits)
	return bytes.Equal(shortest.digits, d.digits)
}

// append writes the decimal without its sign as an integer, with an exponent if
// necessary. It is the canonical form of a number that no double equals.
func (d decimal) append(dst []byte) []byte {
	dst = append(dst, d.digits...)
	if d.exp != 0 {
		dst = append(dst, 'e')
		dst = strconv.AppendInt(dst, d.exp, 10)
	}
	return dst
}

// appendDouble writes the decimal without its sign as ECMAScript's
// Number::toString does (RFC 8785, section 3.2.2.3).
func (d decimal) appendDouble(dst []byte) []byte {
	const zeros = "000000000000000000000"
	digits, n := d.digits, d.magnitude()
	switch {
	case d.exp >= 0 && n <= 21:
		dst = append(dst, digits...)
		return append(dst, zeros[:d.exp]...)
	case d.exp < 0 && n > 0:
		dst = append(dst, digits[:n]...)
		dst = append(dst, '.')
		return append(dst, digits[n:]...)
	case -6 < n && n <= 0:
		dst = append(dst, "0."...)
		dst = append(dst, zeros[:-n]...)
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if n > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, n-1, 10)
}
