// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// guarded is a call that guards handlers.
type guarded struct {
	call     ssa.CallInstruction
	name     string // of the toolkit's function
	handlers []*ssa.Function
	key      ssa.Value // the KeyFunc of Wrap, or nil
	set      settings
}

// settings are the options that constants set.
type settings struct {
	Recovery  string   // "Reconcile", "Resume" or "Rerun"; empty: unknown
	Steps     []string // nil: unknown
	Retention int64    // in nanoseconds; 0: unknown or not set
	// Default reports that options which are not set have the defaults of the toolkit.
	Default bool
}

func (s *settings) add(o settings) {
	if o.Recovery != "" {
		s.Recovery = o.Recovery
	}
	if o.Steps != nil {
		s.Steps = o.Steps
	}
	if o.Retention != 0 {
		s.Retention = o.Retention
	}
}

// findGuarded returns the calls of the package that guard handlers.
func (v *vet) findGuarded() (list []*guarded) {
	for _, f := range v.funcs {
		calls(f, func(call ssa.CallInstruction) {
			if g := v.guardedBy(call); g != nil {
				list = append(list, g)
			}
		})
	}
	return list
}

func (v *vet) guardedBy(call ssa.CallInstruction) *guarded {
	c := call.Common()
	if callee(c) == nil { // lambdahttp.Middleware(guard, options)(handler)
		made, ok := c.Value.(*ssa.Call)
		if !ok || name(callee(&made.Call)) != "lambdahttp.Middleware" {
			return nil
		}
		return &guarded{call: call, name: "lambdahttp.Middleware", handlers: v.callables(c.Args[0]), set: v.settings(made.Call.Args[0], made.Call.Args[1])}
	}
	n := name(callee(c))
	places, ok := guards[n]
	if !ok {
		return nil
	}
	g, args := &guarded{call: call, name: n}, arguments(c)
	if places.handler == 0 {
		for _, handle := range v.fieldValues(args[0], "lambdahttp.JSON", "Handle") {
			g.handlers = append(g.handlers, v.callables(handle)...)
		}
	} else {
		g.handlers = v.callables(args[places.handler])
	}
	if places.key >= 0 {
		g.key = args[places.key]
	}
	guard := slices.IndexFunc(args, func(a ssa.Value) bool { return isType(a.Type(), "idempotent.Guard") })
	g.set = v.settings(args[guard], args[places.options])
	return g
}

// fieldValues returns what is stored in a field of a struct value.
func (v *vet) fieldValues(value ssa.Value, of, field string) (list []ssa.Value) {
	origins(value, func(o ssa.Value) {
		switch o := o.(type) {
		case *ssa.UnOp:
			list = append(list, v.fieldsAt(o.X, of, field)...)
		case *ssa.Call:
			v.resolve(o, func() {
				for _, r := range v.results(o) {
					list = append(list, v.fieldValues(r, of, field)...)
				}
			})
		}
	})
	return list
}

// fieldsAt returns what is stored in a field of the variable at an address.
func (v *vet) fieldsAt(address ssa.Value, of, field string) (list []ssa.Value) {
	address = local(address)
	for _, f := range v.funcs {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				if at, ok := i.(*ssa.FieldAddr); ok && at.X == address && fieldOf(at, of) == field {
					list = append(list, storedBy(at)...)
				}
				if whole, ok := i.(*ssa.Store); ok && whole.Addr == address {
					list = append(list, v.fieldValues(whole.Val, of, field)...)
				}
			}
		}
	}
	return list
}

// settings returns the options of a guard, changed by those of an operation.
func (v *vet) settings(guard, options ssa.Value) settings {
	var s settings
	origins(guard, func(o ssa.Value) {
		e, ok := o.(*ssa.Extract)
		if !ok {
			return
		}
		if made, ok := e.Tuple.(*ssa.Call); ok && name(callee(&made.Call)) == "idempotent.New" {
			if all, known := v.optionsIn(made.Call.Args[1]); known {
				s.add(all)
				s.Default = true
			}
		}
	})
	all, known := v.optionsIn(options)
	s.add(all)
	s.Default = s.Default && known
	if s.Default && s.Recovery == "" {
		s.Recovery = "Reconcile"
	}
	return s
}

// optionsIn returns what the functions of a list of options set. known is false if
// there can be others.
func (v *vet) optionsIn(list ssa.Value) (s settings, known bool) {
	elements, known := variadic(list)
	for _, e := range elements {
		functions := v.callables(e)
		known = known && len(functions) > 0
		for _, f := range functions {
			s.add(v.summaryOf(f).Settings)
		}
	}
	return s, known
}

// settingsOf returns what a function of options sets: itself, or in a function that
// it stores as Options.Guard.
func (v *vet) settingsOf(f *ssa.Function) (s settings) {
	for _, b := range f.Blocks {
		for _, i := range b.Instrs {
			store, ok := i.(*ssa.Store)
			if !ok {
				continue
			}
			for _, of := range []string{"lambdabatch.Options", "lambdahttp.Options"} {
				if fieldOf(store.Addr, of) == "Guard" {
					for _, inner := range v.callables(store.Val) {
						s.add(v.summaryOf(inner).Settings)
					}
				}
			}
			v.set(&s, fieldOf(store.Addr, "idempotent.Operation"), store.Val)
		}
	}
	return s
}

func (v *vet) set(s *settings, field string, value ssa.Value) {
	c, constantValue := value.(*ssa.Const)
	switch field {
	case "Recovery":
		if constantValue {
			s.Recovery = v.recoveryName(c)
		}
	case "Steps":
		list, _ := variadic(value)
		var steps []string
		for _, e := range list {
			step, ok := text(e)
			if !ok {
				return
			}
			steps = append(steps, step)
		}
		s.Steps = steps
	case "Retention":
		if constantValue {
			s.Retention, _ = constant.Int64Val(c.Value)
		}
	}
}

// recoveryName returns the name of a constant of type idempotent.Recovery.
func (v *vet) recoveryName(c *ssa.Const) string {
	for _, p := range v.pass.Pkg.Imports() {
		for _, candidate := range []string{"Reconcile", "Resume", "Rerun"} {
			k, ok := p.Scope().Lookup(candidate).(*types.Const)
			if ok && types.Identical(k.Type(), c.Type()) && constant.Compare(k.Val(), token.EQL, c.Value) {
				return candidate
			}
		}
	}
	return ""
}

// reach returns the functions of the package that calls of these can run, other than those
// of their steps. If deferred is not set, what they defer is not among them.
func (v *vet) reach(from []*ssa.Function, deferred bool) map[*ssa.Function]bool {
	found := map[*ssa.Function]bool{}
	var visit func(f *ssa.Function)
	visit = func(f *ssa.Function) {
		if found[f] {
			return
		}
		found[f] = true
		calls(f, func(call ssa.CallInstruction) {
			if _, is := call.(*ssa.Defer); is && !deferred {
				return
			}
			for _, next := range v.runs(call) {
				visit(next)
			}
		})
	}
	for _, f := range from {
		visit(f)
	}
	return found
}
