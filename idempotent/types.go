// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// typeInfo describes how values of a type are encoded as JSON. It is computed
// once per type.
type typeInfo struct {
	// result is why a replay would not return a stored value as it was.
	result error
	// request is why two different values could have the same encoding.
	request error

	addressed bool   // json.Marshal needs a pointer: a value has a marshaler with a pointer receiver
	untyped   bool   // it can hold an interface value, whose Go type is not stored
	unproven  bool   // its own methods decide whether it decodes to the same value
	shape     string // see shapeOf
}

var typeInfos sync.Map // reflect.Type → *typeInfo

func infoOf(t reflect.Type) *typeInfo {
	if known, ok := typeInfos.Load(t); ok {
		return known.(*typeInfo)
	}
	var info typeInfo
	stored := walk{stored: true, seen: map[visit]bool{}, info: new(typeInfo)}
	info.result = stored.value(t, placeTop)
	sent := walk{seen: map[visit]bool{}, info: &info}
	info.request = sent.value(t, placeTop)
	info.shape = hashShape(t)
	known, _ := typeInfos.LoadOrStore(t, &info)
	return known.(*typeInfo)
}

// checkResult returns an error if a value of type t could not be stored as JSON
// and replayed unchanged. [Wrap] documents the rules.
func checkResult(t reflect.Type) error { return infoOf(t).result }

// checkRequest returns an error if two different values of type t could have the
// same JSON encoding, and so the same fingerprint.
func checkRequest(t reflect.Type) error { return infoOf(t).request }

// place is where encoding/json finds a value. It calls a marshaler with a pointer
// receiver only if it can take the value's address.
type place uint8

const (
	placeTop       place = iota // addressable if the encoder gets a pointer
	placeAddressed              // behind a pointer or in a slice
	placeFixed                  // in a map
)

type visit struct {
	t  reflect.Type
	at place
}

// walk visits every type that a value can hold.
type walk struct {
	stored bool // the value is also decoded
	seen   map[visit]bool
	info   *typeInfo
}

func (w *walk) value(t reflect.Type, at place) error {
	if w.seen[visit{t, at}] {
		return nil
	}
	w.seen[visit{t, at}] = true
	if own, err := w.ownEncoding(t, at); own {
		return err
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s cannot be encoded as JSON", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s is an interface with methods: its JSON does not contain the type of the value; use a struct", t)
		}
		w.info.untyped = true
	case reflect.Pointer, reflect.Slice:
		return w.value(t.Elem(), placeAddressed)
	case reflect.Array:
		return w.value(t.Elem(), at)
	case reflect.Map:
		if err := w.key(t.Key()); err != nil {
			return err
		}
		return w.value(t.Elem(), placeFixed)
	case reflect.Struct:
		return w.structure(t, at)
	}
	return nil
}

func (w *walk) structure(t reflect.Type, at place) error {
	fields, err := fieldsOf(t)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if err := w.field(f, at); err != nil {
			return fmt.Errorf("%s.%s: %w", t, f.path, err)
		}
	}
	return nil
}

func (w *walk) field(f jsonField, at place) error {
	if w.stored && f.unsettable {
		return fmt.Errorf("the field is behind an embedded pointer to an unexported struct, which encoding/json cannot set; embed the struct itself")
	}
	if f.quoted {
		t := f.typ
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if encodings := encodingsOf(t); encodings != (methods{}) {
			return fmt.Errorf(`the tag ",string" does not work on %s, which encodes itself; remove the option`, t)
		}
		if t.Kind() == reflect.String && t != numberType {
			return fmt.Errorf(`the tag ",string" on a string hides invalid UTF-8; remove the option`)
		}
	}
	if f.behindPointer {
		at = placeAddressed
	}
	return w.value(f.typ, at)
}

// methods are the methods with which a type, or a pointer to it, encodes itself.
type methods struct{ marshalJSON, unmarshalJSON, marshalText, unmarshalText bool }

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType      = reflect.TypeFor[json.Number]()
)

func encodingsOf(t reflect.Type) methods {
	p := reflect.PointerTo(t)
	return methods{p.Implements(jsonMarshaler), p.Implements(jsonUnmarshaler), p.Implements(textMarshaler), p.Implements(textUnmarshaler)}
}

// exact lists the types of the standard library whose encoding is known to decode
// to the same value. (That of big.Float does not.)
var exact = map[reflect.Type]bool{
	reflect.TypeFor[time.Time]():       true,
	reflect.TypeFor[big.Int]():         true,
	reflect.TypeFor[json.RawMessage](): true,
}

