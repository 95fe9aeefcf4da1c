// SPDX-License-Identifier: Apache-2.0

package jsontypes

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/once-lambda/once/internal/jsonpointer"
)

// Members returns the names of the JSON members of the struct type t, sorted, and
// no names if Inspect refuses one of its fields.
func Members(t reflect.Type) (names []string) {
	fields, _ := fieldsOf(t)
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// NamesIn returns the names of the members that encoding/json decodes into a value of
// type t, without those that a method of a type reads itself.
func NamesIn(t reflect.Type) *jsonpointer.Names {
	return namesIn(t, map[reflect.Type]*jsonpointer.Names{})
}

func namesIn(t reflect.Type, known map[reflect.Type]*jsonpointer.Names) *jsonpointer.Names {
	if n, ok := known[t]; ok {
		return n
	}
	if t.Kind() == reflect.Pointer {
		if t.Name() != "" {
			known[t] = nil // it can point to itself
		}
		return namesIn(t.Elem(), known)
	}
	if m := encodingsOf(t); m.unmarshalJSON || m.unmarshalText {
		return nil
	}
	n := new(jsonpointer.Names)
	known[t] = n // a type can contain itself
	switch t.Kind() {
	case reflect.Array, reflect.Slice, reflect.Map:
		n.Others = namesIn(t.Elem(), known)
	case reflect.Struct:
		fields := everyField(t)
		n.Members = make(map[string]*jsonpointer.Names, len(fields))
		for _, f := range slices.Backward(fields) {
			n.Members[f.name] = namesIn(f.typ, known) // the first of those with one name
		}
	default:
		return nil
	}
	return n
}

// jsonField is a field that encoding/json encodes, of a struct or of a struct
// embedded in it.
type jsonField struct {
	name   string // of the JSON member
	path   string // in Go
	index  []int
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

// everyField returns the fields of the struct t that encoding/json could encode, also if
// it drops one for another of the same name.
func everyField(t reflect.Type) []jsonField {
	c := collector{outer: t, paths: map[string]string{}, embedding: map[reflect.Type]bool{}, all: true}
	_ = c.add(t, jsonField{})
	return c.fields
}

type collector struct {
	outer     reflect.Type
	fields    []jsonField
	paths     map[string]string // of the fields, by their JSON names
	embedding map[reflect.Type]bool
	all       bool // refuse nothing
}

// refuse returns the error for a field that encoding/json drops, or nil if nothing is
// refused.
func (c *collector) refuse(format string, args ...any) error {
	if c.all {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// add collects the fields of t, which is embedded in outer at the path of at.
func (c *collector) add(t reflect.Type, at jsonField) error {
	if c.embedding[t] {
		return c.refuse("%s embeds itself, and encoding/json drops the inner one", t)
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
		f.index = append(slices.Clip(at.index), i)
		elem := sf.Type
		if elem.Kind() == reflect.Pointer && elem.Name() == "" {
			elem = elem.Elem()
		}
		isStruct := elem.Kind() == reflect.Struct
		if !sf.IsExported() && !(sf.Anonymous && isStruct) {
			if sf.Type.Size() == 0 {
				continue
			}
			if err := c.refuse("%s.%s is not exported, so it would be lost; export it, tag it `json:\"-\"` if it may be lost, or use a type with MarshalJSON and UnmarshalJSON", c.outer, f.path); err != nil {
				return err
			}
			continue
		}
		if elem != sf.Type {
			f.behindPointer = true
			f.unsettable = f.unsettable || !sf.IsExported()
		}
		named := tag != ""
		if !isPortable(tag, options) {
			if err := c.refuse("%s.%s: Go releases disagree about the tag %q; use a name of letters, digits, - and _, and no option format", c.outer, f.path, sf.Tag.Get("json")); err != nil {
				return err
			}
			named = false
		}
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
		f.quoted = slices.Contains(strings.Split(options, ","), "string") && isQuotable(sf.Type)
		if other, found := c.paths[f.name]; found {
			if err := c.refuse("%s.%s and %s.%s have the same JSON name %q, and encoding/json drops at least one; rename one, or tag it `json:\"-\"`", c.outer, other, c.outer, f.path, f.name); err != nil {
				return err
			}
		}
		c.paths[f.name] = f.path
		c.fields = append(c.fields, f)
	}
	return nil
}

// isPortable reports whether every Go release takes a tag in the same way. Go 1.26 ignores
// a name with other characters, such as a quote, and 1.27 uses the part before it, or all
// of it; 1.27 encodes no struct with the option format.
func isPortable(name, options string) bool {
	return !strings.Contains(options, "format:") && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// isQuotable reports whether ",string" has an effect on a value of type t.
func isQuotable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String || t.Kind() <= reflect.Float64
}
