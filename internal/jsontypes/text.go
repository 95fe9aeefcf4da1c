// SPDX-License-Identifier: Apache-2.0

package jsontypes

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// BrokenText returns an error if v contains text that is not Unicode: encoding/json
// replaces it, in a way that depends on the Go release, so that two values have one
// encoding. It looks at strings, at the keys of maps and at what MarshalText and
// MarshalJSON return, also in values of interface types. The value has been encoded, so
// it does not contain itself. The error does not quote the text.
func BrokenText(v any) error {
	value := reflect.ValueOf(v)
	if !value.IsValid() {
		return nil
	}
	return textOf(value.Type()).find(value)
}

// textCheck returns an error for a value that contains broken text. It is nil for a type
// whose values contain no text.
type textCheck func(v reflect.Value) error

func (c textCheck) find(v reflect.Value) error {
	if c == nil {
		return nil
	}
	return c(v)
}

var textChecks sync.Map // reflect.Type → textCheck

// textOf returns the check of a type, which is compiled once.
func textOf(t reflect.Type) textCheck {
	known, found := textChecks.Load(t)
	if !found {
		known, _ = textChecks.LoadOrStore(t, textCompiler{}.of(t))
	}
	return known.(textCheck)
}

// textCompiler has the types around the one that it compiles, and those that it has
// compiled.
type textCompiler map[reflect.Type]*compiledText

type compiledText struct {
	check textCheck
	done  bool
}

func (c textCompiler) of(t reflect.Type) textCheck {
	if known, found := c[t]; found {
		if known.done {
			return known.check
		}
		return func(v reflect.Value) error { return known.check.find(v) } // t contains itself
	}
	known := new(compiledText)
	c[t] = known
	known.check, known.done = c.compile(t), true
	return known.check
}

func (c textCompiler) compile(t reflect.Type) textCheck {
	switch encodings := encodingsOf(t); {
	case t == rawType:
		return func(v reflect.Value) error { return brokenJSON(t, v.Bytes()) }
	case exact[t] || t == numberType:
		return nil
	case encodings.marshalJSON || encodings.marshalText:
		return c.own(t)
	}
	return c.plain(t)
}

// plain returns the check of a type that does not encode itself.
func (c textCompiler) plain(t reflect.Type) textCheck {
	switch t.Kind() {
	case reflect.String:
		return func(v reflect.Value) error { return brokenString(v.String()) }
	case reflect.Interface:
		return func(v reflect.Value) error {
			if v.IsNil() {
				return nil
			}
			return textOf(v.Elem().Type()).find(v.Elem())
		}
	case reflect.Pointer:
		if elem := c.of(t.Elem()); elem != nil {
			return func(v reflect.Value) error {
				if v.IsNil() {
					return nil
				}
				return elem(v.Elem())
			}
		}
	case reflect.Slice, reflect.Array:
		if elem := c.of(t.Elem()); elem != nil {
			return func(v reflect.Value) error {
				for i := range v.Len() {
					if err := elem(v.Index(i)); err != nil {
						return err
					}
				}
				return nil
			}
		}
	case reflect.Map:
		return c.entries(c.key(t.Key()), c.of(t.Elem()))
	case reflect.Struct:
		return c.structure(t)
	default:
	}
	return nil
}

// own returns the check of a type that encodes itself.
func (c textCompiler) own(t reflect.Type) textCheck {
	var plain textCheck
	if !t.Implements(jsonMarshaler) && !t.Implements(textMarshaler) {
		plain = c.plain(t) // encoding/json calls its methods only if it has an address
	}
	return func(v reflect.Value) error {
		at := v
		if v.CanAddr() {
			at = v.Addr()
		}
		switch m := at.Interface().(type) {
		case json.Marshaler:
			doc, _ := m.MarshalJSON()
			return brokenJSON(t, doc)
		case encoding.TextMarshaler:
			text, _ := m.MarshalText()
			if !utf8.Valid(text) {
				return fmt.Errorf("the MarshalText of a %s returned invalid UTF-8", t)
			}
			return nil
		}
		return plain.find(v)
	}
}

// key returns the check of a type of map keys: encoding/json calls no method of a string.
func (c textCompiler) key(t reflect.Type) textCheck {
	switch {
	case t.Kind() == reflect.String:
		return c.plain(t)
	case t.Implements(textMarshaler):
		return c.own(t)
	}
	return nil
}

func (c textCompiler) entries(key, elem textCheck) textCheck {
	if key == nil && elem == nil {
		return nil
	}
	return func(v reflect.Value) error {
		for all := v.MapRange(); all.Next(); {
			if err := errors.Join(key.find(all.Key()), elem.find(all.Value())); err != nil {
				return err
			}
		}
		return nil
	}
}

// structure returns the check of a struct. It looks at every field that encoding/json
// could encode, also at those of which it drops one.
func (c textCompiler) structure(t reflect.Type) textCheck {
	type checked struct {
		index []int
		check textCheck
	}
	var all []checked
	for _, f := range everyField(t) {
		if check := c.of(f.typ); check != nil {
			all = append(all, checked{f.index, check})
		}
	}
	if all == nil {
		return nil
	}
	return func(v reflect.Value) error {
		for _, f := range all {
			if field, err := v.FieldByIndexErr(f.index); err == nil { // no embedded pointer on the way is nil
				if err := f.check(field); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func brokenString(s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	return errors.New("a string contains invalid UTF-8")
}

// brokenJSON returns an error if doc, what a value of type t encodes itself as, contains
// broken text, or half of a surrogate pair, which no decoder can represent.
func brokenJSON(t reflect.Type, doc []byte) error {
	switch {
	case !utf8.Valid(doc):
		return fmt.Errorf("the JSON of a %s contains invalid UTF-8", t)
	case halfPair(doc):
		return fmt.Errorf("the JSON of a %s contains half of a surrogate pair", t)
	}
	return nil
}

func halfPair(doc []byte) bool {
	for {
		i := bytes.IndexByte(doc, '\\')
		if i < 0 {
			return false
		}
		doc = doc[i:]
		first, size := escaped(doc)
		if utf16.IsSurrogate(first) {
			second, more := escaped(doc[size:])
			if utf16.DecodeRune(first, second) == utf8.RuneError {
				return true
			}
			size += more
		}
		doc = doc[size:]
	}
}

// escaped returns the code unit of the escape sequence with which doc begins, or 0 if it
// begins with another, and the length of the sequence.
func escaped(doc []byte) (unit rune, size int) {
	if len(doc) >= 6 && doc[1] == 'u' && doc[0] == '\\' {
		if n, err := strconv.ParseUint(string(doc[2:6]), 16, 16); err == nil {
			return rune(n), 6
		}
	}
	return 0, min(2, len(doc))
}