// ownEncoding reports whether t encodes itself, and returns an error if it does
// so in an unsupported way.
func (w *walk) ownEncoding(t reflect.Type, at place) (bool, error) {
	m := encodingsOf(t) // none for an interface or a pointer: the element decides
	encodes, decodes := m.marshalJSON || m.marshalText, m.unmarshalJSON || m.unmarshalText
	if !encodes && (!decodes || !w.stored) {
		return false, nil
	}
	if err := w.promoted(t); err != nil {
		return true, err
	}
	if w.stored {
		switch {
		case m.marshalJSON && !m.unmarshalJSON:
			return true, fmt.Errorf("%s has MarshalJSON but no UnmarshalJSON, so a replay would return something else", t)
		case !decodes:
			return true, fmt.Errorf("%s has MarshalText but no UnmarshalText, so a replay would return something else", t)
		case !encodes && m.unmarshalJSON:
			return true, fmt.Errorf("%s has UnmarshalJSON but no MarshalJSON, so a replay would return something else", t)
		case !encodes:
			return true, fmt.Errorf("%s has UnmarshalText but no MarshalText, so a replay would return something else", t)
		}
	}
	if byValue := t.Implements(jsonMarshaler) || !m.marshalJSON && t.Implements(textMarshaler); !byValue {
		if at == placeFixed {
			return true, fmt.Errorf("%s encodes itself through its pointer, which encoding/json does not do in a map; use a map of *%s", t, t)
		}
		w.info.addressed = w.info.addressed || at == placeTop
	}
	w.info.unproven = w.info.unproven || !exact[t]
	return true, nil
}

// promoted returns an error for a struct that gets its encoding from an embedded
// field, which omits the other fields.
func (w *walk) promoted(t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var embedded []reflect.Type
	others := 0
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Anonymous:
			embedded = append(embedded, f.Type)
		case f.Name != "_" && f.Type.Size() > 0 && f.Tag.Get("json") != "-":
			others++
		}
	}
	// encoding/json prefers the first of each two. The names are constants so that
	// the linker does not have to retain all other methods.
	type find = func(reflect.Type) (reflect.Method, bool)
	for _, names := range [][2]find{{
		func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("MarshalJSON") },
		func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("MarshalText") },
	}, {
		func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("UnmarshalJSON") },
		func(t reflect.Type) (reflect.Method, bool) { return t.MethodByName("UnmarshalText") },
	}} {
		m, found := method(t, names[0])
		if !found {
			m, found = method(t, names[1])
		}
		switch {
		case !found || !isGenerated(m):
			continue
		case others > 0 || len(embedded) != 1:
			return fmt.Errorf("%s has the %s of an embedded field, which omits the other fields; give the struct its own methods, or give the embedded field a name", t, m.Name)
		case embedded[0].Kind() == reflect.Pointer && w.stored:
			return fmt.Errorf("%s has the %s of an embedded pointer, which is nil when a replay is decoded; embed the value", t, m.Name)
		}
		return w.promoted(embedded[0])
	}
	return nil
}

// method returns a method of t, or of a pointer to t if t does not have it.
func method(t reflect.Type, find func(reflect.Type) (reflect.Method, bool)) (reflect.Method, bool) {
	if m, found := find(t); found {
		return m, true
	}
	return find(reflect.PointerTo(t))
}

// isGenerated reports whether the compiler generated m to call a method of an
// embedded field.
func isGenerated(m reflect.Method) bool {
	pc := m.Func.Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file == "<autogenerated>"
}

// key returns an error if t is not supported as the key type of a map.
func (w *walk) key(t reflect.Type) error {
	m := encodingsOf(t)
	switch t.Kind() {
	case reflect.String:
		if w.stored && m.unmarshalText {
			return fmt.Errorf("keys of type %s are encoded as they are but decoded with UnmarshalText; use a string without methods", t)
		}
		return nil
	case reflect.Interface, reflect.Pointer:
		return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", t)
	}
	writes := t.Implements(textMarshaler)
	switch {
	case w.stored && writes && !m.unmarshalText:
		return fmt.Errorf("keys of type %s have MarshalText but no UnmarshalText, so a replay would return something else", t)
	case w.stored && !writes && m.unmarshalText:
		return fmt.Errorf("keys of type %s are decoded with UnmarshalText but not encoded with MarshalText, which must have a value receiver", t)
	case writes:
		w.info.unproven = true // two keys may have the same text
		return nil
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return nil
	}
	return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", t)
}

// jsonField is a field that encoding/json encodes, of a struct or of a struct
// embedded in it.
type jsonField struct {
	name   string // of the JSON member
	path   string // in Go
	typ    reflect.Type
	quoted bool // ",string" applies

	behindPointer bool // a pointer itself, or in a struct that is embedded by pointer
	unsettable    bool // in a struct that is embedded by pointer and not exported
}

