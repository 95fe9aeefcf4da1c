// SPDX-License-Identifier: Apache-2.0

// Package jsonpointer finds a value in a JSON document by its JSON Pointer (RFC
// 6901), and reads an identifier from it.
package jsonpointer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/once-lambda/once/internal/canonical"
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
// element of an array. It reports false if there is no such value. If an object
// has two members of one name, Lookup takes the last. It reads doc once. The
// result is undefined if doc is not a valid JSON document.
func (p Pointer) Lookup(doc []byte) (value []byte, ok bool) {
	s := scanner{doc: doc}
	return s.find(p)
}

// Text returns what a JSON value identifies: the string that it spells, or a number in
// its canonical form, so that 100, 100.0 and 1e2 are "100". It reports false for any other
// value, and for one that is missing.
func Text(value []byte) (text string, ok bool) {
	form, err := canonical.JSON(value)
	switch {
	case err != nil:
		return "", false
	case form[0] == '"':
		err = json.Unmarshal(form, &text)
		return text, err == nil
	case form[0] == '-', form[0] >= '0' && form[0] <= '9':
		return string(form), true
	}
	return "", false
}

// scanner reads a valid document. In such a document commas and colons mean
// nothing, so they are skipped like white space.
type scanner struct {
	doc []byte
	pos int // doc[:pos] has been read
}

// find reads a value and returns the value in it that tokens name.
func (s *scanner) find(tokens []string) (value []byte, ok bool) {
	open := s.next()
	if len(tokens) == 0 || open != '{' && open != '[' {
		start := s.pos
		if s.skip(); len(tokens) > 0 {
			return nil, false
		}
		return s.doc[start:s.pos], true
	}
	s.pos++
	index := arrayIndex(tokens[0])
	for i := 0; ; i++ {
		switch s.next() {
		case '}', ']', 0:
			s.skip()
			return value, ok
		}
		found := i == index
		if open == '{' {
			found = string(s.name()) == tokens[0]
		}
		if found {
			value, ok = s.find(tokens[1:])
		} else {
			s.skip()
		}
	}
}

// next returns the next byte of a value, of a name, or of the end of an array or an
// object. It returns 0 at the end of the document.
func (s *scanner) next() byte {
	for ; s.pos < len(s.doc); s.pos++ {
		switch c := s.doc[s.pos]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
		default:
			return c
		}
	}
	return 0
}

// skip reads a value, or the end of an array or an object.
func (s *scanner) skip() {
	for depth := 0; ; {
		switch s.next() {
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case '"':
			s.text()
		case 0:
			return
		default:
			s.literal()
		}
		if depth <= 0 {
			return
		}
	}
}

// name reads a string and returns what it spells.
func (s *scanner) name() []byte {
	start := s.pos
	s.text()
	text := s.doc[start:s.pos]
	if bytes.IndexByte(text, '\\') < 0 {
		return bytes.Trim(text, `"`)
	}
	var name string
	_ = json.Unmarshal(text, &name) // the document is valid
	return []byte(name)
}

// text reads a string.
func (s *scanner) text() {
	for s.pos++; s.pos < len(s.doc) && s.doc[s.pos] != '"'; s.pos++ {
		if s.doc[s.pos] == '\\' {
			s.pos++
		}
	}
	s.pos = min(s.pos+1, len(s.doc))
}

// literal reads a number, true, false or null.
func (s *scanner) literal() {
	for ; s.pos < len(s.doc); s.pos++ {
		switch s.doc[s.pos] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return
		}
	}
}

// arrayIndex returns the index that token spells, or -1.
func arrayIndex(token string) int {
	i, _ := strconv.Atoi(token)
	if strconv.Itoa(i) != token {
		return -1
	}
	return i
}

// Names are the names of members that a reader of JSON knows. It reads members of
// other names as they are, or ignores them. A nil *Names knows no name.
type Names struct {
	Members map[string]*Names // of an object, or of an array by index: the names in each value
	Others  *Names            // the names in all other values
}

// NamesIn returns the names in pointers.
func NamesIn(pointers []Pointer) *Names {
	root := new(Names)
	for _, p := range pointers {
		n := root
		for _, token := range p {
			if n.Members == nil {
				n.Members = map[string]*Names{}
			}
			if n.Members[token] == nil {
				n.Members[token] = new(Names)
			}
			n = n.Members[token]
		}
	}
	return root
}

// Miscased returns a known name that doc has in another letter case, and false if it
// has no such name. For encoding/json such a member is the known one, for other readers
// it is not, so doc has two meanings. The result is undefined if doc is not a valid
// JSON document.
func (n *Names) Miscased(doc []byte) (known string, ok bool) {
	s := scanner{doc: doc}
	return s.miscased(n)
}

func (s *scanner) miscased(n *Names) (known string, ok bool) {
	open := s.next()
	if n == nil || open != '{' && open != '[' {
		s.skip()
		return "", false
	}
	s.pos++
	for i := 0; ; i++ {
		switch s.next() {
		case '}', ']', 0:
			s.skip()
			return "", false
		}
		var inner *Names
		var found bool
		if open == '[' {
			inner, found = n.Members[strconv.Itoa(i)]
		} else {
			name := s.name()
			if inner, found = n.Members[string(name)]; !found {
				if known, ok = n.like(string(name)); ok {
					return known, true
				}
			}
		}
		if !found {
			inner = n.Others
		}
		if known, ok = s.miscased(inner); ok {
			return known, true
		}
	}
}

// like returns the first known name that equals name if letter case is ignored.
func (n *Names) like(name string) (known string, ok bool) {
	for k := range n.Members {
		if strings.EqualFold(k, name) && (!ok || k < known) {
			known, ok = k, true
		}
	}
	return known, ok
}
