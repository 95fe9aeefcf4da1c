// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Language is a version of Powertools. Each hashes payloads and stores results in
// its own form.
type Language uint8

const (
	// Python is Powertools for AWS Lambda (Python), version 3.
	Python Language = iota + 1
	// TypeScript is Powertools for AWS Lambda (TypeScript), version 2.
	TypeScript
)

// String returns "Python" or "TypeScript".
func (l Language) String() string {
	switch l {
	case Python:
		return "Python"
	case TypeScript:
		return "TypeScript"
	}
	return fmt.Sprintf("Language(%d)", uint8(l))
}

// sum returns the hash of a payload as the language stores it.
func (l Language) sum(newHash func() hash.Hash, payload any) (string, error) {
	form, err := l.form(payload)
	if err != nil {
		return "", fmt.Errorf("powertools: the payload cannot be hashed as in %s: %w", l, err)
	}
	h := newHash()
	h.Write(form)
	if l == TypeScript {
		return base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// form returns the JSON text that the language hashes. Python sorts members by
// their names, escapes all but ASCII, and writes a space after a comma and a colon.
// TypeScript sorts members by their names in lower case, and numbers and texts are
// those of JSON.stringify.
func (l Language) form(payload any) ([]byte, error) {
	doc, err := json.Marshal(payload) // which keeps the numbers of a json.RawMessage
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	_ = d.Decode(&v) // it is valid: json.Marshal has written it
	return l.value(nil, v)
}

func (l Language) value(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return l.text(b, v)
	case json.Number:
		return l.number(b, string(v))
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if b, err = l.value(l.comma(b, i), e); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		names, err := l.names(v)
		if err != nil {
			return nil, err
		}
		b = append(b, '{')
		for i, name := range names {
			if b, err = l.text(l.comma(b, i), name); err != nil {
				return nil, err
			}
			b = append(b, ':')
			if l == Python {
				b = append(b, ' ')
			}
			if b, err = l.value(b, v[name]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
	return nil, fmt.Errorf("it contains a %T", v) // encoding/json decodes to the types above
}

// comma appends what is between two elements, before element i.
func (l Language) comma(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	if l == Python {
		return append(b, ", "...)
	}
	return append(b, ',')
}

// names returns the names of the members in their order.
func (l Language) names(object map[string]any) ([]string, error) {
	names := slices.Sorted(maps.Keys(object)) // as Python does: by code points
	if l == Python {
		return names, nil
	}
	// JavaScript lists names that are array indexes first, by their value, and the
	// others in the order of their insertion.
	for _, name := range names {
		if name == "__proto__" || strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return nil, fmt.Errorf("the order of a member name that is __proto__ or not ASCII is not known")
		}
	}
	var indexes, others []string
	for _, name := range names {
		if _, is := arrayIndex(name); is {
			indexes = append(indexes, name)
		} else {
			others = append(others, name)
		}
	}
	slices.SortFunc(indexes, func(a, b string) int {
		indexA, _ := arrayIndex(a)
		indexB, _ := arrayIndex(b)
		return cmp.Compare(indexA, indexB)
	})
	slices.SortFunc(others, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	for i := range len(others) - 1 {
		if strings.EqualFold(others[i], others[i+1]) {
			return nil, errors.New("the order of two member names that differ only in case is not known")
		}
	}
	return append(indexes, others...), nil
}

// arrayIndex returns the value of a name that is an array index (ECMA-262, section
// 6.1.7).
func arrayIndex(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return n, err == nil && n < math.MaxUint32 && strconv.FormatUint(n, 10) == name
}

func (l Language) number(b []byte, s string) ([]byte, error) {
	if l == Python && !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			s = "0"
		}
		return append(b, s...), nil // integers have any number of digits
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, errors.New("a number is too large")
	}
	if l == TypeScript {
		text, _ := json.Marshal(f + 0) // which follows ECMA-262, and makes -0 positive; a finite number always encodes
		return append(b, text...), nil
	}
	// repr of a float: an exponent below 1e-4 and from 1e16.
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	if exponent, _ := strconv.Atoi(scientific[strings.IndexByte(scientific, 'e')+1:]); exponent < -4 || exponent >= 16 {
		return append(b, scientific...), nil
	}
	fixed := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(fixed, ".") {
		fixed += ".0"
	}
	return append(b, fixed...), nil
}

var escapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func (l Language) text(b []byte, s string) ([]byte, error) {
	b = append(b, '"')
	for _, r := range s {
		escape, short := escapes[r]
		switch {
		case r == utf8.RuneError:
			// encoding/json has put it in the place of half a surrogate pair, perhaps.
			return nil, errors.New("a text contains U+FFFD or half a surrogate pair")
		case short:
			b = append(b, escape...)
		case r > 0xffff && l == Python:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		case r < ' ' || r > '~' && l == Python:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"'), nil
}
