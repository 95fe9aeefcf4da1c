// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"fmt"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/tools/go/ssa"
)

// types reports results of steps and fingerprints of values that JSON does not
// preserve.
func (v *vet) types(f *ssa.Function) {
	calls(f, func(call ssa.CallInstruction) {
		c := call.Common()
		switch n := name(callee(c)); {
		case isStep(n), isCommitStep(n):
			if args := c.StaticCallee().TypeArgs(); len(args) > 0 {
				v.unsupported(call.Pos(), "result of a step", storable(args[0]), "the step is refused at run time")
			}
		case n == "idempotent.FingerprintOf":
			if m, ok := c.Args[0].(*ssa.MakeInterface); ok {
				v.unsupported(call.Pos(), "type", distinct(m.X.Type()), "FingerprintOf refuses it at run time")
			}
		}
	})
}

// resulttypes reports requests and results that Wrap and Do refuse.
func (v *vet) resulttypes(g *guarded) {
	f := g.call.Common().StaticCallee()
	if f == nil || len(f.TypeArgs()) == 0 {
		return
	}
	args := f.TypeArgs()
	switch g.name {
	case "idempotent.Wrap":
		v.unsupported(g.call.Pos(), "request type", distinct(args[0]), "Wrap panics at start-up")
		if !g.set.Codec {
			v.unsupported(g.call.Pos(), "result type", storable(args[1]), "Wrap panics at start-up")
		}
	case "idempotent.Do", "idempotent.DoOutcome":
		if !g.set.Codec {
			v.unsupported(g.call.Pos(), "result type", storable(args[0]), "Do returns an error instead of running")
		}
	}
}

func (v *vet) unsupported(pos token.Pos, what string, err error, consequence string) {
	if err != nil {
		v.report("types", pos, "unsupported %s: %v; %s", what, err, consequence)
	}
}

// storable returns why a value of type t that is decoded from JSON would not be the
// value that was encoded, or nil. The rules are those of idempotent.Wrap, which
// applies them at start-up by reflection; a test compares both.
func storable(t types.Type) error {
	w := walk{stored: true, seen: map[visit]bool{}}
	return w.value(t, top)
}

// distinct returns why two different values of type t could have the same encoding, or
// nil.
func distinct(t types.Type) error {
	w := walk{seen: map[visit]bool{}}
	return w.value(t, top)
}

// place is where encoding/json finds a value. It calls a marshaler with a pointer
// receiver only if it can take the value's address.
type place uint8

const (
	top       place = iota // addressable if the encoder gets a pointer
	addressed              // behind a pointer or in a slice
	fixed                  // in a map
)

type visit struct {
	t  string
	at place
}

// walk visits every type that a value can hold.
type walk struct {
	stored bool // the value is also decoded
	seen   map[visit]bool
}

func (w *walk) value(t types.Type, at place) error {
	t = types.Unalias(t)
	if key := (visit{types.TypeString(t, nil), at}); w.seen[key] {
		return nil
	} else {
		w.seen[key] = true
	}
	if _, parameter := t.(*types.TypeParam); parameter {
		return nil // decided by the caller
	}
	if own, err := w.ownEncoding(t, at); own {
		return err
	}
	switch u := t.Underlying().(type) {
	case *types.Chan, *types.Signature:
		return fmt.Errorf("%s cannot be encoded as JSON", show(t))
	case *types.Basic:
		if u.Info()&types.IsComplex != 0 || u.Kind() == types.UnsafePointer {
			return fmt.Errorf("%s cannot be encoded as JSON", show(t))
		}
	case *types.Interface:
		if u.NumMethods() > 0 {
			return fmt.Errorf("%s is an interface with methods: its JSON does not contain the type of the value; use a struct", show(t))
		}
	case *types.Pointer:
		return w.value(u.Elem(), addressed)
	case *types.Slice:
		return w.value(u.Elem(), addressed)
	case *types.Array:
		return w.value(u.Elem(), at)
	case *types.Map:
		if err := w.key(u.Key()); err != nil {
			return err
		}
		return w.value(u.Elem(), fixed)
	case *types.Struct:
		return w.structure(t, at)
	}
	return nil
}

// jsonField is a field that encoding/json encodes, of a struct or of a struct
// embedded in it.
type jsonField struct {
	name, path    string // of the JSON member, and in Go
	typ           types.Type
	quoted        bool // ",string" applies
	behindPointer bool // a pointer itself, or in a struct that is embedded by pointer
	unsettable    bool // in a struct that is embedded by pointer and not exported
}

func (w *walk) structure(t types.Type, at place) error {
	c := collector{outer: t, paths: map[string]string{}, embedding: map[string]bool{}}
	if err := c.add(t, jsonField{}); err != nil {
		return err
	}
	slices.SortFunc(c.fields, func(a, b jsonField) int { return strings.Compare(a.name, b.name) })
	for _, f := range c.fields {
		if err := w.field(f, at); err != nil {
			return fmt.Errorf("%s.%s: %w", show(t), f.path, err)
		}
	}
	return nil
}

