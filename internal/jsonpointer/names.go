// SPDX-License-Identifier: Apache-2.0

package jsonpointer

import (
	"strconv"
	"strings"
)

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
