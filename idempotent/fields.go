package idempotent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

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