func (w *walk) field(f jsonField, at place) error {
	if w.stored && f.unsettable {
		return fmt.Errorf("the field is behind an embedded pointer to an unexported struct, which encoding/json cannot set; embed the struct itself")
	}
	if f.quoted {
		t := types.Unalias(f.typ)
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		if encodingsOf(t) != (methods{}) {
			return fmt.Errorf(`the tag ",string" does not work on %s, which encodes itself; remove the option`, show(t))
		}
		if b, ok := t.Underlying().(*types.Basic); ok && b.Kind() == types.String && !isType(t, "encoding/json.Number") {
			return fmt.Errorf(`the tag ",string" on a string hides invalid UTF-8; remove the option`)
		}
	}
	if f.behindPointer {
		at = addressed
	}
	return w.value(f.typ, at)
}

// collector collects the fields of a struct. It refuses a struct from which
// encoding/json would omit a field that is not tagged `json:"-"`.
type collector struct {
	outer     types.Type
	fields    []jsonField
	paths     map[string]string // of the fields, by their JSON names
	embedding map[string]bool
}

// add collects the fields of t, which is embedded in outer at the path of at.
func (c *collector) add(t types.Type, at jsonField) error {
	id := types.TypeString(t, nil)
	if c.embedding[id] {
		return fmt.Errorf("%s embeds itself, and encoding/json drops the inner one", show(t))
	}
	c.embedding[id] = true
	defer delete(c.embedding, id)
	s := structOf(t)
	for i := range s.NumFields() {
		sf, whole := s.Field(i), reflect.StructTag(s.Tag(i)).Get("json")
		tag, options, _ := strings.Cut(whole, ",")
		if whole == "-" || sf.Name() == "_" {
			continue
		}
		f := at
		f.path, f.typ = strings.TrimPrefix(at.path+"."+sf.Name(), "."), sf.Type()
		elem := types.Unalias(sf.Type())
		if p, ok := elem.(*types.Pointer); ok {
			elem = p.Elem()
			f.behindPointer = true
			f.unsettable = f.unsettable || !sf.Exported()
		}
		_, isStruct := elem.Underlying().(*types.Struct)
		if !sf.Exported() && !(sf.Embedded() && isStruct) {
			if empty(sf.Type()) {
				continue
			}
			return fmt.Errorf("%s.%s is not exported, so it would be lost; export it, tag it `json:\"-\"` if it may be lost, or use a type with MarshalJSON and UnmarshalJSON", show(c.outer), f.path)
		}
		named := isTagName(tag)
		if sf.Embedded() && isStruct && !named {
			if err := c.add(elem, f); err != nil {
				return err
			}
			continue
		}
		f.name = sf.Name()
		if named {
			f.name = tag
		}
		f.quoted = slices.Contains(strings.Split(options, ","), "string") && isQuotable(elem)
		if other, found := c.paths[f.name]; found {
			return fmt.Errorf("%s.%s and %s.%s have the same JSON name %q, and encoding/json drops at least one; rename one, or tag it `json:\"-\"`", show(c.outer), other, show(c.outer), f.path, f.name)
		}
		c.paths[f.name] = f.path
		c.fields = append(c.fields, f)
	}
	return nil
}

// structOf returns the struct that t is or points to.
func structOf(t types.Type) *types.Struct {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	s, _ := t.Underlying().(*types.Struct)
	return s
}

// empty reports whether values of t have no content.
func empty(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Struct:
		for f := range u.Fields() {
			if !empty(f.Type()) {
				return false
			}
		}
		return true
	case *types.Array:
		return u.Len() == 0 || empty(u.Elem())
	}
	return false
}

// isTagName reports whether encoding/json accepts s as a name in a tag. It ignores
// other names.
func isTagName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// isQuotable reports whether ",string" has an effect on a value of that type.
func isQuotable(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsBoolean|types.IsInteger|types.IsFloat|types.IsString) != 0
}

// methods are the methods with which a type, or a pointer to it, encodes itself.
type methods struct{ marshalJSON, unmarshalJSON, marshalText, unmarshalText bool }

// The signatures of these methods.
var (
	encodes = signature(nil, []types.Type{types.NewSlice(types.Typ[types.Byte]), errorType})
	decodes = signature([]types.Type{types.NewSlice(types.Typ[types.Byte])}, []types.Type{errorType})

	errorType = types.Universe.Lookup("error").Type()
)

func signature(params, results []types.Type) *types.Signature {
	tuple := func(list []types.Type) *types.Tuple {
		var vars []*types.Var
		for _, t := range list {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", t))
		}
		return types.NewTuple(vars...)
	}
	return types.NewSignatureType(nil, nil, nil, tuple(params), tuple(results), false)
}

