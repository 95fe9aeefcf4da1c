// SPDX-License-Identifier: Apache-2.0

// Package jsonpointer finds a value in a JSON document by its JSON Pointer (RFC
// 6901).
package jsonpointer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Pointer is a parsed JSON Pointer: its reference tokens.
type Pointer []string

// Parse returns the pointer that text spells, such as "/order/id". The empty
// pointer, which means the whole document, is an error: each caller wants a part.
func Parse(text string) (Pointer, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, errors.New("it must begin with /")
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		for rest := t; ; {
			_, after, found := strings.Cut(rest, "~")
			if !found {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return nil, errors.New("~ is allowed in ~0 and ~1 only")
			}
			rest = after[1:]
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// Lookup returns the bytes of the value in doc: a member of an object, or an
// element of an array. It reports false if there is no such value, or doc is not
// JSON. If an object has two members of one name, Lookup takes the last.
func (p Pointer) Lookup(doc []byte) ([]byte, bool) {
	for _, token := range p {
		doc = bytes.TrimLeft(doc, " \t\r\n")
		switch {
		case bytes.HasPrefix(doc, []byte("{")):
			var members map[string]json.RawMessage
			if json.Unmarshal(doc, &members) != nil {
				return nil, false
			}
			value, ok := members[token]
			if !ok {
				return nil, false
			}
			doc = value
		case bytes.HasPrefix(doc, []byte("[")):
			var elements []json.RawMessage
			if json.Unmarshal(doc, &elements) != nil {
				return nil, false
			}
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(elements) || strconv.Itoa(i) != token {
				return nil, false
			}
			doc = elements[i]
		default:
			return nil, false
		}
	}
	return doc, true
}
