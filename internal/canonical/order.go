// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
)

// layout is a document whose values are in canonical spelling, while its members
// are in the order of the document, and the order that they need.
type layout struct {
	out     []byte
	names   []name   // of the objects that are open, the outermost first
	keys    []byte   // of names
	objects []object // those whose members must move, in the order of their ends
	members []span   // of objects
	ranks   []rank   // of close
	todo    []span   // of sorted
}

// name is the name of a member: keys[key:keyEnd], which is compared instead of the
// name, and where the member is.
type name struct {
	key, keyEnd int
	member      span
}

// rank is what names are sorted by.
type rank struct {
	prefix uint64 // the first 8 bytes of the key, which decide most comparisons
	name   int    // its index
}

// span is out[start:end]. If objects are in it, the last one is
// layout.objects[objects-1].
type span struct{ start, end, objects int }

// object is where an object is. Its members are layout.members[member:memberEnd], in
// order.
type object struct {
	span
	member, memberEnd int
}

// opened is an object whose end is not known yet. The numbers are lengths in layout
// at its beginning.
type opened struct {
	start, objects, names, keys int

	moves bool // the members are not sorted, or two have one name
}

// open writes the beginning of an object.
func (l *layout) open() opened {
	o := opened{start: len(l.out), objects: len(l.objects), names: len(l.names), keys: len(l.keys)}
	l.out = append(l.out, '{')
	return o
}

// named adds the next member of o. Its name in quotes is out[start:]. It returns
// the index of the name.
func (l *layout) named(o *opened, start int) (i int) {
	i = len(l.names)
	// The byte before a member belongs to it: a comma or the brace.
	n := name{key: len(l.keys), member: span{start: start - 1}}
	l.keys = appendKey(l.keys, l.out[start:])
	n.keyEnd = len(l.keys)
	l.names = append(room(l.names, 1), n)
	if i > o.names && bytes.Compare(l.key(i-1), l.key(i)) >= 0 {
		o.moves = true
	}
	return i
}

// key returns the key of the name with index i.
func (l *layout) key(i int) []byte { return l.keys[l.names[i].key:l.names[i].keyEnd] }

// ended sets the end of the member whose name has index i to the end of out.
func (l *layout) ended(i int) {
	m := &l.names[i].member
	m.end, m.objects = len(l.out), len(l.objects)
}

// close writes the end of o, and sorts its members. It reports false if two of them
// have the same name.
func (l *layout) close(o opened) (distinct bool) {
	l.out = append(l.out, '}')
	if o.moves && !l.sort(o) {
		return false
	}
	l.names, l.keys = l.names[:o.names], l.keys[:o.keys]
	return true
}

func (l *layout) sort(o opened) (distinct bool) {
	n := len(l.names) - o.names
	l.ranks, l.members = room(l.ranks[:0], n), room(l.members, n)
	for i := o.names; i < len(l.names); i++ {
		var prefix [8]byte
		copy(prefix[:], l.key(i))
		l.ranks = append(l.ranks, rank{binary.BigEndian.Uint64(prefix[:]), i})
	}
	slices.SortFunc(l.ranks, l.compare)
	closed := object{span: span{o.start, len(l.out), o.objects}, member: len(l.members)}
	for i, r := range l.ranks {
		if i > 0 && l.compare(l.ranks[i-1], r) == 0 {
			return false
		}
		l.members = append(l.members, l.names[r.name].member)
	}
	closed.memberEnd = len(l.members)
	l.objects = append(room(l.objects, 1), closed)
	// The member that is now the first gets the brace.
	l.out[o.start], l.out[l.members[closed.member].start] = ',', '{'
	return true
}

func (l *layout) compare(a, b rank) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	return bytes.Compare(l.key(a.name), l.key(b.name))
}

// room returns s with room for n more elements. It doubles s, because append would
// grow a large one by a quarter and copy each element five times.
func room[E any](s []E, n int) []E {
	if cap(s)-len(s) < n {
		return slices.Grow(s, max(n, len(s)))
	}
	return s
}

// appendKey appends what is compared instead of a name: bytes whose order is the
// order of the name's UTF-16 code units (RFC 8785, section 3.2.3). UTF-8 has
// another order for the characters from U+E000 to U+FFFF only: they begin with
// 0xEE or 0xEF, and those that sort before them begin with 0xF0 to 0xF4.
func appendKey(keys, quoted []byte) []byte {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		// Go has all the escapes that are canonical.
		unquoted, _ := strconv.Unquote(string(quoted))
		text = []byte(unquoted)
	}
	start := len(keys)
	keys = append(keys, text...)
	for i, c := range keys[start:] {
		if c == 0xEE || c == 0xEF {
			keys[start+i] = c | 0x10
		}
	}
	return keys
}

// sorted returns the document with all members in order. It writes it from the end,
// because the last object in a span is not inside another object of the span.
func (l *layout) sorted() []byte {
	sorted := make([]byte, len(l.out))
	free := len(sorted) // sorted[free:] is written
	write := func(part []byte) {
		free -= len(part)
		copy(sorted[free:], part)
	}
	l.todo = append(l.todo, span{0, len(l.out), len(l.objects)})
	for len(l.todo) > 0 {
		s := l.todo[len(l.todo)-1]
		l.todo = l.todo[:len(l.todo)-1]
		if s.objects == 0 || l.objects[s.objects-1].start < s.start {
			write(l.out[s.start:s.end])
			continue
		}
		o := l.objects[s.objects-1]
		write(l.out[o.end-1 : s.end])
		l.todo = append(l.todo, span{s.start, o.start, o.objects})
		l.todo = append(l.todo, l.members[o.member:o.memberEnd]...)
	}
	return sorted
}