func encodingsOf(t types.Type) methods {
	switch t.Underlying().(type) {
	case *types.Pointer, *types.Interface:
		return methods{} // the element decides
	}
	p := types.NewPointer(t)
	return methods{has(p, "MarshalJSON", encodes), has(p, "UnmarshalJSON", decodes), has(p, "MarshalText", encodes), has(p, "UnmarshalText", decodes)}
}

// has reports whether t has a method of that name and signature.
func has(t types.Type, method string, s *types.Signature) bool {
	found := types.NewMethodSet(t).Lookup(nil, method)
	return found != nil && types.Identical(found.Type(), s) // whatever the receivers
}

// ownEncoding reports whether t encodes itself, and returns an error if it does so in
// an unsupported way.
func (w *walk) ownEncoding(t types.Type, at place) (bool, error) {
	m := encodingsOf(t)
	writes, reads := m.marshalJSON || m.marshalText, m.unmarshalJSON || m.unmarshalText
	if !writes && (!reads || !w.stored) {
		return false, nil
	}
	if err := w.promoted(t); err != nil {
		return true, err
	}
	if w.stored {
		for _, missing := range []struct {
			when       bool
			has, hasNo string
		}{
			{m.marshalJSON && !m.unmarshalJSON, "MarshalJSON", "UnmarshalJSON"},
			{writes && !reads, "MarshalText", "UnmarshalText"},
			{!writes && m.unmarshalJSON, "UnmarshalJSON", "MarshalJSON"},
			{!writes, "UnmarshalText", "MarshalText"},
		} {
			if missing.when {
				return true, fmt.Errorf("%s has %s but no %s, so a replay would return something else", show(t), missing.has, missing.hasNo)
			}
		}
	}
	if byValue := has(t, "MarshalJSON", encodes) || !m.marshalJSON && has(t, "MarshalText", encodes); !byValue && at == fixed {
		return true, fmt.Errorf("%s encodes itself through its pointer, which encoding/json does not do in a map; use a map of *%s", show(t), show(t))
	}
	return true, nil
}

// promoted returns an error for a struct that gets its encoding from an embedded
// field, which omits the other fields.
func (w *walk) promoted(t types.Type) error {
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	var embedded []types.Type
	others := 0
	for i := range s.NumFields() {
		f := s.Field(i)
		switch {
		case f.Embedded():
			embedded = append(embedded, f.Type())
		case f.Name() != "_" && !empty(f.Type()) && reflect.StructTag(s.Tag(i)).Get("json") != "-":
			others++
		}
	}
	for _, names := range [][2]string{{"MarshalJSON", "MarshalText"}, {"UnmarshalJSON", "UnmarshalText"}} {
		set := types.NewMethodSet(types.NewPointer(t))
		m := set.Lookup(nil, names[0])
		if m == nil {
			m = set.Lookup(nil, names[1])
		}
		switch {
		case m == nil || len(m.Index()) == 1:
			continue
		case others > 0 || len(embedded) != 1:
			return fmt.Errorf("%s has the %s of an embedded field, which omits the other fields; give the struct its own methods, or give the embedded field a name", show(t), m.Obj().Name())
		case isPointer(embedded[0]) && w.stored:
			return fmt.Errorf("%s has the %s of an embedded pointer, which is nil when a replay is decoded; embed the value", show(t), m.Obj().Name())
		}
		return w.promoted(types.Unalias(embedded[0]))
	}
	return nil
}

func isPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// key returns an error if t is not supported as the key type of a map.
func (w *walk) key(t types.Type) error {
	m := encodingsOf(t)
	switch u := t.Underlying().(type) {
	case *types.Basic:
		if u.Kind() == types.String {
			if w.stored && m.unmarshalText {
				return fmt.Errorf("keys of type %s are encoded as they are but decoded with UnmarshalText; use a string without methods", show(t))
			}
			return nil
		}
	case *types.Interface, *types.Pointer:
		return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", show(t))
	}
	writes := has(t, "MarshalText", encodes)
	switch {
	case w.stored && writes && !m.unmarshalText:
		return fmt.Errorf("keys of type %s have MarshalText but no UnmarshalText, so a replay would return something else", show(t))
	case w.stored && !writes && m.unmarshalText:
		return fmt.Errorf("keys of type %s are decoded with UnmarshalText but not encoded with MarshalText, which must have a value receiver", show(t))
	case writes:
		return nil
	}
	if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&types.IsInteger != 0 {
		return nil
	}
	return fmt.Errorf("a map with keys of type %s cannot be encoded as JSON", show(t))
}

// show returns the name of a type with that of its package, as reflect does.
func show(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Name() })
}
