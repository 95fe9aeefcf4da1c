// SPDX-License-Identifier: Apache-2.0

package oncevet

import (
	"go/constant"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// outsidestep reports a write outside the steps of a handler under Resume.
func (v *vet) outsidestep(g *guarded) {
	if g.set.Recovery == "Resume" {
		v.sentBy(g, (*send).writes, "outsidestep", "outside a step under Resume: after a crash it is sent again; call it inside idempotent.Step")
	}
}

// sentBy reports the calls of a handler that send something, itself or through the
// functions that they call. A handler of another package is reported where it is
// guarded.
func (v *vet) sentBy(g *guarded, wrong func(*send) bool, check, why string) {
	report := func(call ssa.CallInstruction, list []*send) {
		for _, s := range list {
			if wrong(s) {
				v.report(check, call.Pos(), "%s (%s) sends a request %s", s.What, s.At, why)
			}
		}
	}
	for _, h := range g.handlers {
		if len(h.Blocks) == 0 {
			report(g.call, v.summaryOf(h).Sends)
		}
		calls(h, func(call ssa.CallInstruction) { report(call, v.sends(call)) })
	}
}

// downstreamkey reports a request that a retry sends again without the key by which
// the provider would recognise it.
func (v *vet) downstreamkey(list []*guarded) {
	if v.carries() {
		return
	}
	const why = "without idempotent.DownstreamKey: the retry after a crash sends it again, and the provider acts twice; send the key, or declare a step AtMostOnce"
	once := map[*ssa.Function]bool{} // functions of handlers that do not run again
	for _, g := range list {
		switch g.set.Recovery {
		case "Reconcile":
			maps.Copy(once, v.reach(g.handlers, true))
		case "Rerun":
			if !slices.ContainsFunc(g.handlers, v.familyUsesKey) {
				v.sentBy(g, (*send).appends, "downstreamkey", why)
			}
		}
	}
	for _, f := range v.funcs {
		calls(f, func(call ssa.CallInstruction) {
			c := call.Common()
			if !isStep(name(callee(c))) || once[f] || v.atMostOnce(c.Args[3]) {
				return
			}
			for _, step := range v.callables(c.Args[2]) {
				if !v.familyUsesKey(step) {
					v.sentBy(&guarded{call: call, handlers: []*ssa.Function{step}}, (*send).appends, "downstreamkey", why)
				}
			}
		})
	}
}

// familyUsesKey reports whether f, or a function around it, uses a downstream key,
// which its literals can capture.
func (v *vet) familyUsesKey(f *ssa.Function) bool {
	for ; f != nil; f = f.Parent() {
		if v.summaryOf(f).Keyed {
			return true
		}
	}
	return false
}

// atMostOnce reports whether the options of a step declare it so, or are unknown.
func (v *vet) atMostOnce(options ssa.Value) bool {
	list, known := variadic(options)
	if !known {
		return true
	}
	for _, o := range list {
		for _, f := range v.callables(o) {
			for _, b := range f.Blocks {
				for _, i := range b.Instrs {
					store, ok := i.(*ssa.Store)
					if !ok {
						continue
					}
					if fieldOf(store.Addr, "idempotent.StepOptions") == "AtMostOnce" {
						c, ok := store.Val.(*ssa.Const)
						return !ok || constant.BoolVal(c.Value)
					}
				}
			}
		}
	}
	return false
}

// aftercommit reports an effect that follows a Commit which succeeded.
func (v *vet) aftercommit(f *ssa.Function) {
	calls(f, func(commit ssa.CallInstruction) {
		_, direct := commit.(*ssa.Call)
		if n := name(callee(commit.Common())); !direct || !isCommit(n) && !v.callSummary(commit).Commits {
			return
		}
		after(commit, onSuccess(errorOf(commit)), func(i ssa.Instruction) {
			call, ok := i.(ssa.CallInstruction)
			if !ok || i == commit || i.Parent() != commit.Parent() {
				return // also in a deferred literal, which can undo what was not committed
			}
			if len(v.callSummary(call).Steps) > 0 {
				v.report("aftercommit", call.Pos(), "a step after Commit never runs: the outcome is stored, and the step returns ErrExecutionEnded; run the step before Commit")
				return
			}
			if s := v.written(call); s != nil {
				v.report("aftercommit", call.Pos(), "%s (%s) follows Commit: after a crash between them no retry sends it, because the outcome is stored; call it in a step before Commit, or write an outbox item in the same transaction", s.What, s.At)
			}
		})
	})
}

// committype reports a Commit of a value that does not decode into the result of the
// handler. Two structs or maps can have the same members, so they are not compared, and
// neither is a type that encodes itself, such as json.RawMessage.
func (v *vet) committype(g *guarded) {
	want := g.result()
	if want == nil || types.IsInterface(want) {
		return
	}
	for f := range v.reach(g.handlers, true) {
		calls(f, func(call ssa.CallInstruction) {
			c := call.Common()
			if !isCommit(name(callee(c))) {
				return
			}
			args := arguments(c)
			if c.Signature().Recv() != nil {
				args = args[1:]
			}
			m, ok := args[1].(*ssa.MakeInterface)
			if !ok {
				return
			}
			got := m.X.Type()
			switch {
			case types.Identical(got, want), types.Identical(got, types.NewPointer(want)):
				return
			case encodesItself(got), encodesItself(want), hasMembers(got) && hasMembers(want):
				return
			}
			v.report("committype", call.Pos(), "Commit gets a %s, and the result of the handler is a %s, into which it does not decode: Commit refuses it at run time; commit the result of the handler", types.TypeString(got, types.RelativeTo(v.pass.Pkg)), types.TypeString(want, types.RelativeTo(v.pass.Pkg)))
		})
	}
}

// result returns the type of the result of the handler, or nil if it is not known.
func (g *guarded) result() types.Type {
	f := g.call.Common().StaticCallee()
	switch {
	case strings.HasPrefix(g.name, "lambdabatch."):
		return types.NewStruct(nil, nil)
	case g.name == "idempotent.Wrap":
		return f.TypeArgs()[1]
	case g.name == "idempotent.Do", g.name == "idempotent.DoOutcome":
		return f.TypeArgs()[0]
	}
	return nil
}

// encodesItself reports whether t has a method that encodes or decodes its values.
func encodesItself(t types.Type) bool {
	return slices.ContainsFunc([]string{"MarshalJSON", "MarshalText", "UnmarshalJSON", "UnmarshalText"}, func(name string) bool {
		method, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
		_, is := method.(*types.Func)
		return is
	})
}

// hasMembers reports whether values of t are JSON objects with members of any name.
func hasMembers(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	switch u := t.Underlying().(type) {
	case *types.Struct:
		return u.NumFields() > 0
	case *types.Map:
		return true
	}
	return false
}