// fieldsOf returns the fields of the struct t, sorted by name. It refuses a
// struct from which encoding/json would omit a field that is not tagged
// `json:"-"`.
func fieldsOf(t reflect.Type) ([]jsonField, error) {
	c := collector{outer: t, paths: map[string]string{}, embedding: map[reflect.Type]bool{}}
	if err := c.add(t, jsonField{}); err != nil {
		return nil, err
	}
	slices.SortFunc(c.fields, func(a, b jsonField) int { return strings.Compare(a.name, b.name) })
	return c.fields, nil
}

type collector struct {
	outer     reflect.Type
	fields    []jsonField
	paths     map[string]string // of the fields, by their JSON names
	embedding map[reflect.Type]bool
}

// add collects the fields of t, which is embedded in outer at the path of at.
func (c *collector) add(t reflect.Type, at jsonField) error {
	if c.embedding[t] {
		return fmt.Errorf("%s embeds itself, and encoding/json drops the inner one", t)
	}
	c.embedding[t] = true
	defer delete(c.embedding, t)
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if sf.Tag.Get("json") == "-" || sf.Name == "_" {
			continue
		}
		f := at
		f.path, f.typ = strings.TrimPrefix(at.path+"."+sf.Name, "."), sf.Type
		elem := sf.Type
		if elem.Kind() == reflect.Pointer && elem.Name() == "" {
			elem = elem.Elem()
		}
		isStruct := elem.Kind() == reflect.Struct
		if !sf.IsExported() && !(sf.Anonymous && isStruct) {
			if sf.Type.Size() == 0 {
				continue
			}
			return fmt.Errorf("%s.%s is not exported, so it would be lost; export it, tag it `json:\"-\"` if it may be lost, or use a type with MarshalJSON and UnmarshalJSON", c.outer, f.path)
		}
		if elem != sf.Type {
			f.behindPointer = true
			f.unsettable = f.unsettable || !sf.IsExported()
		}
		named := isTagName(tag)
		if sf.Anonymous && isStruct && !named {
			if err := c.add(elem, f); err != nil {
				return err
			}
			continue
		}
		f.name = sf.Name
		if named {
			f.name = tag
		}
		f.quoted = slices.Contains(strings.Split(options, ","), "string") && isQuotable(elem.Kind())
		if other, found := c.paths[f.name]; found {
			return fmt.Errorf("%s.%s and %s.%s have the same JSON name %q, and encoding/json drops at least one; rename one, or tag it `json:\"-\"`", c.outer, other, c.outer, f.path, f.name)
		}
		c.paths[f.name] = f.path
		c.fields = append(c.fields, f)
	}
	return nil
}

// isTagName reports whether encoding/json accepts s as a name in a tag. It
// ignores other names.
func isTagName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// isQuotable reports whether ",string" has an effect on a value of that kind.
func isQuotable(k reflect.Kind) bool {
	return k == reflect.String || k <= reflect.Float64
}

// shapeOf returns a short hash of how values of type t are encoded: kinds, field
// names in any order, and the names of types that encode themselves. Types with
// the same shape can decode each other's values. A field that only one type has
// changes the shape. Number sizes do not: a number that does not fit is an error,
// not another value.
func shapeOf(t reflect.Type) string { return infoOf(t).shape }

func hashShape(t reflect.Type) string {
	var b strings.Builder
	writeShape(&b, t, nil)
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:8])
}

// writeShape writes the shape of t, which is nested in the types around.
func writeShape(b *strings.Builder, t reflect.Type, around []reflect.Type) {
	if i := slices.Index(around, t); i >= 0 {
		fmt.Fprintf(b, "^%d", len(around)-i)
		return
	}
	around = append(slices.Clip(around), t)
	inner := func(open string, of reflect.Type) {
		b.WriteString(open)
		writeShape(b, of, around)
	}
	if encodingsOf(t) != (methods{}) {
		fmt.Fprintf(b, "own %q", t)
		return
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		b.WriteString("int")
	case reflect.Float32, reflect.Float64:
		b.WriteString("float")
	case reflect.String:
		if t == numberType {
			b.WriteString("number")
			return
		}
		b.WriteString("string")
	case reflect.Pointer:
		inner("*", t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			b.WriteString("bytes")
			return
		}
		inner("[]", t.Elem())
	case reflect.Array:
		inner(fmt.Sprintf("[%d]", t.Len()), t.Elem())
	case reflect.Map:
		inner("map[", t.Key())
		inner("]", t.Elem())
	case reflect.Struct:
		fields, _ := fieldsOf(t) // a refused struct is never stored
		b.WriteByte('{')
		for _, f := range fields {
			quoted := ""
			if f.quoted {
				quoted = "quoted "
			}
			inner(fmt.Sprintf("%q:%s", f.name, quoted), f.typ)
			b.WriteByte(';')
		}
		b.WriteByte('}')
	default:
		b.WriteString(t.Kind().String())
	}
}
