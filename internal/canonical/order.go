// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
)

// layout is a document whose values are in canonical spelling. The members of an object
// without objects inside move to their places at its end. For an object that has one
// whose members have moved, layout notes the order, because moving its bytes at each
// level would take quadratic time.
type layout struct {
	out     []byte
	names   []name   // of the objects that are open, the outermost first
	keys    []byte   // of names
	objects []object // those whose members have to move yet, in the order of their ends
	members []span   // of objects
	moved   int      // objects whose members have moved, or have to
	ranks   []rank   // of close
	before  []byte   // of move; then the document of sorted
	todo    []span   // of sorted
}

// offset is a position, or a number of things, in a document of at most maxSize bytes.
type offset = uint32

// name is the name of a member: keys[key:keyEnd], which is compared instead of the
// name, and where the member is.
type name struct {
	key, keyEnd offset
	member      span
}

// rank is what names are sorted by.
type rank struct {
	prefix uint64 // the first 8 bytes of the key, which decide most comparisons
	name   offset // its index
}

// span is out[start:end]. If objects are in it, the last one is
// layout.objects[objects-1].
type span struct{ start, end, objects offset }

// object is where an object is. Its members are layout.members[member:memberEnd], in
// order.
type object struct {
	span
	member, memberEnd offset
}

// opened is an object whose end is not known yet. The numbers are lengths in layout
// at its beginning.
type opened struct {
	start, objects, names, keys, moved int

	moves bool // the members are not sorted, or two have one name
}

// open writes the beginning of an object.
func (l *layout) open() opened {
	o := opened{start: len(l.out), objects: len(l.objects), names: len(l.names), keys: len(l.keys), moved: l.moved}
	l.out = append(l.out, '{')
	return o
}

// named adds the next member of o. Its name in quotes is out[start:]. It returns
// the index of the name.
func (l *layout) named(o *opened, start int) (i int) {
	i = len(l.names)
	// The byte before a member belongs to it: a comma or the brace.
	n := name{key: offset(len(l.keys)), member: span{start: offset(start - 1)}}
	l.keys = appendKey(l.keys, l.out[start:])
	n.keyEnd = offset(len(l.keys))
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
	m.end, m.objects = offset(len(l.out)), offset(len(l.objects))
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

// sort sorts the members of o, whose end is written, and moves them or notes their
// order.
func (l *layout) sort(o opened) (distinct bool) {
	l.ranks = room(l.ranks[:0], len(l.names))
	for i := o.names; i < len(l.names); i++ {
		var prefix [8]byte
		copy(prefix[:], l.key(i))
		l.ranks = append(l.ranks, rank{binary.BigEndian.Uint64(prefix[:]), offset(i)})
	}
	slices.SortFunc(l.ranks, l.compare)
	for i := range l.ranks[1:] {
		if l.compare(l.ranks[i], l.ranks[i+1]) == 0 {
			return false
		}
	}
	// The member that is now the first gets the brace.
	l.out[o.start], l.out[l.names[l.ranks[0].name].member.start] = ',', '{'
	if l.moved == o.moved {
		l.move(o)
	} else {
		l.note(o)
	}
	l.moved++
	return true
}

// move moves the members of o to their places.
func (l *layout) move(o opened) {
	l.before = append(l.before[:0], l.out[o.start:]...)
	to := l.out[:o.start]
	for _, r := range l.ranks {
		m := l.names[r.name].member
		to = append(to, l.before[int(m.start)-o.start:int(m.end)-o.start]...)
	}
}

// note notes the order of the members of o, for sorted.
func (l *layout) note(o opened) {
	noted := object{span: span{offset(o.start), offset(len(l.out)), offset(o.objects)}, member: offset(len(l.members))}
	l.members = room(l.members, len(l.ranks))
	for _, r := range l.ranks {
		l.members = append(l.members, l.names[r.name].member)
	}
	noted.memberEnd = offset(len(l.members))
	l.objects = append(room(l.objects, 1), noted)
}

func (l *layout) compare(a, b rank) int {
	if a.prefix != b.prefix {
		return cmp.Compare(a.prefix, b.prefix)
	}
	return bytes.Compare(l.key(int(a.name)), l.key(int(b.name)))
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
	if len(l.objects) == 0 {
		return l.out
	}
	l.before = slices.Grow(l.before[:0], len(l.out))
	sorted := l.before[:len(l.out)]
	free := len(sorted) // sorted[free:] is written
	write := func(part []byte) {
		free -= len(part)
		copy(sorted[free:], part)
	}
	l.todo = append(l.todo, span{0, offset(len(l.out)), offset(len(l.objects))})
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
