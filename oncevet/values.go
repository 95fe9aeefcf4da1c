// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// origins calls visit with each value that v can be a copy of: it follows
// conversions, branches, local variables and variables that a closure captures.
func origins(v ssa.Value, visit func(ssa.Value)) {
	follow(v, map[ssa.Value]bool{}, visit)
}

func follow(v ssa.Value, seen map[ssa.Value]bool, visit func(ssa.Value)) {
	if v == nil || seen[v] {
		return
	}
	seen[v] = true
	switch v := v.(type) {
	case *ssa.Phi:
		for _, e := range v.Edges {
			follow(e, seen, visit)
		}
	case *ssa.ChangeType:
		follow(v.X, seen, visit)
	case *ssa.ChangeInterface:
		follow(v.X, seen, visit)
	case *ssa.MakeInterface:
		follow(v.X, seen, visit)
	case *ssa.Convert:
		follow(v.X, seen, visit)
	case *ssa.FreeVar:
		follow(captured(v), seen, visit)
	case *ssa.UnOp:
		values := stored(v.X)
		if len(values) == 0 {
			visit(v)
		}
		for _, s := range values {
			follow(s, seen, visit)
		}
	default:
		visit(v)
	}
}

// captured returns the variable of the enclosing function that a closure captures,
// or nil.
func captured(v *ssa.FreeVar) ssa.Value {
	f := v.Parent()
	if made := maker(f); made != nil {
		return made.Bindings[slices.Index(f.FreeVars, v)]
	}
	return nil
}

// maker returns the instruction that makes the closure f, or nil.
func maker(f *ssa.Function) *ssa.MakeClosure {
	if f.Parent() == nil {
		return nil
	}
	for _, b := range f.Parent().Blocks {
		for _, i := range b.Instrs {
			if m, ok := i.(*ssa.MakeClosure); ok && m.Fn == f {
				return m
			}
		}
	}
	return nil
}

// stored returns the values that are stored at an address: a local variable, also
// where closures write it, or a field of one.
func stored(address ssa.Value) (values []ssa.Value) {
	switch a := address.(type) {
	case *ssa.FreeVar:
		if v := captured(a); v != nil {
			return stored(v)
		}
	case *ssa.Alloc:
		for _, r := range *a.Referrers() {
			switch r := r.(type) {
			case *ssa.Store:
				if r.Addr == address {
					values = append(values, r.Val)
				}
			case *ssa.MakeClosure:
				f := r.Fn.(*ssa.Function)
				for i, b := range r.Bindings {
					if b == address {
						values = append(values, storedBy(f.FreeVars[i])...)
					}
				}
			}
		}
	case *ssa.FieldAddr:
		for _, r := range referrers(local(a.X)) {
			if field, ok := r.(*ssa.FieldAddr); ok && field.Field == a.Field {
				values = append(values, storedBy(field)...)
			}
		}
	}
	return values
}

// local returns the variable that an address belongs to.
func local(address ssa.Value) ssa.Value {
	if v, ok := address.(*ssa.FreeVar); ok {
		return captured(v)
	}
	return address
}

// storedBy returns the values that are stored through exactly this value.
func storedBy(address ssa.Value) (values []ssa.Value) {
	for _, r := range referrers(address) {
		if s, ok := r.(*ssa.Store); ok && s.Addr == address {
			values = append(values, s.Val)
		}
	}
	return values
}

func referrers(v ssa.Value) []ssa.Instruction {
	if v == nil || v.Referrers() == nil {
		return nil
	}
	return *v.Referrers()
}

// variadic returns the elements of a slice that a call or a literal builds. known is
// false if it is built elsewhere.
func variadic(v ssa.Value) (elements []ssa.Value, known bool) {
	if c, ok := v.(*ssa.Const); ok && c.IsNil() {
		return nil, true
	}
	slice, ok := v.(*ssa.Slice)
	if !ok {
		return nil, false
	}
	array, ok := slice.X.(*ssa.Alloc)
	if !ok {
		return nil, false
	}
	for _, r := range referrers(array) {
		if at, ok := r.(*ssa.IndexAddr); ok {
			elements = append(elements, storedBy(at)...)
		}
	}
	return elements, true
}

// text returns the value of a constant string.
func text(v ssa.Value) (string, bool) {
	c, ok := v.(*ssa.Const)
	if !ok || c.Value == nil || c.Value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(c.Value), true
}

// fieldOf returns the name of the field of the struct type of that name which an address or
// a value selects, or "".
func fieldOf(v ssa.Value, of string) string {
	switch v := v.(type) {
	case *ssa.FieldAddr:
		if isType(v.X.Type(), of) {
			return structOf(v.X.Type()).Field(v.Field).Name()
		}
	case *ssa.Field:
		if isType(v.X.Type(), of) {
			return structOf(v.X.Type()).Field(v.Field).Name()
		}
	}
	return ""
}

// callables returns the functions that a value can be. A call that takes a function
// of its own result's type counts as a wrapper of it.
func (v *vet) callables(value ssa.Value) (list []*ssa.Function) {
	origins(value, func(o ssa.Value) {
		switch o := o.(type) {
		case *ssa.Function:
			list = append(list, v.source(o))
		case *ssa.MakeClosure:
			list = append(list, v.source(o.Fn.(*ssa.Function)))
		case *ssa.Call:
			list = append(list, v.returned(o)...)
		}
	})
	return list
}

// returned returns the functions that a call returns. A guarded handler is not
// among them: a call of it is a separate run.
func (v *vet) returned(call *ssa.Call) (list []*ssa.Function) {
	_, guard := guards[name(callee(&call.Call))]
	if guard || !v.enter(call) {
		return nil
	}
	defer delete(v.within, call)
	for _, a := range call.Call.Args {
		if types.Identical(a.Type(), call.Type()) {
			list = append(list, v.callables(a)...)
		}
	}
	f := call.Call.StaticCallee()
	if len(list) > 0 || f == nil {
		return list
	}
	for _, r := range returns(v.source(f)) {
		if len(r.Results) > 0 {
			list = append(list, v.callables(r.Results[0])...)
		}
	}
	return list
}

// enter reports whether the results of a call are not being resolved already, as in
// a loop or a recursion, and notes that they are.
func (v *vet) enter(call *ssa.Call) bool {
	if v.within[call] {
		return false
	}
	v.within[call] = true
	return true
}

// source returns the function of the source that f calls, if f is an instance or
// the value of a method.
func (v *vet) source(f *ssa.Function) *ssa.Function {
	if o := f.Origin(); o != nil {
		f = o
	}
	if strings.HasPrefix(f.Synthetic, "bound method") || strings.HasPrefix(f.Synthetic, "thunk") {
		if d := declared(f); d != nil {
			if method := v.prog.FuncValue(d); method != nil {
				return method
			}
		}
	}
	return f
}

func returns(f *ssa.Function) (list []*ssa.Return) {
	for _, b := range f.Blocks {
		if r, ok := b.Instrs[len(b.Instrs)-1].(*ssa.Return); ok {
			list = append(list, r)
		}
	}
	return list
}

// structOf returns the struct that t is or points to.
func structOf(t types.Type) *types.Struct {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	s, _ := t.Underlying().(*types.Struct)
	return s
}
