// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/constant"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// origins calls visit with each value that v can be a copy of: it follows
// conversions, branches, local variables and variables that a closure captures.
func origins(v ssa.Value, visit func(ssa.Value)) {
	follow(v, map[ssa.Value]bool{}, visit)
}

func follow(v ssa.Value, seen map[ssa.Value]bool, visit func(ssa.Value)) {
	if seen[v] {
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
	if made := referrers(f); len(made) > 0 {
		return made[0].(*ssa.MakeClosure).Bindings[slices.Index(f.FreeVars, v)]
	}
	return nil
}

// stored returns the values that are stored at an address: a local variable, also
// where closures write it, or a field of one.
func stored(address ssa.Value) (values []ssa.Value) {
	switch a := address.(type) {
	case *ssa.FreeVar:
		return stored(captured(a))
	case *ssa.Alloc:
		values = storedBy(a)
		for _, r := range referrers(a) {
			if made, ok := r.(*ssa.MakeClosure); ok {
				i := slices.Index(made.Bindings, address)
				values = append(values, storedBy(made.Fn.(*ssa.Function).FreeVars[i])...)
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
	if _, ok := v.(*ssa.Const); ok {
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
	if !ok || c.Value == nil {
		return "", false
	}
	return constant.StringVal(c.Value), true
}

// fieldOf returns the name of the field of the struct type of that name which an address or
// a value selects, or "".
func fieldOf(v ssa.Value, of string) string {
	var x types.Type
	n := 0
	switch v := v.(type) {
	case *ssa.FieldAddr:
		x, n = v.X.Type(), v.Field
	case *ssa.Field:
		x, n = v.X.Type(), v.Field
	default:
		return ""
	}
	if !isType(x, of) {
		return ""
	}
	return structOf(x).Field(n).Name()
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
	if _, guard := guards[name(callee(&call.Call))]; guard {
		return nil
	}
	v.resolve(call, func() {
		for _, a := range call.Call.Args {
			if types.Identical(a.Type(), call.Type()) {
				list = append(list, v.callables(a)...)
			}
		}
		if len(list) > 0 {
			return
		}
		for _, r := range v.results(call) {
			list = append(list, v.callables(r)...)
		}
	})
	return list
}

// results returns the first results of the function that a call names.
func (v *vet) results(call *ssa.Call) (list []ssa.Value) {
	if f := call.Call.StaticCallee(); f != nil {
		for _, r := range returns(v.source(f)) {
			list = append(list, r.Results[0])
		}
	}
	return list
}

// resolve calls how, unless the results of the call are being resolved already, as in a
// loop or a recursion, and reports whether it did.
func (v *vet) resolve(call *ssa.Call, how func()) bool {
	if v.within[call] {
		return false
	}
	v.within[call] = true
	how()
	delete(v.within, call)
	return true
}

// source returns the function of the source that f calls, if f is an instance or
// the value of a method, and otherwise f.
func (v *vet) source(f *ssa.Function) *ssa.Function {
	if d := declared(f); d != nil {
		if declaration := v.prog.FuncValue(d); declaration != nil {
			return declaration
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
