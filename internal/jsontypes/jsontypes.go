// SPDX-License-Identifier: Apache-2.0

// Package jsontypes checks which types survive JSON: whether a value decodes to what
// was encoded, and whether different values have different encodings. The
// documentation of idempotent.Wrap has the rules.
package jsontypes

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Info describes how values of a type are encoded as JSON.
type Info struct {
	// Result is why a decoded value would not be the value that was encoded; nil if it
	// would.
	Result error
	// Request is why two different values could have the same encoding; nil if they
	// could not.
	Request error

	Addressed bool   // json.Marshal needs a pointer: a value has a marshaler with a pointer receiver
	Untyped   bool   // it can hold an interface value, whose Go type is not encoded
	Unproven  bool   // its own methods decide whether it decodes to the same value
	Shape     string // see shapeOf
}

// Inspect returns how values of type t are encoded. It visits every type that such a
// value can hold, so the caller keeps the result.
func Inspect(t reflect.Type) *Info {
	var info Info
	stored := walk{stored: true, seen: map[visit]bool{}, info: new(Info)}
	info.Result = stored.value(t, placeTop)
	sent := walk{seen: map[visit]bool{}, info: &info}
	info.Request = sent.value(t, placeTop)
	info.Shape = shapeOf(t)
	return &info
}

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
	info   *Info
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
		w.info.Untyped = true
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
		if f.typ.Kind() == reflect.Pointer && f.typ.Name() != "" {
			return fmt.Errorf(`the tag ",string" on %s, a named pointer, has an effect in some Go releases only; remove the option`, f.typ)
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
	rawType         = reflect.TypeFor[json.RawMessage]()
)

func encodingsOf(t reflect.Type) methods {
	p := reflect.PointerTo(t)
	return methods{p.Implements(jsonMarshaler), p.Implements(jsonUnmarshaler), p.Implements(textMarshaler), p.Implements(textUnmarshaler)}
}

// exact lists the types of the standard library whose encoding is known to decode
// to the same value. (That of big.Float does not.)
var exact = map[reflect.Type]bool{
	reflect.TypeFor[time.Time](): true,
	reflect.TypeFor[big.Int]():   true,
	rawType:                      true,
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
		w.info.Addressed = w.info.Addressed || at == placeTop
	}
	w.info.Unproven = w.info.Unproven || !exact[t]
	return true, nil
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
		w.info.Unproven = true // two keys may have the same text
		return nil
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return nil
	}
	return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", t)
}

// shapeOf returns a short hash of how values of type t are encoded: kinds, field
// names in any order, and the names of types that encode themselves. Types with
// the same shape can decode each other's values. A field that only one type has
// changes the shape. Number sizes do not: a number that does not fit is an error,
// not another value.
func shapeOf(t reflect.Type) string {
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
	switch {
	case t == rawType:
		b.WriteString(`own "json.RawMessage"`) // Go 1.27 gives the type another name
		return
	case encodingsOf(t) != (methods{}):
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
