// SPDX-License-Identifier: Apache-2.0

package jsontypes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

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
