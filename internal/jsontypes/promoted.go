// SPDX-License-Identifier: Apache-2.0

package jsontypes

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// promoted returns an error for a struct that gets its encoding from an embedded field,
// which omits the other fields. Reflection does not show whether a method is promoted, so
// what the methods do is compared: the struct's, of a value whose other fields are set,
// and those of the embedded field alone.
func (w *walk) promoted(t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	probe := reflect.New(t)
	var embedded []reflect.Type
	others := 0
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous:
			embedded = append(embedded, f.Type)
		case f.Name != "_" && f.Type.Size() > 0 && f.Tag.Get("json") != "-":
			others++
		default:
			continue
		}
		fill(probe.Elem().Field(i))
	}
	whole := encode(probe.Interface())
	for _, e := range embedded {
		elem := e
		if e.Kind() == reflect.Pointer {
			elem = e.Elem()
		}
		omits := others > 0 || len(embedded) > 1
		switch part := encode(reflect.New(elem).Interface()); {
		case part.method == "":
			continue
		case whole != part:
		case omits:
			return omitsFields(t, whole)
		default:
			if err := w.promoted(elem); err != nil {
				return err
			}
		}
		if !w.stored {
			continue
		}
		switch read, alone := decode(reflect.New(t).Interface(), whole.text), decode(reflect.New(elem).Interface(), whole.text); {
		case e != elem && read.failure == panicked:
			return fmt.Errorf("%s has the %s of an embedded pointer, which is nil when a replay is decoded; embed the value", t, read.method)
		case omits && read.failure != "" && read == alone:
			return omitsFields(t, read)
		}
	}
	return nil
}

func omitsFields(t reflect.Type, by act) error {
	return fmt.Errorf("%s has the %s of an embedded field, which omits the other fields; give the struct its own methods, or give the embedded field a name", t, by.method)
}

// act is what a method with which a value encodes itself, or is decoded, did.
type act struct{ method, text, failure string }

// panicked is the failure of a method that did.
const panicked = "panic"

// encode calls the method of v that encoding/json would call, if v has one.
func encode(v any) act {
	switch m := v.(type) {
	case json.Marshaler:
		return perform("MarshalJSON", m.MarshalJSON)
	case encoding.TextMarshaler:
		return perform("MarshalText", m.MarshalText)
	}
	return act{}
}

// decode is encode for the other direction.
func decode(v any, text string) act {
	switch m := v.(type) {
	case json.Unmarshaler:
		return perform("UnmarshalJSON", func() ([]byte, error) { return nil, m.UnmarshalJSON([]byte(text)) })
	case encoding.TextUnmarshaler:
		return perform("UnmarshalText", func() ([]byte, error) { return nil, m.UnmarshalText([]byte(text)) })
	}
	return act{}
}

func perform(method string, call func() ([]byte, error)) (done act) {
	done.method = method
	defer func() {
		if recover() != nil {
			done.failure = panicked
		}
	}()
	text, err := call()
	if done.text = string(text); err != nil {
		done.failure = "error: " + err.Error()
	}
	return done
}

// fill sets v, or a part of it, to a value that is not zero, as far as reflection can.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct: // its exported fields can be set even if it is embedded and not exported
		for i := range v.NumField() {
			fill(v.Field(i))
		}
		return
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
		return
	default:
	}
	if !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMapWithSize(v.Type(), 1))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("x"))
		}
	default:
	}
}
