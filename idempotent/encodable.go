package idempotent

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// checkEncodable reports why values of type t would not survive being stored
// as JSON and replayed. It is asked once, when a handler is wrapped, because
// the alternative is to find out after a payment.
func checkEncodable(t reflect.Type) error {
	return encodable(t, map[reflect.Type]bool{})
}

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func encodable(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if own, err := ownEncoding(t); own || err != nil {
		return err
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s cannot be encoded as JSON", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%s cannot be decoded from JSON: it is an interface with methods", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return encodable(t.Elem(), seen)
	case reflect.Map:
		if err := encodableKey(t.Key()); err != nil {
			return err
		}
		return encodable(t.Elem(), seen)
	case reflect.Struct:
		return encodableFields(t, seen)
	}
	return nil
}

// ownEncoding reports whether t encodes itself. A type that can only be
// encoded would replay as something else.
func ownEncoding(t reflect.Type) (bool, error) {
	if t.Kind() == reflect.Interface {
		return false, nil
	}
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(jsonMarshaler):
		if !p.Implements(jsonUnmarshaler) {
			return true, fmt.Errorf("%s has MarshalJSON but no UnmarshalJSON, so a replay would return something else", t)
		}
		return true, nil
	case p.Implements(textMarshaler):
		if !p.Implements(textUnmarshaler) {
			return true, fmt.Errorf("%s has MarshalText but no UnmarshalText, so a replay would return something else", t)
		}
		return true, nil
	}
	return false, nil
}

func encodableKey(t reflect.Type) error {
	if own, err := ownEncoding(t); own || err != nil {
		return err
	}
	switch t.Kind() {
	case reflect.String,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return nil
	}
	return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", t)
}

func encodableFields(t reflect.Type, seen map[reflect.Type]bool) error {
	visible := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		visible++
		if err := encodable(f.Type, seen); err != nil {
			return fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
	}
	if visible == 0 && t.NumField() > 0 {
		return fmt.Errorf("%s has no exported field, so a replay would return its zero value", t)
	}
	return nil
}
